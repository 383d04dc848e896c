"""The dashboard of `holdfast run`, on the port of its metrics; `holdfast up` is the API server."""

from __future__ import annotations

import gc
import json
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from harness.holdfast_process import HoldfastProcess
from harness.objects import pod
from harness.up_process import PODS, Running
from holdfast.cli.dashboards import RunnerDashboard
from holdfast.kube.runner import Runner
from web.large_cluster import large_scheduler


def test_run_serves_its_view_of_the_cluster(tmp_path: Path) -> None:
    with Running(tmp_path, "--nodes", "2", "--no-dashboard") as up:
        up.client.create(PODS, pod("huge", "40", schedulerName="default-scheduler"))
        process = HoldfastProcess(up.kubeconfig, tmp_path / "run.log")
        try:
            give_up_at = time.monotonic() + 60
            while not process.is_ready():
                assert time.monotonic() < give_up_at, (tmp_path / "run.log").read_text()
                time.sleep(0.05)
            status, text = process.get("/dashboard/api/snapshot")
            assert status == 200
            found = json.loads(text)
            assert found["nodes"]["name"] == ["node-1", "node-2"]
            assert found["role"] in ("leading", "standby")
            assert found["cluster"].startswith("https://127.0.0.1:")
            assert "assets/app.js" in process.get("/dashboard/")[1]
            _, text = process.get("/dashboard/api/explain?kind=pod&namespace=default&name=huge")
            assert "Insufficient cpu" in text
        finally:
            process.process.terminate()
            assert process.process.wait(30) == 0


def test_an_old_runner_is_forgotten() -> None:
    """Nothing may refer to it when there is a new one: each is as large as the cluster."""
    dashboard = RunnerDashboard("https://server", None, None)
    scheduler = large_scheduler(nodes=1, pods=1, reservations=0)
    runner = cast(Runner, SimpleNamespace(scheduler=scheduler))
    kept = weakref.ref(scheduler)
    dashboard.runner_changed(runner)
    dashboard.runner_changed(None)
    del runner, scheduler
    gc.collect()
    assert kept() is None
