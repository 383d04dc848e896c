"""What is written on reservations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from itertools import groupby

import pytest

from harness.builders import make_pod
from harness.fake_api import Fault, Raw
from harness.virtual_time import run
from holdfast.api.reservation import ReservationStatus
from holdfast.kube.errors import ApiError
from holdfast.scheduler.cluster.decisions import (
    Bind,
    DeleteReservation,
    Preempt,
    PreemptReservation,
    SetReservationStatus,
)
from kube.writer.writer_fixture import desk, ref

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def bare_reservation(name: str = "r") -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
    }


def status(raw: Raw, phase: str, node: str = "", binds: bool = False) -> SetReservationStatus:
    return SetReservationStatus(ref(raw), ReservationStatus(phase=phase, node_name=node), binds)


@pytest.mark.parametrize(
    ("faults", "fed"),
    [
        ([], ["BindConfirmed"]),
        ([Fault("PATCH", status=503, times=20)], ["BindConfirmed"]),
        ([Fault("PATCH", cut="after")], ["BindConfirmed"]),
        ([Fault("PATCH", status=403)], ["BindRefused: 403: scripted"]),
    ],
)
def test_a_reservation_gets_its_node_or_not(faults: list[Fault], fed: list[str]) -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            d.api.faults += faults
            await d.do(status(r, "Available", "n", binds=True))
            assert d.fed_events() == fed
            written = d.api.get(RESERVATIONS, "r", "").get("status")
            assert written == (
                {"phase": "Available", "nodeName": "n"} if "Confirmed" in fed[0] else None
            )

    run(story())


@pytest.mark.parametrize("faults", [[], [Fault("PATCH", status=503, times=3)]])
def test_what_a_reservation_was_given_is_written_with_its_node(faults: list[Fault]) -> None:
    given = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":0}]}'}

    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            d.api.faults += faults
            bind = SetReservationStatus(
                ref(r), ReservationStatus(phase="Available", node_name="n"), True, given
            )
            await d.do(bind)
            assert d.fed_events() == ["BindConfirmed"]
            written = d.api.get(RESERVATIONS, "r", "")
            assert written["metadata"]["annotations"] == given
            assert written["status"]["nodeName"] == "n"

    run(story())


def test_the_last_status_of_a_reservation_is_written_and_its_bind_still_answered() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            d.api.faults.append(Fault("PATCH", status=503, times=2))
            d.writer.carry_out([status(r, "Available", "n", binds=True)])
            await asyncio.sleep(0.05)
            await d.do(status(r, "Succeeded", "n"))
            assert d.fed_events() == ["BindConfirmed"]
            assert d.api.get(RESERVATIONS, "r", "")["status"]["phase"] == "Succeeded"

    run(story())


@pytest.mark.parametrize("faults", [[], [Fault("PATCH", status=503, times=2)]])
def test_one_that_waited_is_available_before_it_has_succeeded(faults: list[Fault]) -> None:
    """However slowly the server answers, watchers of the reservation see every phase."""

    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            await d.do(status(r, "Waiting", "n", binds=True))
            d.api.faults += faults
            d.api.bodies.clear()
            d.writer.carry_out([status(r, "Waiting", "n"), status(r, "Available", "n")])
            await d.do(status(r, "Succeeded", "n"))
            written = [patch[-1]["value"]["phase"] for _, _, patch in d.api.bodies]
            assert [phase for phase, _ in groupby(written)] == ["Available", "Succeeded"]
            assert d.api.get(RESERVATIONS, "r", "")["status"]["phase"] == "Succeeded"

    run(story())


def test_a_deleted_or_recreated_reservation_is_not_written() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            d.api.delete(r)
            await d.do(status(r, "Available", "n", binds=True))
            assert d.fed_events()[0] == "Deleted"
            other = d.api.create(bare_reservation())
            d.fed.clear()
            await d.do(status(r, "Available", "n"), DeleteReservation(ref(r), "over"))
            assert {type(event).__name__ for event in d.fed} <= {"ReservationWriteRefused"}
            assert d.api.get(RESERVATIONS, "r", "") == other
            await d.do(DeleteReservation(ref(other), "over"))
            assert d.api.all(RESERVATIONS) == []

    run(story())


def test_a_status_that_is_carried_out_late_does_not_undo_a_later_one() -> None:
    """The answer to the first attempt is lost; the server carries it out after the reservation has
    failed, because its node is gone."""

    async def story() -> None:
        async with desk() as d:
            r = d.seen(d.api.create(bare_reservation()))
            d.api.faults.append(Fault("PATCH", cut="before"))
            await d.do(status(r, "Available", "n", binds=True))
            await d.do(status(r, "Failed", "n"))
            with pytest.raises(ApiError, match="rejected our request"):
                d.api.carry_out_late()
            assert d.api.get(RESERVATIONS, "r", "")["status"]["phase"] == "Failed"

    run(story())


def test_what_a_reservation_was_given_late_does_not_undo_what_it_has() -> None:
    key = "scheduling.koordinator.sh/device-allocated"

    def given(raw: Raw, devices: str) -> SetReservationStatus:
        available = ReservationStatus(phase="Available", node_name="n")
        return SetReservationStatus(ref(raw), available, True, {key: devices})

    async def story() -> None:
        async with desk() as d:
            r = d.seen(d.api.create(bare_reservation()))
            d.api.faults += [Fault("PATCH", cut="before"), Fault("PATCH", status=403)]
            await d.do(given(r, "one"))
            await d.do(given(r, "other"))
            assert d.fed_events() == ["BindRefused: 403: scripted", "BindConfirmed"]
            with pytest.raises(ApiError, match="Precondition failed"):
                d.api.carry_out_late()
            assert d.api.get(RESERVATIONS, "r", "")["metadata"]["annotations"] == {key: "other"}

    run(story())


def test_a_status_is_written_to_a_newer_version_than_was_seen() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.seen(d.api.create(bare_reservation()))
            edited = {**r, "metadata": {**r["metadata"], "labels": {"a": "b"}}}
            d.api.change(edited)
            await d.do(status(r, "Available", "n", binds=True), status(r, "Succeeded", "n"))
            assert d.fed_events() == ["BindConfirmed"]
            written = d.api.get(RESERVATIONS, "r", "")
            assert written["status"]["phase"] == "Succeeded"
            assert written["metadata"]["labels"] == {"a": "b"}

    run(story())


def test_a_reservation_that_has_ended_stays_so() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.seen(d.api.create(bare_reservation()))
            d.api.change({**r, "status": {"phase": "Failed"}})
            await d.do(status(r, "Available", "n", binds=True))
            assert d.fed_events() == ['BindRefused: 409 Conflict: reservations "r" has ended: Failed']
            assert d.api.get(RESERVATIONS, "r", "")["status"]["phase"] == "Failed"

    run(story())


@pytest.mark.parametrize(
    ("faults", "fed"),
    [
        ([], []),
        ([Fault("PATCH", status=503, times=3)], []),
        ([Fault("PATCH", status=403)], ["ReservationWriteRefused: 403: scripted"]),
    ],
)
def test_that_it_has_to_go_is_written_on_a_reservation(faults: list[Fault], fed: list[str]) -> None:
    async def story() -> None:
        async with desk() as d:
            raw = bare_reservation()
            raw["metadata"]["labels"] = {"kept": "yes"}
            r = d.api.create(raw)
            d.api.faults += faults
            preemptor = ref(d.api.create(bare_reservation("p")))
            await d.do(PreemptReservation(ref(r), preemptor, "n", {"soft": "true"}, {"why": "so"}))
            assert d.fed_events() == fed
            metadata = d.api.get(RESERVATIONS, "r", "")["metadata"]
            assert metadata["labels"] == ({"kept": "yes"} if fed else {"kept": "yes", "soft": "true"})
            assert metadata.get("annotations", {}) == ({} if fed else {"why": "so"})

    run(story())


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PATCH", "reservations/old", status=503, times=2),
        Fault("PATCH", "reservations/old", cut="before"),
        Fault("PATCH", "reservations/old", delay=3.0),
    ],
)
@pytest.mark.parametrize("phase", ["Failed", "Waiting"])
def test_what_a_reservation_no_longer_holds_is_given_away_once_that_is_written(
    phase: str, fault: Fault
) -> None:
    """On this node; what goes to others does not wait."""

    async def story() -> None:
        async with desk() as d:
            old, new = d.api.create(bare_reservation("old")), d.api.create(bare_reservation("new"))
            pods = [d.api.create(make_pod(name).raw()) for name in ("p", "elsewhere")]
            d.api.faults.append(copy(fault))
            await d.do(
                status(old, phase, "n"),
                Bind(ref(pods[0]), "n"),
                Bind(ref(pods[1]), "m"),
                status(new, "Available", "n", binds=True),
            )
            assert d.fed_events() == ["BindConfirmed"] * 3
            kinds = [path.rpartition("s/")[2].partition("?")[0] for _, path in d.api.requests]
            last_old = max(i for i, kind in enumerate(kinds) if kind == "old/status")
            assert kinds.index("elsewhere/binding") < last_old or fault.delay
            assert kinds.index("p/binding") > last_old
            assert kinds.index("new/status") > last_old

    run(story())


@pytest.mark.parametrize(
    "end",
    [
        lambda r: status(r, "Failed", "n"),  # it cannot be encoded
        lambda r: DeleteReservation(ref(r), "finished"),
        lambda r: status(r, "Available", "n", binds=True),
        lambda r: status(r, "Waiting", "n"),
    ],
)
def test_no_write_waits_for_a_status_that_is_not_written(
    end: Callable[[Raw], SetReservationStatus | DeleteReservation],
) -> None:
    async def story() -> None:
        async with desk() as d:
            r, p = d.api.create(bare_reservation()), d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("PATCH", "reservations/r", status=403))
            await d.do(end(r), status(r, "Failed", "n"), Bind(ref(p), "n"))
            assert "BindConfirmed" in d.fed_events()

    run(story())


@pytest.mark.parametrize("later", ["Waiting", "Available", "Succeeded"])
@pytest.mark.parametrize("faults", [[], [Fault("PATCH", "reservations/r", status=503, times=2)]])
@pytest.mark.parametrize("binds", [True, False])
def test_no_bind_waits_for_a_status_that_another_one_replaced(
    binds: bool, faults: list[Fault], later: str
) -> None:
    async def story() -> None:
        async with desk() as d:
            r, p = d.api.create(bare_reservation()), d.api.create(make_pod("p").raw())
            d.api.faults += map(copy, faults)
            await d.do(
                status(r, "Waiting", "n", binds),
                status(r, "Waiting", "n"),
                status(r, later, "n"),
                Bind(ref(p), "n"),
            )
            assert d.fed_events() == ["BindConfirmed"] * (1 + binds)
            assert d.api.get(RESERVATIONS, "r", "")["status"]["phase"] == later

    run(story())


@pytest.mark.parametrize("ends", ["Succeeded", "refused", "deleted"])
def test_an_owner_is_deleted_once_it_is_written_that_its_reservation_had_one(ends: str) -> None:
    """The status before is answered late. Without the owner the next leader could not know."""

    async def story() -> None:
        async with desk() as d:
            r, owner = d.api.create(bare_reservation()), d.api.create(make_pod("owner").on("n").raw())
            other = d.api.create(make_pod("other").on("n").raw())
            d.api.faults.append(Fault("PATCH", RESERVATIONS, status=503, times=3, retry_after=10))
            if ends == "refused":
                d.api.faults.append(Fault("PATCH", RESERVATIONS, status=403, times=2))
            d.writer.carry_out([status(r, "Available", "n", binds=True)])
            await asyncio.sleep(1.0)
            uid = r["metadata"]["uid"]
            d.writer.carry_out([status(r, "Succeeded", "n")])
            d.writer.carry_out([Preempt(ref(owner), ref(other), "n", "", reservation=uid)])
            d.writer.carry_out([Preempt(ref(other), ref(owner), "n", "")])
            await asyncio.sleep(1.0)
            assert set(d.api.pods()) == {"owner"}
            if ends == "deleted":
                d.writer.carry_out([DeleteReservation(ref(r), "no longer needed")])
            assert await d.writer.queue.drain(3600)
            assert d.api.pods() == {}
            if ends == "Succeeded":
                steps = [(method, path.partition("?")[0]) for method, path in d.api.requests]
                written = max(i for i, (_, path) in enumerate(steps) if "/reservations/" in path)
                assert steps[written + 1 :] == [("DELETE", "/api/v1/namespaces/default/pods/owner")]

    run(story())
