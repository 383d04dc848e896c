"""examples/plugins/carbon-aware as users install it: every command finds it by its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.objects import pod
from harness.up_process import PODS, Running
from holdfast.cli.app import app

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "carbon-aware"
CONFIG, SCENARIO = str(EXAMPLE / "config.yaml"), str(EXAMPLE / "scenario.yaml")
MODULE = "holdfast_carbon"


def built_wheel(source: Path, folder: Path) -> Path:
    """The wheel a build backend makes of the package: its modules, and what pyproject.toml says."""
    with (source / "pyproject.toml").open("rb") as file:
        document = tomllib.load(file)
    project = document["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    info = f"{name}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(lines) + "\n",
    }
    for package in document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        for path in sorted((source / package).rglob("*.py")):
            files[str(path.relative_to(source))] = path.read_text()
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder it is installed into."""
    folder = tmp_path_factory.mktemp("package")
    wheel, into = built_wheel(EXAMPLE, folder), folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--target", str(into), str(wheel)], check=True)
    return into


@pytest.fixture
def installed(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In this process, and in those it starts."""
    monkeypatch.syspath_prepend(str(target))
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(target), *([known] if known else [])]))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return target


def test_its_scenario_meets_its_expectations(installed: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", SCENARIO, "--config", CONFIG, "--audit"])
    assert result.exit_code == 0, result.output
    without = CliRunner().invoke(app, ["simulate", SCENARIO])
    assert without.exit_code == 1, "its expectations hold without the plugin, too"


def test_its_configuration_names_a_plugin_that_must_be_installed(installed: Path) -> None:
    assert CliRunner().invoke(app, ["config", "validate", CONFIG]).exit_code == 0


def test_without_the_package_the_configuration_is_refused() -> None:
    result = CliRunner().invoke(app, ["simulate", SCENARIO, "--config", CONFIG])
    assert "CarbonAware" in str(result.exception)


def test_its_own_tests_pass(installed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", str(EXAMPLE), str(EXAMPLE / "tests")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def powered(name: str, carbon: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"example.com/carbon": carbon}},
        "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def test_in_up_it_filters_scores_and_counts(installed: Path, tmp_path: Path) -> None:
    """Two pods go to the cleaner node and one to the other, the fourth waits; a node that becomes clean
    takes it."""
    with Running(tmp_path, "--config", CONFIG) as up:
        for name, carbon in (("wind", "20"), ("gas", "280"), ("coal", "900")):
            up.client.create("/api/v1/nodes", powered(name, carbon))
        placed = {}
        for name in ("a", "b", "c", "d"):
            picky = pod(name, annotations={"example.com/max-carbon": "300"})
            up.client.create(PODS, picky)
            found = up.client.until(PODS, name, lambda raw: bool(raw and raw["spec"].get("nodeName")))
            assert found is not None
            placed[name] = found["spec"]["nodeName"]
        assert placed == {"a": "wind", "b": "wind", "c": "gas", "d": "gas"}
        up.client.create(PODS, pod("e", annotations={"example.com/max-carbon": "300"}))
        waits = up.client.until(PODS, "e", lambda raw: bool(raw and raw["status"].get("conditions")))
        assert waits is not None
        message = waits["status"]["conditions"][0]["message"]
        assert "1 node(s) cost more carbon than the pod accepts" in message
        assert "2 node(s) had as many carbon-aware pods as are allowed" in message
        clean = {"metadata": {"annotations": {"example.com/carbon": "100"}}}
        up.client.patch("/api/v1/nodes/coal", clean)
        up.client.until(PODS, "e", lambda raw: bool(raw and raw["spec"].get("nodeName") == "coal"))
