"""The commands about a cluster on a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.builders import make_node, make_pod
from harness.holdfast_process import holdfast, wait_until
from harness.served_cluster import Done, call
from realserver.server import RealServer

Json = dict[str, Any]


def test_reserve_get_and_explain(real_cluster: RealServer, tmp_path: Path) -> None:
    kubeconfig = str(real_cluster.kubeconfig("holdfast"))

    def ask(*arguments: str) -> Done:
        return call(*arguments, "--kubeconfig", kubeconfig)

    def found(*arguments: str) -> Json:
        done = ask(*arguments, "-o", "json")
        assert done.status == 0, done.err
        read: Json = json.loads(done.out)
        return read

    for name in ("n1", "n2"):
        raw = make_node(name).allocatable(cpu="4", memory="8Gi", pods=10).raw()
        del raw["metadata"]["uid"]
        real_cluster.client.create(raw)
    with holdfast(Path(kubeconfig), tmp_path / "log", "--install-crds", "--no-leader-elect"):
        wait_until(lambda: ask("get", "rsv").status == 0)
        made = ask("reserve", "--cpu", "3", "--replicas", "2", "--owner", "app=web", "--name", "cli")
        assert made.status == 0, made.err
        wait_until(
            lambda: [row[1] for row in ask("get", "rsv", "--no-headers").rows()] == ["Available"] * 2
        )
        for name, app, cpu in (("mine", "web", "2"), ("theirs", "other", "3")):
            raw = make_pod(name).cpu(cpu).labels({"app": app}).raw()
            del raw["metadata"]["uid"]
            raw["spec"]["schedulerName"] = "holdfast-scheduler"
            real_cluster.client.create(raw)
        wait_until(lambda: bool(found("explain", "pod", "mine")["reservation"]))
        wait_until(lambda: bool(found("explain", "pod", "theirs")["told"]))
    theirs = found("explain", "pod", "theirs")
    assert theirs["told"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    where = found("explain", "pod", "mine")["node"]
    assert f"closest: {where}, short of 1 cpu" in theirs["help"]
    held = {row[0]: row[3] for row in ask("get", "nodes", "--no-headers").rows()}
    assert held.pop(where) == "0", "the used one has ended, and holds nothing"
    assert list(held.values()) == ["3"]
    assert "Successfully assigned cli-1 to n" in ask("describe", "rsv", "cli-1").out
    real_cluster.client.request("DELETE", "/apis/scheduling.koordinator.sh/v1alpha1/reservations")
