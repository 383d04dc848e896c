"""Gangs of reservations of which some start later: their plans and starts. What comes of each scenario
is compared with what comes of it if the scheduler restarts at the end."""

import json
from typing import Any

import pytest

from harness.objects import GROUP, Raw, node, pod, pod_group, reservation
from harness.scenarios import Played, condition, play, step
from holdfast.api.times import format_time
from scheduler.framework.test_calendar_planner import BEGIN
from scheduler.framework.test_missed_starts import cordoned, restart_at

GANG = "gang.scheduling.koordinator.sh/"
STARTS_AT = "holdfast.io/starts-at"


def minute(start: int) -> str:
    return format_time(BEGIN + start * 60)


def member(name: str, cpu: int, start: int | None, least: int = 2, **more: Any) -> Raw:
    """A reservation that starts after so many minutes, of a gang that needs `least`."""
    annotations = {f"{GANG}name": "g", f"{GANG}min-available": str(least)}
    annotations |= more.pop("annotations", {})
    if start is not None:
        annotations[STARTS_AT] = minute(start)
    return reservation(name, cpu, name, annotations=annotations, **more)


def in_group(raw: Raw) -> Raw:
    """A member of the PodGroup of that name instead."""
    annotations = raw["metadata"]["annotations"]
    kept = {key: value for key, value in annotations.items() if not key.startswith(GANG)}
    raw["metadata"]["annotations"] = {**kept, GROUP: "g"}
    return raw


def starts(name: str, start: int | None, at: str) -> Raw:
    """Changes the start of a reservation."""
    annotations = {STARTS_AT: minute(start) if start is not None else None}
    merge = {"metadata": {"annotations": annotations}}
    return step(at, patch={"kind": "Reservation", "name": name, "merge": merge})


def settled(*given: Raw | list[Raw], at: int) -> Played:
    """What came of it after so many minutes, which a restart does not change."""
    played = play(*given, until=at * 60 + 1)
    again = play(*given, step(f"{at}m", restart="scheduler"), until=at * 60 + 1)
    assert states(again) == states(played)
    return played


def states(played: Played) -> dict[str, Any]:
    """Phase, node and conditions of all reservations."""
    return {
        raw["metadata"]["name"]: (
            raw["status"]["phase"],
            raw["status"].get("nodeName", ""),
            sorted((c["type"], c["status"], c["reason"]) for c in raw["status"].get("conditions", ())),
        )
        for raw in played.all("Reservation")
    }


def phases(played: Played) -> dict[str, str]:
    return {name: state[0] for name, state in states(played).items()}


def conditions(played: Played, name: str) -> set[tuple[str, str, str]]:
    return set(states(played)[name][2])


def planned(played: Played, name: str) -> tuple[str, str]:
    """The planned node and whether the plan is feasible."""
    found = played.find("Reservation", name)
    return found["status"].get("nodeName", ""), condition(found, "Feasible")["status"]


LATE = {("Planned", "False", "Started"), ("Scheduled", "False", "Unschedulable")}


def test_a_pending_reservation_that_gets_a_start_in_the_past_is_late() -> None:
    played = settled(node("n0", 4), member("a", 2, None), starts("a", 1, "2m"), at=3)
    assert conditions(played, "a") == LATE


def test_a_reservation_whose_start_is_in_the_past_when_it_is_created_is_late() -> None:
    assert conditions(settled(node("n0", 4), member("a", 2, 1, at="2m"), at=3), "a") == LATE


def test_a_member_says_why_it_is_pending_after_its_start_beside_one_that_waits() -> None:
    """Both are tried twice in the round of the start, and the object of the first has no such condition
    when the second attempt is undone."""
    members = [in_group(member("a", 2, 3)), in_group(member("b", 6, None, at="1s"))]
    played = settled(node("n0", 4), pod_group("g", 2), members, at=4)
    assert conditions(played, "a") == LATE
    assert conditions(played, "b") == {("Scheduled", "False", "Unschedulable")}


def test_a_member_that_is_pending_follows_those_that_start_later() -> None:
    given = [node("n0", 8), node("n1", 4), member("c", 2, None)]
    late = [member("a", 2, 2, at="1m"), member("b", 2, 2, at="1m")]
    assert phases(settled(given, late, at=3)) == dict.fromkeys("abc", "Available")


def test_a_plan_is_made_once_a_member_without_one_is_deleted() -> None:
    """The two fit no nodes together."""
    given = [
        node("n0", 8),
        member("a", 4, None, least=1),
        member("b", 4, 30, least=1, at="1s"),
        member("c", 2, 30, least=1, at="1s"),
    ]
    assert planned(settled(given, at=1), "b") == ("", "False")
    gone = step("2m", delete={"kind": "Reservation", "name": "c"})
    assert planned(settled(given, gone, at=3), "b") == ("n0", "True")


def test_plans_stay_where_they_are_if_no_others_are_more_certain() -> None:
    """Only one of the members has a node where it depends on the end of a pod."""
    given = [
        node("n0", 4),
        node("n1", 4),
        pod("p", 3, nodeName="n1"),
        member("a", 4, 4, least=1),
        member("b", 4, 30, least=1, at="1s"),
        starts("a", 30, "1m"),
    ]
    played = settled(given, at=2)
    assert [planned(played, name) for name in "ab"] == [("n0", "Unknown"), ("n1", "Unknown")]


# Partner gangs


def partner(gang: str, raw: Raw, *partners: str) -> Raw:
    """A member of another gang, which names these as its partners."""
    annotations = raw["metadata"]["annotations"]
    annotations[f"{GANG}name"] = gang
    if partners:
        annotations[f"{GANG}groups"] = json.dumps([f"default/{name}" for name in partners])
    return raw


def partners(first: int, second: int, *, mutual: bool) -> list[Raw]:
    """Two gangs of one member each, of which only the second does without the other if they do not
    name each other."""
    both = "g1", "g2"
    return [
        partner("g1", member("a", 4, first, least=1), *both),
        partner("g2", member("b", 12, second, least=1), *(both if mutual else ())),
    ]


NEITHER, BOTH = (dict.fromkeys("ab", phase) for phase in ("Pending", "Available"))


@pytest.mark.parametrize("restart", [None, 3, 6])
@pytest.mark.parametrize("mutual", [True, False])
def test_partner_gangs_that_miss_their_start_start_together(mutual: bool, restart: int | None) -> None:
    given = [node("n0", 8), node("n1", 16), *partners(5, 5, mutual=mutual), *cordoned("n1", 4, 20)]
    given += restart_at(restart)
    assert phases(settled(given, at=8)) == NEITHER
    assert phases(settled(given, at=25)) == BOTH


@pytest.mark.parametrize("mutual", [True, False])
def test_a_gang_is_not_planned_without_a_partner_that_fits_no_node(mutual: bool) -> None:
    played = settled(node("n0", 8), partners(5, 5, mutual=mutual), at=3)
    assert [planned(played, name) for name in "ab"] == [("", "False")] * 2
    assert phases(settled(node("n0", 8), partners(5, 5, mutual=mutual), at=8)) == NEITHER


@pytest.mark.parametrize("mutual", [True, False])
def test_a_gang_waits_for_a_partner_that_starts_later(mutual: bool) -> None:
    given = [node("n0", 8), node("n1", 16), *partners(5, 10, mutual=mutual)]
    assert phases(settled(given, at=8)) == NEITHER
    assert phases(settled(given, at=12)) == BOTH


def test_partner_gangs_are_planned_and_start() -> None:
    given = [node("n0", 8), node("n1", 16), *partners(5, 5, mutual=True)]
    assert [planned(settled(given, at=3), name)[1] for name in "ab"] == ["True", "True"]
    assert phases(settled(given, at=6)) == BOTH


def test_a_gang_waits_for_a_partner_that_does_not_exist() -> None:
    given = [node("n0", 8), partners(5, 5, mutual=True)[0]]
    assert planned(settled(given, at=3), "a") == ("", "False")
    assert phases(settled(given, at=8)) == {"a": "Pending"}


# Changes of a gang and of nothing else


def needs(least: int) -> Raw:
    """Changes how many members the PodGroup needs."""
    merge = {"spec": {"minMember": least}}
    return step("2m", patch={"kind": "PodGroup", "name": "g", "namespace": "default", "merge": merge})


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_plans_follow_how_many_members_the_gang_needs(before: int, after: int) -> None:
    members = [in_group(member(name, 2, 5)) for name in "ab"]
    given = [node("n0", 8), pod_group("g", before), *members]
    states = {2: ("n0", "True"), 3: ("", "False")}
    assert planned(settled(given, at=1), "a") == states[before]
    assert planned(settled(given, needs(after), at=3), "a") == states[after]


def test_a_plan_ends_with_a_member_on_another_node_that_its_gang_needs() -> None:
    members = [in_group(member("a", 8, 5)), in_group(member("b", 4, 1)), in_group(member("c", 1, 1))]
    given = [node("n0", 8), node("n1", 5), pod_group("g", 2), *members, needs(3)]
    assert planned(settled(given, at=3), "a") == ("n0", "True")
    gone = step("4m", delete={"kind": "Reservation", "name": "b"})
    assert planned(settled(given, gone, at=4), "a") == ("", "False")
