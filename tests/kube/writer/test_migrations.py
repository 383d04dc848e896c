"""What becomes of decisions about moving pods, whatever the server does."""

from __future__ import annotations

import pytest

from harness.builders import make_pod
from harness.fake_api import Fault, Raw
from harness.virtual_time import run
from holdfast.api.meta import ObjectMeta, ObjectReference
from holdfast.api.reservation import (
    PodMigrationJobStatus,
    Reservation,
    ReservationOwner,
    ReservationSpec,
)
from holdfast.kube.errors import ApiError
from holdfast.scheduler.cluster.decisions import (
    CreateReservation,
    Emit,
    Evict,
    SetMigrationStatus,
    SpecifyMigration,
)
from holdfast.scheduler.cluster.events import write_refused
from kube.writer.writer_fixture import desk, ref

JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def job() -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "move"},
        "spec": {
            "podRef": {"namespace": "default", "name": "p"},
            "reservationOptions": {"template": {}},
        },
    }


def wanted() -> CreateReservation:
    made = Reservation(
        api_version="scheduling.koordinator.sh/v1alpha1",
        kind="Reservation",
        metadata=ObjectMeta(name="room"),
        spec=ReservationSpec(
            template={"spec": {}}, owners=[ReservationOwner(object=ObjectReference(name="p"))]
        ),
    )
    return CreateReservation(made)


@pytest.mark.parametrize(
    ("faults", "refusals", "made"),
    [
        pytest.param([], [], True, id="granted"),
        pytest.param([Fault("POST", status=503, times=3)], [], True, id="late"),
        pytest.param([Fault("POST", cut="after")], [], True, id="made, but there was no answer"),
        pytest.param(
            [Fault("POST", status=422, times=2)],
            ["422: scripted"] * 2,
            False,
            id="refused",
        ),
    ],
)
def test_a_reservation_is_made_or_its_maker_hears_why_not(
    faults: list[Fault], refusals: list[str], made: bool
) -> None:
    async def story() -> None:
        async with desk() as d:
            d.api.faults += faults
            await d.do(wanted(), wanted())
            assert d.fed == [write_refused(wanted(), why) for why in refusals]
            assert len(d.api.all(RESERVATIONS)) == made

    run(story())


@pytest.mark.parametrize(
    ("faults", "refusals", "tries"),
    [
        pytest.param([], [], 1, id="granted"),
        pytest.param(
            [Fault("POST", status=429, times=9)], ["scripted"], 1, id="a budget does not allow it"
        ),
        pytest.param([Fault("POST", status=503, times=2)], [], 3, id="late"),
        pytest.param([Fault("POST", cut="after")], [], 2, id="done, but there was no answer"),
        pytest.param([Fault("POST", status=403)], ["scripted"], 1, id="not our right"),
    ],
)
def test_an_eviction_is_granted_or_the_core_hears_why_not(
    faults: list[Fault], refusals: list[str], tries: int
) -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").on("n").raw())
            d.api.faults += faults
            emit = Emit(ref(pod), "Normal", "Evicted", "by a job", "Evicting")
            decision = Evict(ref(pod), "by a job", {"gracePeriodSeconds": 5}, emit)
            await d.do(decision)
            accepted = not refusals and not any(fault.cut for fault in faults)
            assert len(d.api.all("/apis/events.k8s.io/v1/events")) == accepted
            assert d.fed == [write_refused(decision, why) for why in refusals]
            assert bool(d.api.all("/api/v1/pods")) == bool(refusals)
            assert d.api.count("POST", "/pods/p/eviction") == tries
            if d.api.bodies:
                options = {"gracePeriodSeconds": 5, "preconditions": {"uid": pod["metadata"]["uid"]}}
                assert d.api.bodies[0][2]["deleteOptions"] == options

    run(story())


def test_a_namesake_is_not_evicted() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").on("n").raw())
            d.api.delete(pod)
            d.api.create(make_pod("p").on("n").raw())
            await d.do(Evict(ref(pod), "by a job"))
            assert d.fed == []
            assert len(d.api.all("/api/v1/pods")) == 1

    run(story())


def test_the_spec_gets_what_was_found_and_keeps_the_rest() -> None:
    async def story() -> None:
        async with desk() as d:
            raw = d.api.create(job())
            found = ObjectReference(kind="Pod", namespace="default", name="p", uid="u")
            await d.do(SpecifyMigration(ref(raw), found, ObjectReference(name="room", uid="r")))
            assert d.api.get(JOBS, "move", "")["spec"] == {
                "podRef": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
                "reservationOptions": {"template": {}, "reservationRef": {"name": "room", "uid": "r"}},
            }

    run(story())


@pytest.mark.parametrize(
    ("faults", "refusals"),
    [
        pytest.param([], 0, id="written"),
        pytest.param([Fault("PATCH", status=503, times=3)], 0, id="late"),
        pytest.param([Fault("PATCH", status=403)], 1, id="refused"),
    ],
)
def test_a_status_is_written_or_refused(faults: list[Fault], refusals: int) -> None:
    async def story() -> None:
        async with desk() as d:
            raw = d.api.create(job())
            d.api.faults += faults
            decision = SetMigrationStatus(ref(raw), PodMigrationJobStatus(phase="Running"))
            await d.do(decision)
            assert d.fed == [write_refused(decision, "scripted")] * refusals
            written = d.api.get(JOBS, "move", "").get("status")
            assert written == (None if refusals else {"phase": "Running"})

    run(story())


def test_a_status_that_is_carried_out_late_does_not_undo_the_end_of_a_job() -> None:
    async def story() -> None:
        async with desk() as d:
            made = d.seen(d.api.create(job()))
            d.api.faults.append(Fault("PATCH", cut="before"))
            await d.do(SetMigrationStatus(ref(made), PodMigrationJobStatus(phase="Running")))
            await d.do(SetMigrationStatus(ref(made), PodMigrationJobStatus(phase="Succeeded")))
            with pytest.raises(ApiError, match="rejected our request"):
                d.api.carry_out_late()
            assert d.api.get(JOBS, "move", "")["status"]["phase"] == "Succeeded"

    run(story())
