"""The wheel has what users need: the source, the examples, the rules of Holdfast's own kinds."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.up_process import Client, Running, end_detached
from holdfast.sim.examples import examples

ROOT = Path(__file__).parents[2]
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
BOTH: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "both"},
    "spec": {
        "ttl": "2h",
        "expires": "2027-01-01T00:00:00Z",
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "template": {"spec": {"containers": [{"name": "main"}]}},
    },
}


def holdfast(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "holdfast", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_works_without_the_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dependencies are those of this environment; the package is unpacked from the wheel."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(file) as wheel:
        wheel.extractall(installed)
    packed = {
        str(each.relative_to(installed))
        for each in (installed / "holdfast").rglob("*")
        if each.is_file()
    }
    source = {
        str(each.relative_to(ROOT / "src"))
        for each in (ROOT / "src" / "holdfast").rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    assert packed == source | {f"holdfast/examples/{each.name}.yaml" for each in examples()}

    monkeypatch.setenv("PYTHONPATH", str(installed))
    assert holdfast(tmp_path, "--version").startswith("holdfast ")
    listed = holdfast(tmp_path, "simulate", "--list-examples", "-o", "json")
    assert str(installed / "holdfast" / "examples" / "tour.yaml") in listed
    assert "Succeeded" in holdfast(tmp_path, "simulate", "--example", "jobs/gangs")
    with Running(tmp_path, "--nodes", "1") as up:
        status, answer = up.client.ask("POST", RESERVATIONS, BOTH)
    assert status == 422
    assert "expires cannot be given together with ttl; keep one of them" in answer["message"]
    printed = holdfast(tmp_path, "up", "--detach", "--no-dashboard")
    try:
        assert Client(tmp_path / "holdfast.kubeconfig").get("/api/v1/nodes")["items"] == []
    finally:
        end_detached(printed)
