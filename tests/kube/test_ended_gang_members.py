"""Members of jobs that did their work, on a server that shows pods that ended only to those who ask."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

from harness.fake_api import FakeApi, Raw
from harness.objects import node, own_pod
from harness.runner_cluster import running
from harness.virtual_time import run, until

VOLCANO = "scheduling.volcano.sh/v1beta1"
GROUPS = f"/apis/{VOLCANO}/podgroups"


def group(least: int) -> Raw:
    metadata = {"name": "g", "namespace": "default"}
    return {
        "apiVersion": VOLCANO,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": least},
    }


def member(name: str) -> Raw:
    raw = own_pod(name)
    raw["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = "g"
    return raw


def ends(api: FakeApi, name: str, phase: str = "Succeeded") -> None:
    raw = deepcopy(api.get("/api/v1/pods", name))
    raw["status"] = {"phase": phase}
    api.change(raw)


def prepared() -> FakeApi:
    api = FakeApi()
    api.create(node("n"))
    api.create(group(2))
    api.create(member("a"))
    api.create(member("b"))
    return api


def status(api: FakeApi) -> Raw:
    found: Raw = api.get(GROUPS, "g").get("status", {})
    return found


def test_they_are_counted_and_a_further_member_is_placed() -> None:
    async def story() -> None:
        api = prepared()
        async with running(api) as cluster:
            await until(lambda: len(api.binds) == 2)
            ends(api, "a")
            ends(api, "b", "Failed")
            await cluster.quiet()
            assert (status(api)["succeeded"], status(api)["failed"]) == (1, 1)
            api.create(member("c"))
            await until(lambda: api.pods()["c"])
            ends(api, "c")
            await cluster.quiet()
            assert status(api)["phase"] == "Completed"
            assert (await cluster.difference()).is_empty

    run(story())


@pytest.mark.parametrize("gone", [False, True])
def test_after_a_restart_they_are_counted_while_they_are_there(gone: bool) -> None:
    async def story() -> None:
        api = prepared()
        async with running(api):
            await until(lambda: len(api.binds) == 2)
        ends(api, "a")
        ends(api, "b")
        async with running(api) as cluster:
            await cluster.quiet()
            assert status(api)["succeeded"] == 2
        if gone:
            api.delete(api.get("/api/v1/pods", "a"))
        async with running(api) as cluster:
            api.create(member("c"))
            await cluster.quiet()
            assert status(api)["succeeded"] == (1 if gone else 2)
            assert api.pods()["c"] == "n"

    run(story())


@pytest.mark.parametrize("seen", [True, False])
def test_those_that_are_deleted_count_no_more(seen: bool) -> None:
    """Whether or not somebody looked when they went."""

    async def story() -> None:
        api = prepared()
        async with running(api) as cluster:
            await until(lambda: len(api.binds) == 2)
            ends(api, "a")
            ends(api, "b")
            await cluster.quiet()
            for name in ("a", "b"):
                api.delete(api.get("/api/v1/pods", name), silently=not seen)
            if not seen:
                api.expire()
                api.end_watches()
                await asyncio.sleep(120)
            await cluster.quiet()
            api.create(member("c"))
            await cluster.quiet()
            assert api.pods()["c"] == ""  # a gang again
            api.create(member("d"))
            await until(lambda: api.pods()["c"] and api.pods()["d"])

    run(story())


def test_late_news_of_one_does_not_touch_another_of_its_name() -> None:
    async def story() -> None:
        api = prepared()
        async with running(api) as cluster:
            await until(lambda: len(api.binds) == 2)
            old = deepcopy(api.get("/api/v1/pods", "a"))
            old["status"] = {"phase": "Succeeded"}
            api.delete(api.get("/api/v1/pods", "a"))
            api.create(member("a"))
            await until(lambda: api.pods()["a"])
            await cluster.quiet()
            watch = next(q for q in api.watches if q.path == "/api/v1/pods" and q.is_about_the_ended)
            watch.send("ADDED", old)
            watch.send("DELETED", old)
            await cluster.quiet()
            assert (await cluster.difference()).is_empty
            assert status(api).get("succeeded", 0) == 0

    run(story())


def test_members_that_are_being_deleted_do_not_count() -> None:
    """A whole job is preempted and its pods are recreated one by one: none of them starts alone."""

    async def story() -> None:
        api = prepared()
        async with running(api) as cluster:
            await until(lambda: len(api.binds) == 2)
            for name in ("a", "b"):
                raw = deepcopy(api.get("/api/v1/pods", name))
                raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                api.change(raw)
            api.create(member("c"))
            await asyncio.sleep(60)
            assert api.pods()["c"] == ""
            api.delete(api.get("/api/v1/pods", "a"))
            await asyncio.sleep(60)
            assert api.pods()["c"] == ""
            api.create(member("d"))
            await until(lambda: len(api.binds) == 4)
            await cluster.quiet()

    run(story())


def test_two_preemptors_at_once_do_not_leave_a_job_with_too_few() -> None:
    """Each of them alone could take a member the job can spare; both together cannot."""

    async def story() -> None:
        api = FakeApi()
        for name in ("n0", "n1", "n2"):
            api.create(node(name, cpu="1"))
        api.create(group(2))
        for name in ("a", "b", "c"):
            raw = member(name)
            raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
            api.create(raw)
        async with running(api) as cluster:
            await until(lambda: len(api.binds) == 3)
            await cluster.quiet()
            cluster.runner.follow()
            for name in ("high0", "high1"):
                raw = own_pod(name, cpu="1")
                raw["spec"]["priority"] = 100
                api.create(raw)
            await asyncio.sleep(1)
            await cluster.runner.lead(resync=False)
            await until(lambda: len(api.binds) == 5)
            await cluster.quiet()
            assert set(api.pods()) == {"high0", "high1"}

    run(story())
