"""What does not converge is logged, once for each object and with its story, by `run` and by `up`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from harness.embedded_cluster import SteppedCluster
from harness.fake_api import FakeApi
from harness.objects import node, own_pod
from harness.runner_cluster import running
from harness.virtual_time import run, until
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.actions.convergence import NOT_CONVERGING
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.framework.interface import ClusterPlugin, Nomination, Trial
from holdfast.scheduler.plugins import registry

EVENT = "not converging"


class Stirring(ClusterPlugin):
    """Does nothing for a pod, and wakes everybody up each time it is asked."""

    name = "Stirring"
    is_broken: ClassVar[bool] = True

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        if Stirring.is_broken:
            self.cluster.changed(Change.POD_LEFT)
        return Nomination()


@pytest.fixture(autouse=True)
def broken() -> Iterator[None]:
    Stirring.is_broken = True
    yield


def check(line: dict[str, Any], name: str) -> None:
    assert line["object"] == f"Pod/default/{name}"
    assert "in one round" in line["message"]
    story = line["story"]
    assert all(isinstance(each, str) for each in story) and len(story) <= 20
    assert story[0].endswith("added") and NOT_CONVERGING in story[-1]


def test_run_logs_it() -> None:
    async def story() -> None:
        lines: list[dict[str, Any]] = []

        def log(event: str, **particulars: Any) -> None:
            if event == EVENT:
                lines.append(particulars)

        api = FakeApi()
        api.create(node("n", cpu="1"))
        async with running(api, plugins=(Stirring,), log=log):
            api.create(own_pod("big", cpu="2"))
            await until(lambda: bool(lines))
            Stirring.is_broken = False
            check(lines[0], "big")
            assert lines[0]["level"] == "warning"
            count = len(lines)
            api.create(node("m", cpu="4"))
            await until(lambda: api.pods()["big"] == "m")
            assert len(lines) == count

    run(story())


def test_up_logs_it() -> None:
    plugins = registry()
    plugins.add(Stirring)
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": Stirring.name}]}}}
    mapping = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    driven = SteppedCluster(setup=SchedulerFactory(load(mapping, plugins.implements()), plugins))
    driven.create_node("n", cpu="1")
    with capture_logs() as logged:
        big = driven.create_pod("big", cpu="2")
        Stirring.is_broken = False
        driven.create_node("m", cpu="4")
        driven.after(2)
    lines = [dict(line) for line in logged if line["event"] == EVENT]
    assert len(lines) == 1
    check(lines[0], "big")
    assert lines[0]["log_level"] == "warning"
    raw = driven.store.get(big)
    assert raw is not None and raw["spec"]["nodeName"] == "m"
