"""`holdfast run` on a real API server, with a plugin that reads a custom resource."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.builders import make_node, make_pod
from harness.holdfast_process import HoldfastProcess, holdfast, wait_until
from harness.team_quotas import install, quota, quota_definition
from realserver.accounts import as_the_account, documents, ensure
from realserver.client import Json, RefusedError
from realserver.server import RealServer

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/teamquotas.example.com"


def _pod(name: str, **labels: str) -> Json:
    raw = make_pod(name).cpu("1").raw()
    del raw["metadata"]["uid"]
    raw["metadata"]["labels"] = labels
    raw["spec"]["schedulerName"] = "holdfast-scheduler"
    return raw


def _define(server: RealServer) -> None:
    server.client.request("POST", DEFINITION.rpartition("/")[0], quota_definition())

    def is_established() -> bool:
        status = server.client.request("GET", DEFINITION).get("status") or {}
        found = status.get("conditions") or ()
        return any((each["type"], each["status"]) == ("Established", "True") for each in found)

    wait_until(is_established)


def _undefine(server: RealServer) -> None:
    try:
        server.client.request("DELETE", DEFINITION)
    except RefusedError as error:
        assert error.status == 404

    def is_gone() -> bool:
        try:
            server.client.request("GET", DEFINITION)
        except RefusedError:
            return True
        return False

    wait_until(is_gone)


def test_its_definition_comes_goes_and_comes_again(
    real_cluster: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.api.crds import definitions

    client = real_cluster.client
    monkeypatch.setenv("PYTHONPATH", install(tmp_path)["PYTHONPATH"])
    config = str(tmp_path / "config.yaml")
    _undefine(real_cluster)
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml"), *definitions()):
        ensure(real_cluster, obj)
    client.create(make_node("n1").allocatable(cpu="8", memory="8Gi", pods=110).raw())
    account = as_the_account(real_cluster, tmp_path)
    flags = ("--config", config, "--no-leader-elect")

    # Without the rule for it nothing is decided, and the rule is named.
    client.create(_pod("free"))
    run = HoldfastProcess(account, tmp_path / "forbidden.log", *flags)
    try:
        run.wait_until(lambda: "resources [teamquotas]" in run.get("/readyz?verbose")[1])
        assert not run.is_ready()
        assert any("plugin TeamQuotas reads it" in str(line) for line in run.events())
        assert "nodeName" not in client.get(_pod("free"))["spec"]
        # It becomes ready once it is given, though there is no definition yet.
        printed = subprocess.run(
            [sys.executable, "-m", "holdfast", "config", "rbac", config],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        for obj in yaml.safe_load_all(printed.stdout):
            ensure(real_cluster, obj)
        run.wait_until(run.is_ready)
        run.wait_until(lambda: client.get(_pod("free"))["spec"].get("nodeName"))
        assert run.stop() == 0
    finally:
        run.process.kill()
        run.process.wait()

    def condition(name: str) -> str:
        found = client.get(_pod(name)).get("status", {}).get("conditions") or ()
        return " ".join(each.get("message") or "" for each in found)

    def is_bound(name: str) -> bool:
        return bool(client.get(_pod(name))["spec"].get("nodeName"))

    with holdfast(account, tmp_path / "log", *flags) as run:
        client.create(_pod("p1", team="a"))
        run.wait_until(lambda: "no TeamQuota a" in condition("p1"))
        _define(real_cluster)
        client.create(quota("a", maxCPU=8))
        run.wait_until(lambda: is_bound("p1"))
        _undefine(real_cluster)
        client.create(_pod("p2", team="a"))
        run.wait_until(lambda: "no TeamQuota a" in condition("p2"))
        _define(real_cluster)
        closed = client.create(quota("a", maxCPU=8, closed=True))
        run.wait_until(lambda: "TeamQuota a is closed" in condition("p2"))
        client.patch(closed, {"spec": {"closed": False}})
        run.wait_until(lambda: is_bound("p2"))
        assert run.stop() == 0
        lines = [line for line in run.events() if line.get("resource") == "teamquotas.v1.example.com"]
        absences = [line["event"] for line in lines if line["event"] == "reflector absent"]
        assert 1 <= len(absences) <= 2  # the second absence may be too short to be seen
        assert not any("Traceback" in str(line) for line in lines)
    _undefine(real_cluster)
