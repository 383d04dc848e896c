"""Victims of preemption."""

from __future__ import annotations

import asyncio

import pytest

from harness.builders import make_pod
from harness.fake_api import Fault
from harness.virtual_time import run
from holdfast.api.meta import ObjectMeta, ObjectReference
from holdfast.api.names import PREEMPTOR_UID
from holdfast.api.reservation import Reservation, ReservationOwner, ReservationSpec
from holdfast.scheduler.cluster.decisions import Bind, CreateReservation, Decision, ObjectRef, Preempt
from holdfast.scheduler.cluster.events import WriteRefused
from kube.writer.writer_fixture import BIND, PODS, Desk, desk, ref

PREEMPTOR = ObjectRef("Pod", "default", "p", "uid-p")


def test_a_victim_gets_its_condition_before_it_is_deleted() -> None:
    async def story() -> None:
        async with desk() as d:
            victim, namesake = (d.api.create(make_pod(n).raw()) for n in ("v", "w"))
            d.api.faults.append(Fault("DELETE", status=503))
            await d.do(Preempt(ref(victim), PREEMPTOR, "n", "preempting"))
            assert "v" not in d.api.pods()
            assert [m for m, _ in d.api.requests] == ["PATCH", "DELETE", "DELETE"]
            condition = d.api.bodies[0][2]["status"]["conditions"][0]
            assert (condition["type"], condition["reason"]) == (
                "DisruptionTarget",
                "PreemptionByScheduler",
            )
            d.api.delete(namesake)
            other = d.api.create(make_pod("w").raw())
            await d.do(Preempt(ref(namesake), PREEMPTOR, "n", "preempting"))
            assert d.api.get(PODS, "w")["metadata"]["uid"] == other["metadata"]["uid"]
            assert d.failed == []

    run(story())


@pytest.mark.parametrize(
    ("faults", "fed", "failed"),
    [
        ([Fault("DELETE", status=403)], ["Updated on n", "PreemptRefused: 403: scripted"], True),
        ([Fault("PATCH", status=403)], ["Updated on n", "PreemptRefused: 403: scripted"], True),
        # For longer than it is worth to try.
        (
            [Fault("DELETE", status=500, times=8)],
            ["Updated on n", "PreemptRefused: 500: scripted"],
            True,
        ),
        # Nor can it be looked at for a while.
        (
            [
                Fault("DELETE", status=403),
                Fault("GET", cut="before", times=3),
                Fault("GET", status=503),
            ],
            ["Updated on n", "PreemptRefused: 403: scripted"],
            True,
        ),
        ([Fault("DELETE", status=409)], ["Updated on n", "PreemptRefused: 409: scripted"], True),
        ([Fault("DELETE", status=404)], [], False),
        ([Fault("DELETE", status=503, times=3)], [], False),
        ([Fault("DELETE", cut="after")], [], False),
    ],
)
def test_a_victim_that_cannot_be_deleted_stays_and_its_preemptor_is_tried_again(
    faults: list[Fault], fed: list[str], failed: bool
) -> None:
    async def story() -> None:
        async with desk() as d:
            victim = d.api.create(make_pod("v").on("n").raw())
            d.api.faults += faults
            await d.do(Preempt(ref(victim), PREEMPTOR, "n", "room"))
            assert d.fed_events() == fed
            assert bool(d.failed) is failed
            refused = [event.decision for event in d.fed if isinstance(event, WriteRefused)]
            assert refused == [Preempt(ref(victim), PREEMPTOR, "n", "room")] * failed

    run(story())


@pytest.mark.parametrize("rounds", [1, 3])
def test_none_of_a_job_is_deleted_while_another_has_no_condition(rounds: int) -> None:
    """They are victims of several preemptors, decided at once or one after the other; the condition of
    one whose bind has not been answered comes after that, and it was decided twice that it goes."""

    async def story() -> None:
        async with desk() as d:
            job = [d.api.create(make_pod(f"t{i}").raw()) for i in range(3)]
            alone = d.api.create(make_pod("alone").raw())
            d.api.faults.append(Fault("POST", BIND, status=503, times=3, retry_after=10))
            d.writer.carry_out([Bind(ref(job[1]), "n")])
            victims: list[Decision] = [
                Preempt(ref(job[1]), PREEMPTOR, "n", "", "job"),
                Preempt(ref(job[0]), PREEMPTOR, "n", "", "job"),
                Preempt(ref(job[2]), ref(alone), "n", "", "job"),
                Preempt(ref(job[2]), ref(alone), "n", "", "job"),
                Preempt(ref(alone), PREEMPTOR, "n", ""),
            ]
            for i in range(rounds):
                d.writer.carry_out(victims[i::rounds])
                await asyncio.sleep(1.0)
            assert set(d.api.pods()) == {"t0", "t1", "t2"}
            assert await d.writer.queue.drain(3600)
            assert d.api.pods() == {}
            steps = [(m, path.split("/")[6]) for m, path in d.api.requests if "/pods/t" in path]
            marked = max(steps.index(("PATCH", name)) for name in ("t0", "t1", "t2"))
            assert marked < min(i for i, (method, _) in enumerate(steps) if method == "DELETE")

    run(story())


def test_a_hold_is_created_when_all_of_a_job_that_goes_have_their_conditions() -> None:
    """Were the scheduler to end before, it would keep a member without a node from its place."""

    async def story() -> None:
        async with desk() as d:
            job = [d.api.create(make_pod(f"t{i}").raw()) for i in range(2)]
            alone = d.api.create(make_pod("alone").raw())
            d.api.faults.append(Fault("POST", BIND, status=503, times=3, retry_after=10))
            d.writer.carry_out([Bind(ref(job[1]), "n")])
            victims = [Preempt(ref(pod), PREEMPTOR, "n", "", "job") for pod in job]
            other = ObjectRef("Pod", "default", "q", "uid-q")
            rest = [Preempt(ref(alone), other, "n", "")]
            d.writer.carry_out([*victims, _hold(PREEMPTOR), *rest, _hold(other)])
            await asyncio.sleep(1.0)
            assert _holds(d) == ["for-q"]
            assert await d.writer.queue.drain(3600)
            assert _holds(d) == ["for-q", "for-p"]

    run(story())


def _holds(d: Desk) -> list[str]:
    posts = [body for method, path, body in d.api.bodies if method == "POST" and "/reserv" in path]
    return [body["metadata"]["name"] for body in posts]


def _hold(preemptor: ObjectRef) -> CreateReservation:
    owner = ReservationOwner(object=ObjectReference(uid=preemptor.uid))
    spec = ReservationSpec(owners=[owner], allocate_once=True, pre_allocation=True)
    meta = ObjectMeta(name=f"for-{preemptor.name}", labels={PREEMPTOR_UID: preemptor.uid})
    return CreateReservation(Reservation(metadata=meta, spec=spec))
