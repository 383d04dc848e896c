"""A bind is done or not, whatever the server does, and it is known which."""

from __future__ import annotations

import asyncio

import pytest

from harness.builders import make_pod
from harness.fake_api import Fault
from harness.virtual_time import run, until
from holdfast.scheduler.cluster.decisions import Bind, Emit, Preempt
from holdfast.scheduler.cluster.events import BindRefused, Deleted
from kube.writer.writer_fixture import BIND, FOREVER, desk, ref


@pytest.mark.parametrize(
    ("faults", "fed", "bound"),
    [
        ([], ["BindConfirmed"], "n"),
        ([Fault("POST", BIND, status=429, retry_after=7)], ["BindConfirmed"], "n"),
        ([Fault("POST", BIND, status=503, times=2)], ["BindConfirmed"], "n"),
        ([Fault("POST", BIND, cut="before", times=9)], ["BindConfirmed"], "n"),
        # It arrived, and the answer was lost: a second attempt is refused, the pod itself shows it.
        ([Fault("POST", BIND, cut="after")], ["Updated on n"], "n"),
        ([Fault("POST", BIND, cut="after", delay=60)], ["Updated on n"], "n"),
        (
            [Fault("POST", BIND, cut="after"), Fault("GET", cut="before", times=3)],
            ["Updated on n"],
            "n",
        ),
        ([Fault("POST", BIND, delay=60)], ["BindConfirmed"], "n"),
        # The server answers for long enough that it cannot.
        ([Fault("POST", BIND, status=500, times=FOREVER)], ["Updated", "BindRefused: scripted"], ""),
        ([Fault("POST", BIND, status=403)], ["Updated", "BindRefused: scripted"], ""),
    ],
)
def test_a_bind_is_known_to_be_done_or_not(faults: list[Fault], fed: list[str], bound: str) -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults += faults
            await d.do(Bind(ref(pod), "n"))
            assert d.fed_events() == fed
            assert d.api.pods() == {"p": bound}
            assert d.api.binds.count(("p", "n")) <= 1

    run(story())


@pytest.mark.parametrize("after", [0.5, 3.0, 12.0, 60.0])
def test_a_bind_that_is_carried_out_after_an_error_is_noticed(after: float) -> None:
    """The server answers four times that it cannot, and then it does: the capacity is taken."""

    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("POST", BIND, status=504, times=FOREVER))
            d.writer.carry_out([Bind(ref(pod), "n")])
            await until(lambda: d.api.count("POST", BIND) == 4)
            await asyncio.sleep(after)
            assert d.fed == []
            target = {"metadata": {"uid": pod["metadata"]["uid"]}, "target": {"name": "n"}}
            d.api._bind("/api/v1/pods", ("default", "p"), target)
            assert await d.writer.queue.drain(3600)
            assert d.fed_events() == ["Updated on n"]

    run(story())


def test_a_bind_that_may_still_be_carried_out_is_withdrawn() -> None:
    """The pod is changed, so that a bind for the version before is refused."""

    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("POST", BIND, status=504, times=FOREVER))
            await d.do(Bind(ref(pod), "n"))
            assert d.fed_events() == ["Updated", "BindRefused: scripted"]
            (first, *_) = [body for _, path, body in d.api.bodies if path.endswith("/status")]
            assert first["status"]["conditions"][0]["reason"] == "SchedulerError"
            found = d.api.get("/api/v1/pods", "p")
            assert found["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]

    run(story())


def test_a_pod_that_others_are_bound_with_keeps_its_node_as_its_nominated_node() -> None:
    """A scheduler that takes over meanwhile knows its place."""

    async def story() -> None:
        async with desk() as d:
            alone, member = d.api.create(make_pod("p").raw()), d.api.create(make_pod("m").raw())
            d.api.faults.append(Fault("POST", BIND, status=504, times=FOREVER))
            await d.do(Bind(ref(alone), "n"), Bind(ref(member), "n", keeps_place=True))
            found = {name: d.api.get("/api/v1/pods", name)["status"] for name in "pm"}
            assert found["m"]["nominatedNodeName"] == "n"
            assert "nominatedNodeName" not in found["p"]

    run(story())


@pytest.mark.parametrize(
    ("fault", "is_transient"),
    [
        (Fault("POST", BIND, status=500, times=FOREVER), True),
        (Fault("POST", BIND, status=504, times=FOREVER), True),
        (Fault("POST", BIND, status=409, times=FOREVER), True),  # though the pod has no node
        (Fault("POST", BIND, status=400), False),
        (Fault("POST", BIND, status=403), False),
        (Fault("POST", BIND, status=404), False),
        (Fault("POST", BIND, status=422), False),
    ],
)
def test_a_failed_bind_may_succeed_later_or_not(fault: Fault, is_transient: bool) -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(fault)
            await d.do(Bind(ref(pod), "n"))
            (refused,) = [event for event in d.fed if isinstance(event, BindRefused)]
            assert refused.transient is is_transient

    run(story())


def test_a_pod_bound_by_someone_else_is_seen_where_it_is() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").on("theirs").raw())
            await d.do(Bind(ref(pod), "ours"))
            assert d.fed_events() == ["Updated on theirs"]

    run(story())


def test_a_pod_deleted_in_flight_is_taken_back() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.delete(pod)
            await d.do(Bind(ref(pod), "n"))
            assert d.fed_events() == ["Deleted"]
            assert isinstance(d.fed[0], Deleted)
            assert d.fed[0].object.metadata.uid == pod["metadata"]["uid"]

    run(story())


def test_a_namesake_is_not_bound() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.delete(pod)
            d.api.create(make_pod("p").raw())
            await d.do(Bind(ref(pod), "n"))
            assert d.fed_events() == ["Deleted"]
            assert d.api.pods() == {"p": ""}

    run(story())


def test_a_pod_on_its_way_out_is_given_back() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").deleted().raw())
            await d.do(Bind(ref(pod), "n"))
            assert d.fed_events()[0] == "Updated"
            assert "is being deleted" in d.fed_events()[1]

    run(story())


def test_binds_stay_assumed_while_the_server_is_away_and_all_arrive_after() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(200)]
            away = Fault(cut="before", times=FOREVER)
            d.api.faults.append(away)
            d.writer.carry_out([Bind(ref(pod), "n") for pod in pods])
            await asyncio.sleep(600)
            assert d.fed == [] and len(d.writer.queue) == 200
            away.times = 0
            await until(lambda: len(d.writer.queue) == 0)
            assert d.fed_events() == ["BindConfirmed"] * 200
            assert len(d.api.binds) == 200

    run(story())


def test_a_bind_brings_its_annotations() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            await d.do(Bind(ref(pod), "n", {"a": "b"}))
            (body,) = [body for method, path, body in d.api.bodies if path.endswith(BIND)]
            assert body["metadata"]["annotations"] == {"a": "b"}

    run(story())


def test_nothing_is_written_after_leadership_is_lost() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(64)]
            d.fence.open_until(5.0)
            d.api.faults.append(Fault("POST", BIND, status=503, times=FOREVER, retry_after=4))
            d.writer.carry_out([Bind(ref(pod), "n") for pod in pods])
            d.writer.carry_out([Preempt(ref(pods[0]), ref(pods[1]), "n", "")])
            d.writer.carry_out([Emit(ref(pods[0]), "Normal", "Scheduled", "x", "Binding")])
            await asyncio.sleep(5.0)
            sent = len(d.api.requests)
            d.api.faults.clear()
            assert await d.writer.queue.drain(1000)
            assert len(d.api.requests) == sent
            assert d.api.binds == []

    run(story())


def test_a_stopping_writer_knows_whether_a_bind_may_still_be_carried_out() -> None:
    """The lease is kept until then: the next leader would give the capacity to another pod."""

    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("POST", BIND, status=504, times=FOREVER))
            d.writer.carry_out([Bind(ref(pod), "n")])
            await until(lambda: d.api.count("POST", BIND) == 3)
            start = asyncio.get_running_loop().time()
            assert not await d.writer.finish(5)
            assert asyncio.get_running_loop().time() - start < 1, "there is no use in waiting"
            assert await d.writer.finish(3600)
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            start = asyncio.get_running_loop().time()
            await d.do(Bind(ref(pod), "n"))
            assert await d.writer.finish(5)
            assert asyncio.get_running_loop().time() - start < 1

    run(story())
