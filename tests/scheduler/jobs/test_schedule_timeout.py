"""Jobs that say how long it may take to place them."""

from typing import Any

import pytest

from harness.objects import SIGS, VOLCANO, gang, node, pod, pod_group
from harness.scenarios import Played, play, step
from holdfast.api.times import parse_time
from holdfast.scheduler.framework.config import API_VERSION, KIND

LATE = "ScheduleTimeout"
START = parse_time("2026-01-01T00:00:00Z")
KOORD = "gang.scheduling.koordinator.sh/"


def lateness(played: Played) -> list[tuple[float, str]]:
    """When it was said that a job is late, and in which words."""
    told = [raw for raw in played.all("Event") if raw["reason"] == LATE]
    assert all(raw["count"] == 1 for raw in told)
    return [(parse_time(raw["firstTimestamp"]) - START, raw["message"]) for raw in told]


def with_default(**args: Any) -> dict[str, Any]:
    plugin = {"name": "Coscheduling", "args": args}
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [{"pluginConfig": [plugin]}]}


def test_a_job_that_is_late_says_so_once_and_is_placed_when_there_is_capacity() -> None:
    room = step("60s", apply=node("n2", 4))
    other = step("40s", apply=node("n3", 1))
    late = pod_group("g", 3, SIGS, scheduleTimeoutSeconds=30)
    played = play(node("n1", 1), late, gang("g", 3), other, room, until=100)
    [(when, text)] = lateness(played)
    assert when == 30
    assert text.startswith("PodGroup/default/g was not placed within 30s: ")
    assert played.times("g-0", "g-1", "g-2") == [60, 60, 60]


@pytest.mark.parametrize(
    ("spec", "args", "when"),
    [
        ({}, {}, []),
        ({"scheduleTimeoutSeconds": 0}, {}, []),
        ({"scheduleTimeoutSeconds": 20}, {}, [20]),
        ({"scheduleTimeoutSeconds": 20}, {"defaultTimeout": "10s"}, [20]),
        ({}, {"defaultTimeout": "10s"}, [10]),
        ({"scheduleTimeoutSeconds": 0}, {"permitWaitingTimeSeconds": 15}, [15]),
    ],
)
def test_its_own_word_comes_before_the_plugins(
    spec: dict[str, Any], args: dict[str, Any], when: list[float]
) -> None:
    given = [node("n1", 1), pod_group("g", 2, SIGS, **spec), *gang("g", 2)]
    played = play(*given, config=with_default(**args), until=50)
    assert [t for t, _ in lateness(played)] == when


def test_a_gang_by_annotations_says_it_there() -> None:
    says = {KOORD + "name": "g", KOORD + "min-available": "2", KOORD + "waiting-time": "25s"}
    members = [pod(f"p{i}", 1, annotations=says) for i in range(2)]
    assert [t for t, _ in lateness(play(node("n1", 1), members, until=50))] == [25]


def test_it_counts_from_when_there_are_pods() -> None:
    late = pod_group("g", 2, SIGS, scheduleTimeoutSeconds=10)
    played = play(node("n1", 1), late, gang("g", 2, at="100s"), until=200)
    assert [t for t, _ in lateness(played)] == [110]


def test_one_that_is_placed_in_time_is_not_late() -> None:
    in_time = pod_group("g", 2, SIGS, scheduleTimeoutSeconds=30)
    room = step("20s", apply=node("n2", 4))
    assert lateness(play(node("n1", 1), in_time, gang("g", 2), room, until=100)) == []


def test_members_that_never_come_make_it_late_too() -> None:
    played = play(
        node("n1", 4), pod_group("g", 2, SIGS, scheduleTimeoutSeconds=5), gang("g", 1), until=20
    )
    text = "PodGroup/default/g was not placed within 5s: has 1 of the 2 pods it needs"
    assert lateness(played) == [(5, text)]


@pytest.mark.parametrize("api", [SIGS, VOLCANO])
def test_a_restart_does_not_say_it_again(api: str) -> None:
    restarts = [step(f"{t}s", restart="scheduler") for t in (5, 15, 25)]
    given = [node("n1", 1), pod_group("g", 2, api), *gang("g", 2), *restarts]
    played = play(*given, config=with_default(defaultTimeout="10s"), until=40)
    assert [t for t, _ in lateness(played)] == [10]


def test_the_condition_says_it_until_the_job_is_placed() -> None:
    given = [node("n1", 1), pod_group("g", 2), *gang("g", 2)]
    config = with_default(defaultTimeout="10s")

    def condition(*more: dict[str, Any]) -> tuple[str, str]:
        status = play(*given, *more, config=config, until=30).find("PodGroup", "g")["status"]
        [said] = [c for c in status["conditions"] if c["type"] == "Unschedulable"]
        return said["status"], said.get("reason", "")

    assert condition() == ("True", LATE)
    assert condition(step("20s", apply=node("n2", 4))) == ("False", "")


def test_what_was_never_tried_is_not_late() -> None:
    """Pods with gates are not tried; when these are gone they are placed at once."""
    members = gang("g", 2, schedulingGates=[{"name": "x"}])
    free = [
        step("60s", patch={"kind": "Pod", "name": f"g-{i}", "merge": {"spec": {"schedulingGates": []}}})
        for i in range(2)
    ]
    late = pod_group("g", 2, SIGS, scheduleTimeoutSeconds=30)
    assert lateness(play(node("n1", 4), late, members, until=100)) == []
    played = play(node("n1", 4), late, members, free, until=100)
    assert played.times("g-0", "g-1") == [60, 60]
    assert lateness(played) == []
