"""A reservation that grows comes after those that wait: they get everything that is released."""

from typing import Any

import pytest

from harness.objects import Raw, node, pod, pod_spec, reservation
from harness.scenarios import Played, play, step


def reusable(name: str, cpu: int, **spec: Any) -> Raw:
    return reservation(name, cpu, name, allocateOnce=False, **spec)


def sized(cpu: int) -> Raw:
    return {"spec": pod_spec({"cpu": str(cpu)})}


def grow(at: str, name: str, cpu: int) -> Raw:
    merge = {"spec": {"template": sized(cpu)}}
    return step(at, patch={"kind": "Reservation", "name": name, "merge": merge})


def status(played: Played, name: str) -> tuple[str, str]:
    written = played.find("Reservation", name)["status"]
    return written["phase"], written["allocatable"]["cpu"]


def resized(played: Played, name: str) -> tuple[str, str]:
    written = played.find("Reservation", name)["status"]["conditions"]
    return next((c["status"], c["reason"]) for c in written if c["type"] == "Resized")


BUSY = pod("busy", 3, at="1s", runs_for="30s")
WAITS = reusable("w", 3, at="2s", preAllocation=True)
RESTARTS = [[], [step("12s", restart="scheduler")], [step("31s", restart="scheduler")]]


@pytest.mark.parametrize("restart", RESTARTS)
def test_what_is_released_goes_to_the_one_that_waits(restart: list[Raw]) -> None:
    given = [node("n1", 4), reusable("r", 1), BUSY, WAITS, grow("10s", "r", 2)]
    played = play(given, restart, until=60)
    assert status(played, "w") == ("Available", "3")
    assert status(played, "r") == ("Available", "1")
    assert resized(played, "r") == ("False", "Unschedulable")


@pytest.mark.parametrize("restart", RESTARTS)
def test_it_grows_when_no_pod_waits_any_more(restart: list[Raw]) -> None:
    gone = step("40s", delete={"kind": "Reservation", "name": "w"})
    given = [node("n1", 4), reusable("r", 1), BUSY, WAITS, grow("10s", "r", 2), gone]
    played = play(given, restart, until=60)
    assert status(played, "r") == ("Available", "2")
    assert resized(played, "r") == ("True", "Resized")


def test_it_grows_when_the_one_that_waits_is_deleted_before_it_has_its_capacity() -> None:
    gone = step("20s", delete={"kind": "Reservation", "name": "w"})
    given = [node("n1", 6), reusable("r", 1), BUSY, WAITS, grow("10s", "r", 3), gone]
    played = play(given, until=25)
    assert status(played, "r") == ("Available", "3")


def test_it_grows_beside_one_that_waits_where_there_is_enough_for_both() -> None:
    given = [node("n1", 6), reusable("r", 1), BUSY, reusable("w", 4, at="2s", preAllocation=True)]
    early, late = (play(given, grow("10s", "r", 2), until=until) for until in (25, 60))
    assert (status(early, "r"), status(early, "w")) == (("Available", "1"), ("Waiting", "4"))
    assert (status(late, "r"), status(late, "w")) == (("Available", "2"), ("Available", "4"))


def test_of_two_that_grow_one_is_served() -> None:
    given = [node("n1", 4), reusable("r", 1), reusable("s", 1), pod("busy", 2, runs_for="30s")]
    played = play(given, grow("10s", "s", 3), grow("20s", "r", 3), until=60)
    assert {status(played, "r")[1], status(played, "s")[1]} == {"1", "3"}
