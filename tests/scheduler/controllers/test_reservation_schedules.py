"""ReservationSchedules, played in simulations."""

from typing import Any

import pytest

from harness.objects import Raw, node
from harness.scenarios import Played, play, step

HOUR = 3600.0


def schedule(at: str = "0s", **spec: Any) -> Raw:
    """Two cpu from every full hour on, for half an hour."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    given = {
        "schedule": "0 * * * *",
        "duration": "30m",
        "template": {"spec": {"allocateOnce": False, "owners": owners, "template": template}},
    }
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "s", "annotations": {"sim.holdfast.io/at": at}},
        "spec": {**given, **spec},
    }


def change(at: str, **spec: Any) -> Raw:
    return step(at, patch={"kind": "ReservationSchedule", "name": "s", "merge": {"spec": spec}})


def windows(played: Played) -> list[tuple[float, str]]:
    """When reservations became Available and ended, in order."""
    shown = ("Available", "Failed", "Deleted")
    entries = [e for e in played.result.timeline if e.object.startswith("Reservation/s-")]
    return [(entry.t / HOUR, entry.event) for entry in entries if entry.event in shown]


def status(played: Played) -> Raw:
    found: Raw = played.find("ReservationSchedule", "s")["status"]
    return found


def test_each_occurrence_has_a_reservation_that_is_planned_ahead() -> None:
    played = play(node("n1", "8"), schedule(), until=2.75 * HOUR)
    assert windows(played) == [(1, "Available"), (1.5, "Failed"), (2, "Available"), (2.5, "Failed")]
    assert status(played)["lastStart"] == "2026-01-01T02:00:00Z"
    assert status(played)["nextStart"] == "2026-01-01T03:00:00Z"
    (following,) = [r for r in played.all("Reservation") if r["status"]["phase"] == "Pending"]
    assert following["status"]["nodeName"] == "n1"
    assert following["metadata"]["ownerReferences"][0]["name"] == "s"


def test_a_suspended_schedule_deletes_what_has_not_started() -> None:
    played = play(
        node("n1", "8"),
        schedule(),
        change("70m", suspend=True),
        change("5h10m", suspend=False),
        until=6.25 * HOUR,
    )
    assert windows(played) == [
        (1, "Available"),
        (70 / 60, "Deleted"),
        (1.5, "Failed"),
        (310 / 60, "Available"),  # the time of this one is not over when the schedule goes on
        (5.5, "Failed"),
        (6, "Available"),
    ]


def test_suspending_and_resuming_a_schedule_gives_events() -> None:
    changes = change("70m", suspend=True), change("100m", suspend=False)
    played = play(node("n1", "8"), schedule(), *changes, until=1.75 * HOUR)
    events = [raw for raw in played.all("Event") if raw["involvedObject"]["name"] == "s"]
    found = [(raw["reason"], raw["message"]) for raw in events if raw["reason"] != "SuccessfulCreate"]
    assert found == [
        ("Suspended", "no reservations are created, and those that had not started are deleted"),
        ("Resumed", "reservations are created again"),
    ]


def test_a_changed_schedule_replaces_the_next_reservation() -> None:
    played = play(node("n1", "8"), schedule(), change("10m", schedule="30 * * * *"), until=1.25 * HOUR)
    assert windows(played) == [(1 / 6, "Deleted"), (0.5, "Available"), (1, "Failed")]


@pytest.mark.parametrize(
    ("policy", "starts"), [("Allow", [1, 2, 3, 4]), ("Forbid", [1, 3]), ("Replace", [1, 2, 3, 4])]
)
def test_occurrences_that_overlap(policy: str, starts: list[float]) -> None:
    asked = schedule(duration="90m", concurrencyPolicy=policy)
    asked["spec"]["template"]["spec"]["allocatePolicy"] = "Aligned"
    played = play(node("n1", "8"), asked, until=4.2 * HOUR)
    found = windows(played)
    assert [t for t, event in found if event == "Available"] == starts
    if policy == "Replace":
        assert [t for t, event in found if event == "Deleted"] == [2, 3, 4]


def test_old_reservations_are_deleted() -> None:
    played = play(node("n1", "8"), schedule(historyLimit=1), until=5.75 * HOUR)
    phases = sorted(r["status"]["phase"] for r in played.all("Reservation"))
    assert phases == ["Failed", "Pending"]


def test_a_restart_creates_nothing_twice() -> None:
    restarts = [step(f"{minute}m", restart="scheduler") for minute in (1, 59, 61, 89, 119)]
    played = play(node("n1", "8"), schedule(), *restarts, until=2.25 * HOUR)
    assert windows(played) == [(1, "Available"), (1.5, "Failed"), (2, "Available")]


def test_an_occurrence_whose_time_is_not_over_is_created_late() -> None:
    asked = schedule(at="1h10m")
    asked["metadata"]["creationTimestamp"] = "2026-01-01T00:30:00Z"
    played = play(node("n1", "8"), asked, until=1.75 * HOUR)
    assert windows(played) == [(70 / 60, "Available"), (1.5, "Failed")]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedule": "61 * * * *"}, "spec.schedule"),
        ({"schedule": "TZ=UTC 0 * * * *"}, "spec.schedule"),
        ({"timeZone": "Europe/Zurch"}, "spec.timeZone"),
        ({"duration": "0s"}, "spec.duration"),
        ({"beforeStart": "Wait"}, "spec.beforeStart"),
    ],
)
def test_an_invalid_schedule_is_refused(spec: Raw, field: str) -> None:
    with pytest.raises(Exception, match=field.replace(".", r"\.")):
        play(node("n1", "8"), schedule(**spec))
