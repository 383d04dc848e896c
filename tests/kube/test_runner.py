"""The loop: from pods on a server to pods on nodes."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from harness.fake_api import FakeApi, Fault, Raw
from harness.objects import node, own_pod
from harness.runner_cluster import running
from harness.virtual_time import run, until
from holdfast.api.decode import decode
from holdfast.kube.runner import MAX_UNSENT_BINDS
from holdfast.kube.service import RunnerFigures
from holdfast.scheduler.cluster.events import Updated
from holdfast.scheduler.cluster.records import Phase

FOREVER = float("inf")


def test_pods_of_our_name_are_bound_and_no_others() -> None:
    async def story() -> None:
        api = FakeApi()
        for i in range(3):
            api.create(node(f"n{i}"))
        api.create(own_pod("before"))
        api.create(own_pod("theirs", schedulerName="default-scheduler"))
        async with running(api) as cluster:
            await cluster.quiet()
            api.create(own_pod("after"))
            await cluster.quiet()
            nodes = api.pods()
            assert nodes.pop("theirs") == ""
            assert all(nodes.values()) and len(nodes) == 2
            events = api.all("/apis/events.k8s.io/v1/events")
            assert sorted(e["note"] for e in events) == sorted(
                f"Successfully assigned default/{name} to {where}" for name, where in nodes.items()
            )
            assert (await cluster.difference()).is_empty
            assert all(reflector.lists == 1 for reflector in cluster.runner.reflectors)

    run(story())


def test_an_unschedulable_pod_has_a_message_and_is_bound_once_there_is_capacity() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="1"))
        async with running(api) as cluster:
            api.create(own_pod("big", cpu="2"))
            await cluster.quiet()
            (condition,) = api.get("/api/v1/pods", "big")["status"]["conditions"]
            assert condition["reason"] == "Unschedulable"
            assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
            api.create(node("m", cpu="4"))
            await until(lambda: api.pods()["big"] == "m")

    run(story())


def test_events_refer_to_the_version_of_the_pod_that_was_seen() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="1"))
        async with running(api) as cluster:
            made = api.create(own_pod("big", cpu="2"))
            await cluster.quiet()
            (event,) = api.all("/apis/events.k8s.io/v1/events")
            assert event["regarding"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    run(story())


def test_nothing_is_scheduled_before_the_first_lists_are_fed() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n"))
        api.create(own_pod("p"))
        slow = Fault("GET", "persistentvolumeclaims", status=500, times=FOREVER)
        api.faults.append(slow)
        async with running(api) as cluster:
            await asyncio.sleep(300)
            assert api.binds == []
            assert cluster.runner.unsynced() == ["persistentvolumeclaims: 500: scripted"]
            slow.times = 0
            await until(lambda: api.binds)

    run(story())


def test_nodes_are_known_first_whatever_comes_first() -> None:
    async def story() -> None:
        api = FakeApi()
        for name in ("a", "b", "c"):
            api.create(node(name))
        for name in ("c", "a"):
            on = own_pod(f"on-{name}")
            on["spec"]["nodeName"] = name
            api.create(on)
        api.faults.append(Fault("GET", "/api/v1/nodes", delay=20))
        async with running(api) as cluster:
            await cluster.quiet()
            nodes = cluster.scheduler.cluster.nodes
            assert [nodes.row(name) for name in ("a", "b", "c")] == [0, 1, 2]
            assert (await cluster.difference()).is_empty

    run(story())


def test_a_follower_keeps_itself_informed_and_leads_at_once() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n"))
        async with running(api, leads=False) as cluster:
            api.create(own_pod("p"))
            await asyncio.sleep(60)
            assert api.binds == []
            assert api.count("POST") == api.count("PATCH") == 0
            before = asyncio.get_running_loop().time()
            cluster.runner.fence.open_until(math.inf)
            cluster.runner.wake()
            await until(lambda: api.binds)
            assert asyncio.get_running_loop().time() - before < 0.1

    run(story())


def test_pods_are_bound_while_more_are_being_decided() -> None:
    async def story() -> None:
        api = FakeApi()
        for i in range(20):
            api.create(node(f"n{i}", cpu="64"))
        for i in range(2000):
            api.create(own_pod(f"p{i}"))
        api.faults.append(Fault("POST", "/binding", delay=0.05, times=FOREVER))
        async with running(api) as cluster:
            await until(lambda: api.binds)
            assumed = [p for p in cluster.scheduler.cluster.pods.values() if p.phase is Phase.ASSUMED]
            assert len(assumed) <= MAX_UNSENT_BINDS + 200
            # One that matters more and comes now need not wait for those that were there before.
            urgent = own_pod("urgent")
            urgent["spec"]["priority"] = 1000
            api.create(urgent)
            await until(lambda: api.pods()["urgent"])
            assert len(api.binds) < 1000
            await cluster.quiet()
            assert len(api.binds) == 2001
            assert (await cluster.difference()).is_empty

    run(story())


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_server_does_each_pod_is_bound_once_and_the_cache_is_right(seed: int) -> None:
    async def story() -> None:
        rng = random.Random(seed)
        api = FakeApi()
        for i in range(10):
            api.create(node(f"n{i}", cpu="8"))
        async with running(api) as cluster:
            made: list[Raw] = []
            for step in range(120):
                made.append(api.create(own_pod(f"p{step}", cpu=rng.choice(["100m", "1", "2"]))))
                await asyncio.sleep(rng.random())
                await _something_bad(rng, api, made)
            api.faults.clear()
            api.silent = False
            await asyncio.sleep(200)
            await cluster.quiet()
            difference = await cluster.difference()
            assert difference.is_empty, difference
            names = [name for name, _ in api.binds]
            assert len(names) == len(set(names)), "bound twice"
            used: dict[str, float] = {}
            for raw in api.all("/api/v1/pods"):
                cpu = raw["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                where = raw["spec"].get("nodeName", "")
                used[where] = used.get(where, 0.0) + (0.1 if cpu == "100m" else float(cpu))
            used.pop("", None)
            assert max(used.values()) <= 8.0 + 1e-9
            assert not [p for p in cluster.scheduler.cluster.pods.values() if p.phase is Phase.ASSUMED]

    run(story())


async def _something_bad(rng: random.Random, api: FakeApi, made: list[Raw]) -> None:
    chance = rng.randrange(24)
    if chance == 0:
        api.faults.append(Fault("POST", "/binding", cut="after", times=3))
    elif chance == 1:
        api.faults.append(Fault("POST", "/binding", status=rng.choice([429, 500, 503]), times=4))
    elif chance == 2:
        api.cut_watches()
    elif chance == 3:
        api.expire()
        api.cut_watches()
    elif chance == 4:
        api.send_to_all({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
    elif chance == 5:
        api.faults.append(Fault("WATCH", times=3))
    elif chance == 6:
        api.faults.append(Fault("GET", cut="before", times=5))
    elif chance == 7:
        api.delete(made.pop(rng.randrange(len(made))))
    elif chance == 8:
        # The name again, at once.
        victim = made.pop(rng.randrange(len(made)))
        api.delete(victim)
        made.append(api.create(own_pod(f"{victim['metadata']['name']}-x", cpu="1")))
    elif chance == 9:
        # Somebody else binds one of ours.
        waiting = [name for name, where in api.pods().items() if not where]
        raw = api.get("/api/v1/pods", waiting[0]) if waiting else None
        if raw is not None and raw["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m"}:
            extra = api.create(node(f"extra-{len(api.requests)}", cpu="4"))["metadata"]["name"]
            api.change({**raw, "spec": {**raw["spec"], "nodeName": extra}})
    elif chance == 10:
        api.faults.append(Fault("POST", "/binding", delay=30, cut=rng.choice(["after", ""]), times=2))


def test_a_restart_goes_on_where_the_last_one_stopped() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="1"))
        api.create(own_pod("fits"))
        api.create(own_pod("waits", cpu="2"))
        async with running(api) as cluster:
            await cluster.quiet()
        writes = len(api.bodies)
        written = [body for body in api.bodies if body[0] != "GET"]
        async with running(api) as cluster:
            await cluster.quiet()
            again = [body for body in api.bodies[writes:] if body[0] == "PATCH" or "binding" in body[1]]
            assert again == [], "an unchanged condition is not written again"
            api.create(node("m", cpu="2"))
            await until(lambda: api.pods()["waits"] == "m")
        assert written

    run(story())


def test_stopping_finishes_what_is_on_its_way() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="64"))
        for i in range(50):
            api.create(own_pod(f"p{i}"))
        api.faults.append(Fault("POST", "/binding", delay=1, times=FOREVER))
        async with running(api) as cluster:
            await until(lambda: cluster.api.count("POST"))
            assert await cluster.runner.stop(60)
            decided = [p for p in cluster.scheduler.cluster.pods.values() if p.phase is Phase.ASSIGNED]
            assert len(decided) == len(api.binds) > 0
            assert len(api.all("/apis/events.k8s.io/v1/events")) == len(api.binds)
            assert not [p for p in cluster.scheduler.cluster.pods.values() if p.phase is Phase.ASSUMED]

    run(story())


def test_preemption_frees_capacity() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="2"))
        async with running(api) as cluster:
            low = own_pod("low", cpu="2")
            low["spec"]["priority"] = 1
            api.create(low)
            await cluster.quiet()
            high = own_pod("high", cpu="2")
            high["spec"]["priority"] = 100
            api.create(high)
            await until(lambda: api.pods() == {"high": "n"})
            await cluster.quiet()
            reasons = {e["reason"] for e in api.all("/apis/events.k8s.io/v1/events")}
            assert {"Preempted", "FailedScheduling", "Scheduled"} <= reasons
            assert (await cluster.difference()).is_empty

    run(story())


def test_a_preemption_the_server_refuses_is_tried_again() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="2"))
        async with running(api) as cluster:
            low = own_pod("low", cpu="2")
            low["spec"]["priority"] = 1
            api.create(low)
            await cluster.quiet()
            api.faults.append(Fault("DELETE", "/low", status=403, times=2))
            high = own_pod("high", cpu="2")
            high["spec"]["priority"] = 100
            api.create(high)
            await until(lambda: api.pods() == {"high": "n"}, within=60)
            await cluster.quiet()
            assert api.count("DELETE") == 3
            assert (await cluster.difference()).is_empty

    run(story())


def test_no_figure_is_reported_twice() -> None:
    async def story() -> None:
        async with running(FakeApi()) as cluster:
            await cluster.quiet()
            figures = [
                (sample.name, *sorted(sample.labels.items()))
                for family in RunnerFigures(lambda: cluster.runner, "lease").collect()
                for sample in family.samples
            ]
            assert len(figures) == len(set(figures))

    run(story())


def test_metrics_count_bound_and_pending_pods() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="1"))
        api.create(own_pod("fits"))
        api.create(own_pod("waits", cpu="2"))
        async with running(api) as cluster:
            await cluster.quiet()
            assert cluster.runner._metrics is not None
            text = cluster.runner._metrics.text().decode()
        for line in (
            'scheduler_schedule_attempts_total{profile="holdfast-scheduler",result="scheduled"} 1.0',
            "scheduler_schedule_attempts_total"
            '{profile="holdfast-scheduler",result="unschedulable"} 1.0',
            'scheduler_pending_pods{queue="unschedulable"} 1.0',
            'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="holdfast-scheduler"} 1.0',
            'scheduler_cache_size{type="nodes"} 1.0',
            "scheduler_pod_scheduling_attempts_count 1.0",
            'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1.0',
            "scheduler_queue_incoming_pods_total"
            '{event="ScheduleAttemptFailure",queue="unschedulable"} 1.0',
            "scheduler_preemption_attempts_total 1.0",
            'holdfast_node_limit_to_allocatable_ratio{node="n",resource="cpu"} 0.1',
        ):
            assert line in text.splitlines(), line
        for name in (
            "scheduler_scheduling_attempt_duration_seconds_bucket",
            "scheduler_framework_extension_point_duration_seconds_bucket",
            "scheduler_plugin_execution_duration_seconds_bucket",
        ):
            assert name in text

    run(story())


@pytest.mark.parametrize("now", ["gone", "changed"])
def test_a_pod_that_changed_since_it_was_read_for_its_bind_is_as_the_watch_shows_it(now: str) -> None:
    """The answer to a read can be older than what is known: it must not bring a pod back."""

    async def story() -> None:
        api = FakeApi()
        api.create(node("n", cpu="1"))
        raw = api.create(own_pod("p", cpu="1"))
        async with running(api) as cluster:
            await until(lambda: api.pods()["p"] == "n")
            await cluster.quiet()
            read = decode(api.get("/api/v1/pods", "p") if now == "gone" else raw)
            if now == "gone":
                api.delete(raw)
            await cluster.quiet()
            cluster.runner._write_answered(Updated(read))
            await cluster.quiet()
            assert (await cluster.difference()).is_empty
            api.create(own_pod("next", cpu="1"))
            await cluster.quiet()
            assert api.pods()["next"] == ("n" if now == "gone" else "")

    run(story())
