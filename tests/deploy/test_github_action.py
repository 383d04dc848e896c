"""The GitHub Action: its script runs the command as it is, and has its status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.what_if.clusters import node, pod, workload

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "deploy" / "github-action" / "action.yml").read_text())
INPUT = re.compile(r"\$\{\{ inputs\.([a-z]+) \}\}")


def _step(name: str) -> dict[str, Any]:
    [found] = [step for step in ACTION["runs"]["steps"] if step["name"] == name]
    assert isinstance(found, dict)
    return found


def test_every_input_is_used_and_no_other() -> None:
    used = {
        match
        for step in ACTION["runs"]["steps"]
        for value in step["env"].values()
        for match in INPUT.findall(value)
    }
    assert used == set(ACTION["inputs"])
    assert ACTION["runs"]["using"] == "composite"
    assert all("${{" not in step["run"] for step in ACTION["runs"]["steps"]), "inputs run as commands"
    assert all(each["description"] for each in ACTION["inputs"].values())


@pytest.mark.parametrize(("cpu", "status"), [("1", 0), ("64", 1)])
def test_the_check_step(tmp_path: Path, cpu: str, status: int) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": [node("n1")]}))
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "a.yaml").write_text(json.dumps(workload("web", 2, cpu)))
    (tmp_path / "b.yaml").write_text(json.dumps(pod("p")))
    launcher = tmp_path / "bin" / "holdfast"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    launcher.chmod(0o755)
    values = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
    values |= {"manifests": "manifests b.yaml", "snapshot": "cluster.json"}
    step = _step("Check")
    env = {name: INPUT.sub(lambda found: values[found[1]], text) for name, text in step["env"].items()}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={
            **os.environ,
            **env,
            "PATH": f"{launcher.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Deployment/default/web" in done.stdout
    results = json.loads((tmp_path / "holdfast-check.sarif").read_text())["runs"][0]["results"]
    assert len(results) == status
