"""A plugin that raises, in a whole program: the run goes on, and what happened is on stderr."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.framework import registry as registry_module
from holdfast.plugin import Plugin, PodClass

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
def test_simulate_goes_on_and_tells_what_was_raised(installed: Path, until: list[str]) -> None:
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
