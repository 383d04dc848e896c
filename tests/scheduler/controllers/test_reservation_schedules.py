"""ReservationSchedules, played in simulations."""

from typing import Any

import pytest
from msgspec import structs

from harness.driver import make_scheduler
from harness.objects import Raw, node, reservation
from harness.scenarios import Played, play, step
from harness.world import World
from holdfast.api.decode import convert
from holdfast.api.reservation_schedules import ReservationSchedule
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.decisions import CreateReservation, Emit, SetScheduleStatus
from holdfast.scheduler.cluster.events import Added, Updated, write_refused
from holdfast.scheduler.controllers.reservation_schedules import ReservationSchedules

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
    # Two occurrences fit at once, but not beside each other if one is replaced by the next.
    played = play(node("n1", "2" if policy == "Replace" else "8"), asked, until=4.2 * HOUR)
    found = windows(played)
    assert [t for t, event in found if event == "Available"] == starts
    if policy == "Replace":
        assert [t for t, event in found if event == "Failed"] == [2, 3, 4]
        (active,) = (r for r in played.all("Reservation") if r["status"]["phase"] == "Available")
        assert active["status"]["expires"] == "2026-01-01T05:00:00Z"


def test_a_started_occurrence_that_lasts_longer_is_replaced_too() -> None:
    changed = change("70m", concurrencyPolicy="Replace")
    played = play(node("n1", "8"), schedule(duration="90m"), changed, until=3.2 * HOUR)
    assert windows(played) == [
        (1, "Available"),
        (70 / 60, "Deleted"),  # the next one, which was made from the schedule before
        (2, "Deleted"),
        (2, "Available"),
        (3, "Failed"),
        (3, "Available"),
    ]


def events(played: Played) -> list[tuple[str, str]]:
    """The events of the schedule, except those of reservations that were created."""
    found = [raw for raw in played.all("Event") if raw["involvedObject"]["name"] == "s"]
    return [(e["reason"], e["message"]) for e in found if e["reason"] != "SuccessfulCreate"]


def test_the_last_schedule_can_be_deleted() -> None:
    deleted = step("30m", delete={"kind": "ReservationSchedule", "name": "s"})
    played = play(node("n1", "8"), schedule(), deleted, until=1.25 * HOUR)
    assert windows(played) == [(1, "Available")]


def other(name: str, at: str = "0s") -> Raw:
    """A reservation that no schedule made."""
    spec = {**schedule()["spec"]["template"]["spec"], "allocateOnce": True}
    metadata = {"name": name, "annotations": {"sim.holdfast.io/at": at}}
    api = "scheduling.koordinator.sh/v1alpha1"
    return {"apiVersion": api, "kind": "Reservation", "metadata": metadata, "spec": spec}


def test_an_occurrence_whose_name_is_taken_is_left_out_and_the_next_one_comes() -> None:
    taken = other("s-29453820")  # of the start at one
    played = play(node("n1", "8"), taken, schedule(at="1s"), until=0.75 * HOUR)
    text = (
        "no reservation for 2026-01-01T01:00:00Z: reservation s-29453820 is not of this schedule; "
        "delete it to have the occurrence created"
    )
    assert events(played) == [("NameTaken", text)]
    (condition,) = status(played)["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "NameTaken",
        text,
    )
    played = play(node("n1", "8"), taken, schedule(at="1s"), until=2.25 * HOUR)
    assert (2, "Available") in windows(played)
    assert status(played)["conditions"][0]["status"] == "True"


def test_an_occurrence_is_created_once_its_name_is_free() -> None:
    freed = step("30m", delete={"kind": "Reservation", "name": "s-29453820"})
    taken = other("s-29453820")
    played = play(node("n1", "8"), taken, schedule(at="1s"), freed, until=2.25 * HOUR)
    assert [t for t, event in windows(played) if event == "Available" and t >= 1] == [1, 2]
    assert status(played)["conditions"][0]["status"] == "True"


def test_a_recreated_schedule_names_the_reservations_of_the_one_before() -> None:
    deleted = step("30m", delete={"kind": "ReservationSchedule", "name": "s"})
    again = schedule()
    del again["metadata"]["annotations"]
    again = step("31m", apply=again)
    played = play(node("n1", "8"), schedule(), deleted, again, until=0.75 * HOUR)
    assert events(played) == [
        (
            "NameTaken",
            "no reservation for 2026-01-01T01:00:00Z: reservation s-29453820 is of a deleted schedule"
            " of the same name; delete it to have the occurrence created",
        )
    ]
    assert status(played)["nextStart"] == "2026-01-01T02:00:00Z"


def test_a_schedule_that_is_never_due_says_so() -> None:
    played = play(node("n1", "8"), schedule(schedule="0 0 30 2 *"), until=0.25 * HOUR)
    text = "spec.schedule: '0 0 30 2 *' has no start within 5 years"
    assert events(played) == [("NeverDue", text)]
    assert status(played)["conditions"][0]["status"] == "False"


def test_intervals_do_not_drift() -> None:
    deleted = step("3h30m", delete={"kind": "Reservation", "name": "s-29454000"})  # starts at four
    asked = schedule(schedule="@every 2h")
    played = play(node("n1", "8"), asked, deleted, until=6.25 * HOUR)
    assert [t for t, event in windows(played) if event == "Available"] == [2, 4, 6]


def test_a_refused_reservation_is_tried_again_later_each_time() -> None:
    cluster = make_scheduler().cluster
    asked = convert(schedule(), ReservationSchedule, "s")
    asked.metadata.uid, asked.metadata.creation_timestamp = "u", "2026-01-01T00:00:00Z"
    now = began = parse_time("2026-01-01T00:00:00Z")
    cluster.feed(Added(asked), now)
    controller = ReservationSchedules(cluster)
    tried: list[float] = []
    told: list[tuple[str, str]] = []
    while now < began + 600:
        for decision in controller.run(now):
            if isinstance(decision, CreateReservation):
                tried.append(now - began)
                cluster.feed(write_refused(decision, "no room"), now)
            elif isinstance(decision, SetScheduleStatus):
                asked = structs.replace(asked, status=decision.status)
                cluster.feed(Updated(asked), now)
            elif isinstance(decision, Emit):
                told.append((decision.reason, decision.message))
        now += 5
    assert tried == [0, 10, 30, 70, 150, 310]
    assert told == [("FailedCreate", "reservation s-29453820 was not created: no room")]


def test_old_reservations_are_deleted() -> None:
    played = play(node("n1", "8"), schedule(historyLimit=1), until=5.75 * HOUR)
    phases = sorted(r["status"]["phase"] for r in played.all("Reservation"))
    assert phases == ["Failed", "Pending"]


def test_an_occurrence_that_never_had_a_node_is_deleted_when_it_fails() -> None:
    played = play(node("n1", "1"), schedule(historyLimit=0), until=2 * HOUR)
    ends = [
        (entry.t / HOUR, entry.event)
        for entry in played.result.timeline
        if entry.event in ("Failed", "Collected")
    ]
    assert ends == [(1.5, "Failed"), (1.5, "Collected")]
    assert status(played)["active"] == [r["metadata"]["name"] for r in played.all("Reservation")]


def test_the_status_follows_a_started_occurrence_without_a_node_that_is_deleted() -> None:
    name = f"s-{int(parse_time('2026-01-01T01:00:00Z') // 60)}"
    played = play(
        node("n1", "1"),
        schedule(),
        step("70m", delete={"kind": "Reservation", "name": name}),
        until=1.25 * HOUR,
    )
    (following,) = played.all("Reservation")
    assert status(played)["active"] == [following["metadata"]["name"]]


def _with_invalid_template(**spec: Any) -> Raw:
    """A schedule whose occurrences an API server without validation lets pass, and no scheduler can
    read."""
    asked = schedule(**spec)
    del asked["metadata"]["annotations"]
    (container,) = asked["spec"]["template"]["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = "four"
    return asked


def test_an_invalid_occurrence_is_deleted_when_it_fails() -> None:
    world = World(_with_invalid_template(historyLimit=0)).wait(1.5 * HOUR)
    assert world.condition("s-29453880", "Scheduled")["reason"] == "Invalid"
    assert world.reservation_names() == ["s-29453880"]
    (found,) = (raw for (kind, _), raw in world.objects.items() if kind == "ReservationSchedule")
    assert found["status"]["active"] == ["s-29453880"]


def test_an_occurrence_is_created_once_a_failed_reservation_of_its_name_is_gone() -> None:
    taken = reservation("s-29453820", ttl="10m")
    world = World(node("n1"), taken)
    asked = schedule()
    del asked["metadata"]["annotations"]
    world.put(asked).wait(0.5 * HOUR)
    assert world.phase("s-29453820") == "Failed"
    world.delete("Reservation", "s-29453820")
    assert world.phase("s-29453820") == "Pending"


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
        ({"schedule": "@every 30s"}, "spec.schedule"),
        ({"schedule": "@every 90s"}, "spec.schedule"),
        ({"duration": "0s"}, "spec.duration"),
        ({"beforeStart": "Wait"}, "spec.beforeStart"),
    ],
)
def test_an_invalid_schedule_is_refused(spec: Raw, field: str) -> None:
    with pytest.raises(Exception, match=field.replace(".", r"\.")):
        play(node("n1", "8"), schedule(**spec))


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"annotations": {"holdfast.io/lead": "soon"}}, r"annotations\[holdfast.io/lead\]"),
        ({"annotations": {"holdfast.io/at-end": "Nope"}}, r"annotations\[holdfast.io/at-end\]"),
        ({"annotations": {"holdfast.io/starts-at": "2027-01-01T00:00:00Z"}}, "must not be given"),
        ({"annotations": {"not a key": "x"}}, "annotations"),
        ({"labels": {"scheduling.koordinator.sh/reservation-order": "x"}}, "must be an integer"),
    ],
)
def test_a_template_whose_reservations_would_be_refused_is_refused(metadata: Raw, field: str) -> None:
    asked = schedule()
    asked["spec"]["template"]["metadata"] = metadata
    with pytest.raises(Exception, match=r"spec\.template\.metadata.*" + field):
        play(node("n1", "8"), asked)


def test_a_name_too_long_for_its_reservations_is_refused() -> None:
    asked = schedule()
    asked["metadata"]["name"] = "s" * 245
    with pytest.raises(Exception, match=r"metadata\.name.*no more than 244 characters"):
        play(node("n1", "8"), asked)
