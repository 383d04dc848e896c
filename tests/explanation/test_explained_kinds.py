"""The names that `explain` takes for kinds: those that kubectl takes."""

import pytest

from explanation.test_situations import N1, Row, explained, made_by, schedule, world_of
from harness.objects import node
from holdfast.explanation.explained_kinds import EXPLAINED, known_kinds


@pytest.mark.parametrize(
    ("given", "name", "groups"),
    [
        ("po", "pod", [""]),
        ("pods", "pod", [""]),
        ("deployments.apps", "deployment", ["apps"]),
        ("deploy.v1.apps", "deployment", ["apps"]),
        ("rsv", "reservation", ["scheduling.koordinator.sh"]),
        ("reservation.scheduling.koordinator.sh", "reservation", ["scheduling.koordinator.sh"]),
        ("rsvs", "reservationschedule", ["scheduling.holdfast.io"]),
        ("podgroup.scheduling.volcano.sh", "podgroup", ["scheduling.volcano.sh"]),
        ("podgroups.v1beta1.scheduling.k8s.io", "podgroup", ["scheduling.k8s.io"]),
        (
            "podgroups",
            "podgroup",
            ["scheduling.volcano.sh", "scheduling.sigs.k8s.io", "scheduling.k8s.io"],
        ),
    ],
)
def test_names_of_kinds(given: str, name: str, groups: list[str]) -> None:
    found = known_kinds()[given]
    assert (found.name, [info.group for info in found.infos]) == (name, groups)


def test_all_names_that_kubectl_takes_are_known() -> None:
    infos = [info for each in EXPLAINED.values() for info in each.infos]
    assert {name for info in infos for name in info.command_names} <= known_kinds().keys()


def test_a_schedule_is_explained_by_its_reservation() -> None:
    world = world_of([N1, schedule("nightly"), made_by("nightly")])
    report = explained(world, Row([], [], [], name="nightly", kind="ReservationSchedule"))
    assert report.phase == "Active"
    assert "Reservation nightly-1: It starts at 2026-01-01T02:00:00Z; n1 is planned." in report.summary


def test_a_schedule_whose_reservation_is_too_large() -> None:
    world = world_of([node("n1", cpu="4"), schedule("nightly"), made_by("nightly")])
    report = explained(world, Row([], [], [], name="nightly", kind="ReservationSchedule"))
    assert "no node is planned" in report.summary
    assert [each.change["actions"][0] for each in report.advice] == ["Resize"]


def test_a_schedule_that_is_suspended() -> None:
    world = world_of([N1, schedule("nightly", suspend=True)])
    report = explained(world, Row([], [], [], name="nightly", kind="ReservationSchedule"))
    assert report.phase == "Suspended"
    assert report.summary == (
        "spec.suspend is true: it makes no more reservations. "
        "No reservation of it is planned or in use."
    )
