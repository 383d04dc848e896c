"""A plugin that raises, in a whole program: the run goes on, and what happened is on stderr."""

import json
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.plugin import Handle, Plugin, PluginError, PodClass
from holdfast.scheduler.framework import registry as registry_module

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {multiPoint: {enabled: [{name: Parsing}]}}
"""
SCENARIO = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: bad, annotations: {example.com/max: many}}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: good, annotations: {example.com/max: "7"}}
spec: {containers: [{name: c, image: i}]}
"""


class Parsing(Plugin):
    name = "Parsing"
    reads_annotations = frozenset({"example.com/max"})

    def filter(self, cls: PodClass) -> None:
        int(cls.annotations["example.com/max"])


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    value = f"{__name__}:Parsing"
    entries = [EntryPoint("Parsing", value, registry_module.GROUP)]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: entries)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.parametrize("until", [[], ["--until", "60s"]])
def test_simulate_continues_and_reports_the_exception(installed: Path, until: list[str]) -> None:
    files = [str(installed / "scenario.yaml"), "--config", str(installed / "config.yaml")]
    result = CliRunner().invoke(app, ["simulate", *files, *until, "-o", "json"])
    assert result.exit_code == 0, result.output
    objects = {o["metadata"]["name"]: o for o in json.loads(result.stdout)["objects"]}
    assert objects["good"]["spec"]["nodeName"] == "n"
    (condition,) = objects["bad"]["status"]["conditions"]
    assert condition["reason"] == "SchedulerError"
    assert condition["message"].startswith('running PreFilter plugin "Parsing": ValueError: ')
    assert result.stderr.count("plugin Parsing failed: ") == 1
    assert "Traceback" in result.stderr and "int(cls.annotations" in result.stderr


class Choosy(Plugin):
    name = "Choosy"

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        int(args.get("most", 1))

    def filter(self, cls: PodClass) -> None:
        return None


def test_a_configuration_is_not_valid_if_a_plugin_refuses_its_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = [EntryPoint("Choosy", f"{__name__}:Choosy", registry_module.GROUP)]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: entries)
    file = tmp_path / "config.yaml"
    args = "    pluginConfig: [{name: Choosy, args: {most: MOST}}]\n"
    for most, expected in (("lots", 1), ("3", 0)):
        file.write_text(CONFIG.replace("Parsing", "Choosy") + args.replace("MOST", most))
        result = CliRunner().invoke(app, ["config", "validate", str(file)])
        assert result.exit_code == expected, result.output
        assert ("plugin Choosy cannot be created: ValueError" in str(result.exception)) == bool(
            expected
        )


def test_a_plugin_that_exits_when_it_is_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "exiting_plugin.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [EntryPoint("Exiting", "exiting_plugin:Exiting", registry_module.GROUP)]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: entries)
    (tmp_path / "config.yaml").write_text(CONFIG.partition("profiles")[0])
    result = CliRunner().invoke(app, ["config", "validate", str(tmp_path / "config.yaml")])
    assert result.exit_code == 0
    why = "SystemExit: 3 (entry point exiting_plugin:Exiting)"
    assert result.stderr == f"warning: plugin Exiting cannot be used: {why}\n"


# Installed and not usable


def install(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    found = [EntryPoint(name, value, registry_module.GROUP) for name, value in entries]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: found)


def test_a_plugin_that_cannot_be_imported_fails_only_where_it_is_enabled(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, ("Parsing", f"{__name__}:Parsing"), ("Gone", "no.such:Gone"))
    config, scenario = str(installed / "config.yaml"), str(installed / "scenario.yaml")
    warning = "warning: plugin Gone cannot be used: ModuleNotFoundError: No module named 'no'"
    for arguments in (["config", "validate", config], ["simulate", scenario]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0 and result.stderr.count(warning) == 1
    assert CliRunner().invoke(app, ["config", "default"]).exit_code == 0
    (installed / "config.yaml").write_text(CONFIG.replace("Parsing", "Gone"))
    for arguments in (["config", "validate", config], ["simulate", scenario, "--config", config]):
        result = CliRunner().invoke(app, arguments)
        field = f"{config}: profiles[0].plugins.multiPoint.enabled[0].name: "
        assert result.exit_code == 1
        assert f'{field}plugin "Gone" cannot be used: ModuleNotFoundError' in str(result.exception)


class Strict(Plugin):
    name = "Strict"

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        if args:
            raise ValueError(f"unknown arguments: {', '.join(args)}")

    def filter(self, cls: PodClass) -> None:
        return None


ARGUMENTS = """
    pluginConfig:
      - {name: Parsing, args: {a: 1}}
      - {name: Strict, args: {perNod: 1}}
"""


def test_wrong_arguments_are_reported_with_file_and_field(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, ("Parsing", f"{__name__}:Parsing"), ("Strict", f"{__name__}:Strict"))
    config, scenario = str(installed / "config.yaml"), str(installed / "scenario.yaml")
    (installed / "config.yaml").write_text(CONFIG.replace("Parsing", "Strict").rstrip() + ARGUMENTS)
    for arguments in (["config", "validate", config], ["simulate", scenario, "--config", config]):
        result = CliRunner().invoke(app, arguments)
        field = f"{config}: profiles[0].pluginConfig[1].args: "
        assert result.exit_code == 1
        assert f"{field}plugin Strict cannot be created: ValueError: unknown arguments" in str(
            result.exception
        )


class Refusing(Strict):
    """Raises an error of Holdfast's own."""

    name = "Strict"

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        raise PluginError(f"unknown arguments: {', '.join(args)}")


def test_errors_of_holdfast_about_arguments_have_file_and_field_too(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, ("Parsing", f"{__name__}:Parsing"), ("Strict", f"{__name__}:Refusing"))
    config = str(installed / "config.yaml")
    (installed / "config.yaml").write_text(CONFIG.replace("Parsing", "Strict").rstrip() + ARGUMENTS)
    result = CliRunner().invoke(app, ["config", "validate", config])
    assert str(result.exception) == (
        f"{config}: profiles[0].pluginConfig[1].args: unknown arguments: perNod"
    )


def test_arguments_of_a_plugin_that_is_not_enabled_are_a_warning(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, ("Parsing", f"{__name__}:Parsing"), ("Strict", f"{__name__}:Strict"))
    config = str(installed / "config.yaml")
    (installed / "config.yaml").write_text(CONFIG.rstrip() + ARGUMENTS)
    result = CliRunner().invoke(app, ["config", "validate", config])
    assert result.exit_code == 0
    assert result.stderr == (
        f"warning: {config}: profiles[0].pluginConfig[1].name: "
        'has no effect: plugin "Strict" is not enabled in this profile\n'
    )
