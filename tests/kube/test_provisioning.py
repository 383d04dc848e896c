"""Reservations made on demand through an API server: by the scheduler itself, and by a provisioner."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from harness.fake_api import FakeApi, Fault, Raw
from harness.fake_client import FakeClient
from harness.objects import node, own_pod
from harness.runner_cluster import running
from harness.virtual_time import LoopClock, run, until
from holdfast.kube.leader_election import Fence
from holdfast.kube.provisioner import ProvisionerRunner

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
PODS = "/api/v1/pods"
PREFIX = "scheduling.koordinator.sh/"
ID, ERROR = f"{PREFIX}reservation-id", f"{PREFIX}reservation-provision-error"
ALLOCATED = f"{PREFIX}reservation-allocated"


def asking(name: str, id: str = "") -> Raw:
    raw = own_pod(name, "1")
    annotations = {
        f"{PREFIX}reservation-template": '{"owners": [{"labelSelector": {}}]}',
    }
    if id:
        requirement = {"labels": {ID: id}, "resources": {"cpu": "1"}}
        annotations[f"{PREFIX}new-reservation-requirement"] = json.dumps(requirement)
    raw["metadata"]["annotations"] = annotations
    return raw


@asynccontextmanager
async def provisioner(api: FakeApi, leads: bool = True) -> AsyncIterator[ProvisionerRunner]:
    clock = LoopClock()
    fence = Fence(clock.elapsed)
    if leads:
        fence.open_until(math.inf)
    runner = ProvisionerRunner(FakeClient(api), fence, clock, stream=False, rng=random.Random(3))
    task = asyncio.create_task(runner.run())
    try:
        yield runner
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.close()


def ids(api: FakeApi) -> list[str]:
    return sorted(made["metadata"]["labels"][ID] for made in api.all(RESERVATIONS))


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([], id="all is well"),
        pytest.param([Fault("PATCH", status=503, times=3)], id="slow to annotate"),
        pytest.param([Fault("POST", "/reservations", status=503, times=3)], id="slow to create"),
        pytest.param([Fault("POST", "/reservations", cut="after")], id="created without an answer"),
    ],
)
def test_the_scheduler_makes_them_itself(faults: list[Fault]) -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n1"))
        api.faults += faults
        async with running(api) as cluster:
            for name in ("a", "b"):
                api.create(asking(name))
            await cluster.quiet()
            await until(lambda: set(api.pods().values()) == {"n1"})
            await cluster.quiet()
        assert len(ids(api)) == len(set(ids(api))) == 2
        drawn = {json.loads(p["metadata"]["annotations"][ALLOCATED])["name"] for p in api.all(PODS)}
        assert drawn == {made["metadata"]["name"] for made in api.all(RESERVATIONS)}

    run(story())


def test_what_is_set_aside_is_no_difference_to_the_server() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n1"))
        api.faults.append(Fault("POST", "/reservations", status=503, times=math.inf))
        async with running(api) as cluster:
            api.create(asking("p"))
            await until(lambda: cluster.scheduler.cluster.virtuals.by_id)
            difference = await cluster.difference()
            assert difference.redundant_reservations == []
            assert difference.inconsistent == []

    run(story())


def test_a_provisioner_makes_one_for_each_id() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(asking("before", "a"))
        api.create(asking("twin", "a"))
        api.create(asking("not yet"))
        async with provisioner(api):
            await until(lambda: ids(api) == ["a"])
            api.create(asking("after", "b"))
            await until(lambda: ids(api) == ["a", "b"])
        async with provisioner(api):
            api.create(asking("later", "c"))
            await until(lambda: ids(api) == ["a", "b", "c"])
        assert api.count("POST", "/reservations") == 3

    run(story())


def test_one_that_does_not_lead_makes_none() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(asking("p", "a"))
        async with provisioner(api, leads=False) as runner:
            await until(lambda: not runner.unsynced())
            await asyncio.sleep(60)
        assert ids(api) == []

    run(story())


def test_a_provisioning_error_is_annotated_and_retried_once_it_is_removed() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(asking("p", "a"))
        api.faults.append(Fault("POST", "/reservations", status=422))

        def provision_error() -> str:
            return str(api.all(PODS)[0]["metadata"]["annotations"].get(ERROR, ""))

        async with provisioner(api) as runner:
            await until(provision_error)
            assert "scripted" in provision_error()
            await asyncio.sleep(60)
            assert (ids(api), runner.provisioner.failures) == ([], 1)
            raw = api.all(PODS)[0]
            kept = {k: v for k, v in raw["metadata"]["annotations"].items() if k != ERROR}
            api.change({**raw, "metadata": {**raw["metadata"], "annotations": kept}})
            await until(lambda: ids(api) == ["a"])

    run(story())
