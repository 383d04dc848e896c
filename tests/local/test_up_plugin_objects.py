"""`holdfast up` with an installed plugin that reads a custom resource."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.objects import pod
from harness.team_quotas import install, quota, quota_definition
from harness.up_process import PODS, Running
from holdfast.local.store import Raw

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUOTAS = "/apis/example.com/v1/namespaces/default/teamquotas"


def _of_team(name: str) -> Raw:
    return pod(name, labels={"team": "a"})


def _placed(raw: Raw | None) -> bool:
    return bool(raw and raw["spec"].get("nodeName"))


def _has_message(raw: Raw | None, text: str) -> bool:
    conditions = (raw or {}).get("status", {}).get("conditions") or ()
    return any(text in (each.get("message") or "") for each in conditions)


def _established(raw: Raw | None) -> bool:
    conditions = (raw or {}).get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


def _define(up: Running) -> None:
    up.client.create(DEFINITIONS, quota_definition())
    up.client.until(DEFINITIONS, "teamquotas.example.com", _established)


def test_its_objects_come_and_go_with_their_definition_and_outlive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    config = str(tmp_path / "config.yaml")
    arguments = ("--config", config, "--nodes", "1", "--data-dir", str(tmp_path / "data"))
    with Running(tmp_path, *arguments) as up:
        up.client.create(PODS, _of_team("p1"))
        up.client.until(PODS, "p1", lambda raw: _has_message(raw, "no TeamQuota a"))
        _define(up)
        up.client.create(QUOTAS, quota("a", maxCPU=4))
        up.client.until(PODS, "p1", _placed)
        up.client.ask("DELETE", f"{DEFINITIONS}/teamquotas.example.com")
        up.client.create(PODS, _of_team("p2"))
        up.client.until(PODS, "p2", lambda raw: _has_message(raw, "no TeamQuota a"))
        explained = subprocess.run(
            [sys.executable, "-m", "holdfast", "explain", "pod", "p2", "--config", config, "-o", "json",
             "--kubeconfig", str(up.kubeconfig)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "no TeamQuota a" in explained.stdout, explained
        _define(up)
        up.client.create(QUOTAS, quota("a", maxCPU=4, closed=True))
        up.client.until(PODS, "p2", lambda raw: _has_message(raw, "TeamQuota a is closed"))
        assert up.stop() == (0, "")
    with Running(tmp_path, *arguments) as up:
        up.client.create(PODS, _of_team("p3"))
        up.client.until(PODS, "p3", lambda raw: _has_message(raw, "TeamQuota a is closed"))
        code, found = up.client.ask("GET", f"{QUOTAS}/a")
        assert code == 200
        found["spec"]["closed"] = False
        assert up.client.ask("PUT", f"{QUOTAS}/a", found)[0] == 200
        for name in ("p2", "p3"):
            up.client.until(PODS, name, _placed)


def test_a_scenario_for_an_installed_plugin_is_played(tmp_path: Path) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4"}},
    }
    (tmp_path / "s.json").write_text(
        json.dumps({"kind": "List", "items": [node, _of_team("p"), quota("a")]})
    )
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "simulate", str(tmp_path / "s.json"), "-o", "json",
         "--config", "config.yaml"],
        cwd=tmp_path, env=install(tmp_path), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    bound = [each["node"] for each in result["timeline"] if each["event"] == "Bound"]
    assert bound == ["n"] and done.stderr == ""
