"""What goes out when."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.builders import make_pod
from harness.fake_api import Fault
from harness.virtual_time import run, until
from holdfast.kube.flow_control import RateLimit
from holdfast.kube.writer.write_queue import Lane, WriteQueue, WriteResult
from holdfast.scheduler.cluster.decisions import Bind, Emit, SetPodScheduled
from kube.writer.writer_fixture import PODS, desk, ref


def test_a_bind_that_waits_holds_up_no_other() -> None:
    async def story() -> None:
        async with desk() as d:
            slow = [d.api.create(make_pod(f"slow{i}").raw()) for i in range(100)]
            fast = [d.api.create(make_pod(f"fast{i}").raw()) for i in range(100)]
            d.api.faults.append(Fault("POST", "/slow", status=429, retry_after=300, times=100))
            d.writer.carry_out([Bind(ref(pod), "n") for pod in slow + fast])
            await until(lambda: sum(name.startswith("fast") for name, _ in d.api.binds) == 100)
            assert asyncio.get_running_loop().time() < 10
            await until(lambda: len(d.api.binds) == 200)

    run(story())


def test_binds_go_before_status_and_status_before_events() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(120)]
            events = [Emit(ref(p), "Normal", "Scheduled", "yes", "Binding") for p in pods[:40]]
            statuses = [SetPodScheduled(ref(p), "Unschedulable", "no") for p in pods[40:80]]
            binds = [Bind(ref(p), "n") for p in pods[80:]]
            await d.do(*events, *statuses, *binds)
            order = [
                {"events": "e", "status": "s", "binding": "b"}[path.rpartition("/")[2]]
                for _, path in d.api.requests
            ]
            assert len(order) == 120
            # Those that had a free slot when they came are on their way; of the rest, binds go first.
            last = {what: len(order) - 1 - order[::-1].index(what) for what in "ebs"}
            assert last["b"] < last["s"] < last["e"]

    run(story())


def test_writes_of_one_object_keep_their_order() -> None:
    async def story() -> None:
        order: list[str] = []
        queue = WriteQueue(lambda error: None, slots=4)

        def write(name: str, waits: int) -> Any:
            async def go() -> WriteResult:
                nonlocal waits
                waits -= 1
                await asyncio.sleep(0.1)
                if waits >= 0:
                    return 5.0
                order.append(name)
                return None

            return go

        for step in range(5):
            for key in "abc":
                queue.submit(Lane(step % 3), key, write(f"{key}{step}", waits=4 - step))
        assert await queue.drain(1000)
        assert [name for name in order if name[0] == "a"] == ["a0", "a1", "a2", "a3", "a4"]
        assert len(order) == 15

    run(story())


def test_a_failing_write_is_reported_and_the_queue_goes_on() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(3)]
            d.api.faults.append(Fault("PATCH", "p1/status", status=403))
            await d.do(*(SetPodScheduled(ref(pod), "Unschedulable", "no") for pod in pods))
            assert d.failed == ["403: scripted"]
            messages = [
                p["status"]["conditions"][0]["message"] for p in d.api.all(PODS) if "status" in p
            ]
            assert messages == ["no", "no"]

    run(story())


def test_no_more_requests_a_second_than_allowed() -> None:
    async def story() -> None:
        async with desk(limit=RateLimit(10, 5)) as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(105)]
            await d.do(*(Bind(ref(pod), "n") for pod in pods))
            assert 9.9 < asyncio.get_running_loop().time() < 10.5

    run(story())
