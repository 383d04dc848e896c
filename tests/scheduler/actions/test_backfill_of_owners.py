"""Owners of reservations that use held or planned capacity meanwhile, as any pod that ends in time."""

import json
from typing import Any

import pytest

from harness.objects import Raw, gang, node, pod, pod_group, reservation
from harness.scenarios import Played, actions, play

ESTIMATE = "holdfast.io/run-estimate"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
MINUTE, HOUR = 60, 3600
NIGHT = {"holdfast.io/starts-at": "2026-01-01T01:00:00Z"}
OTHER_NODE = {"kubernetes.io/hostname": "n2"}
AFTER = {"starvingJobTimeThreshold": 600, "reservedNodePercent": 100, "backfill": True}


def night(cpu: int = 8, **more: Any) -> Raw:
    """A reservation that starts in an hour."""
    return reservation("night", cpu, "night", annotations=NIGHT, ttl="1h", **more)


def short(name: str, app: str, cpu: int, minutes: int = 30, **more: Any) -> Raw:
    annotations = {ESTIMATE: f"{minutes}m", **more.pop("annotations", {})}
    more.setdefault("at", "1m")
    return pod(name, cpu, app, annotations=annotations, runs_for=f"{minutes}m", **more)


def owners(played: Played, name: str) -> list[str]:
    found = played.find("Reservation", name)["status"].get("currentOwners") or []
    return [each["name"] for each in found]


@pytest.mark.parametrize(
    ("minutes", "start"),
    [(30, MINUTE), (59, MINUTE), (60, HOUR)],  # the last would end a minute too late
)
@pytest.mark.parametrize("app", ["night", "other"])
def test_an_owner_of_the_planned_reservation_is_backfilled_like_any_pod(
    app: str, minutes: int, start: int
) -> None:
    played = play(node("n1", 8), night(allocateOnce=False), short("p", app, 4, minutes), until=HOUR + 1)
    is_owner = app == "night"
    assert played.times("p") == [start if start < HOUR or is_owner else None]
    assert played.events("Reservation/night", "Available") == [(HOUR, "Available")]
    assert owners(played, "night") == (["p"] if start == HOUR and is_owner else [])


def test_an_owner_of_a_full_reservation_elsewhere_is_backfilled() -> None:
    given = [
        node("n1", 8),
        node("n2", 4),
        night(),
        reservation("mine", 3, "m", allocateOnce=False, pod={"nodeSelector": OTHER_NODE}),
        short("m1", "m", 3),
        short("m2", "m", 3),
    ]
    played = play(given, until=2 * MINUTE)
    assert played.bound() == {"m1": (MINUTE, "n2"), "m2": (MINUTE, "n1")}
    assert owners(played, "mine") == ["m1"]


def test_an_owner_is_backfilled_on_the_capacity_of_a_starvation_hold() -> None:
    given = [
        node("n1", 8),
        node("n2", 1),
        reservation("mine", 1, "m", allocateOnce=False, pod={"nodeSelector": OTHER_NODE}),
        short("long", "", 4, 240, at="0s", nodeName="n1"),
        pod("big", 8),
        short("owner", "m", 2, at="20m"),
    ]
    played = play(given, config=actions(**AFTER), until=4 * HOUR + 1)
    assert played.bound()["owner"] == (20 * MINUTE, "n1")
    assert played.times("big") == [4 * HOUR]
    assert "Starving" not in played.reasons("owner")
    assert owners(played, "mine") == []


def test_an_owner_uses_its_own_reservation_where_it_can() -> None:
    mine = reservation("mine", 3, "m", allocateOnce=False, pod={"nodeSelector": OTHER_NODE})
    played = play(node("n1", 8), node("n2", 4), night(), mine, short("m", "m", 3), until=2 * MINUTE)
    assert played.bound() == {"m": (MINUTE, "n2")}
    assert owners(played, "mine") == ["m"]


@pytest.mark.parametrize(
    "affinity", [{"name": "mine"}, {"reservationSelector": {"of": "m"}}, {}], ids=json.dumps
)
def test_a_pod_that_requires_a_reservation_is_not_backfilled_outside_of_it(affinity: Raw) -> None:
    mine = reservation(
        "mine", 3, "m", allocateOnce=False, pod={"nodeSelector": OTHER_NODE}, labels={"of": "m"}
    )
    requires = {AFFINITY: json.dumps(affinity)}
    given = [short(name, "m", 3, annotations=requires) for name in ("m1", "m2")]
    played = play(node("n1", 8), node("n2", 4), night(), mine, given, until=40 * MINUTE)
    assert played.bound() == {"m1": (MINUTE, "n2"), "m2": (31 * MINUTE, "n2")}


@pytest.mark.parametrize(("policy", "start"), [("Restricted", None), ("Aligned", MINUTE)])
def test_no_owner_is_backfilled_beside_a_restricted_reservation_of_its_own(
    policy: str, start: int | None
) -> None:
    mine = reservation("mine", 2, "m", allocateOnce=False, allocatePolicy=policy)
    given = [node("n1", 8), mine, night(6, at="10s"), short("m", "m", 3)]
    played = play(given, until=HOUR - 1)
    assert played.times("m") == [start]


def test_owners_in_a_gang_are_backfilled_with_the_others() -> None:
    mine = reservation("mine", 2, "m", allocateOnce=False, pod={"nodeSelector": OTHER_NODE})
    members = gang("g", 3, 2, at="1m", app="m", annotations={ESTIMATE: "30m"}, runs_for="30m")
    given = [node("n1", 4), node("n2", 2), night(4), mine, pod_group("g", 3)]
    played = play(given, members, until=2 * MINUTE)
    assert sorted(played.bound().values()) == [(MINUTE, "n1"), (MINUTE, "n1"), (MINUTE, "n2")]
    assert len(owners(played, "mine")) == 1


def test_a_pod_with_a_hold_of_its_own_is_backfilled_elsewhere() -> None:
    """Its hold waits for n2, which is free in four hours; n1 is planned from one hour on."""
    given = [
        node("n1", 8),
        node("n2", 8),
        night(8),
        short("long", "", 8, 240, at="0s", nodeName="n2"),
        short("first", "", 8, 40, at="0s", nodeName="n1"),
        short("waits", "", 8, 15, at="1m"),
    ]
    played = play(given, config=actions(**AFTER), until=HOUR + 1)
    assert played.bound()["waits"] == (40 * MINUTE, "n1")
    assert played.events("Reservation/night", "Available") == [(HOUR, "Available")]
