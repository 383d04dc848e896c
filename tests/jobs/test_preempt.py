"""Who makes room for whom: a job for another, inside a queue, if all of it then starts."""

from typing import Any

import pytest

from jobs.stage import Played, Raw, actions, gang, group, in_queue, node, play, pod, queue

PREEMPT = actions("allocate", "preempt")
SPARED = {"volcano.sh/preemptable": "false"}


def victims(played: Played, event: str = "Preempted") -> list[str]:
    return [entry.object.rpartition("/")[2] for entry in played.result.timeline if entry.event == event]


def low(name: str, cpu: int = 1, queue: str = "", **more: Any) -> Raw:
    given = {**(in_queue(queue) if queue else {}), **more.pop("annotations", {})}
    return pod(name, cpu, annotations=given, **more)


# Preempt


def test_a_gang_preempts_if_all_of_it_becomes_ready() -> None:
    lows = [low(f"low-{i}") for i in range(4)]
    high = [group("g", 3), *gang("g", 3, at="10s", priority=10)]
    played = play(node("n1", 2), node("n2", 2), lows, high, config=PREEMPT)
    assert len(victims(played)) == 3
    assert played.times("g-0", "g-1", "g-2") == [10, 10, 10]


@pytest.mark.parametrize(
    ("members", "cpu", "why"),
    [(5, 1, "too many"), (2, 3, "too large"), (3, 2, "one would have no place")],
)
def test_otherwise_nobody_has_to_go(members: int, cpu: int, why: str) -> None:
    lows = [low(f"low-{i}") for i in range(4)]
    high = [group("g", members), *gang("g", members, cpu, at="10s", priority=10)]
    played = play(node("n1", 2), node("n2", 2), lows, high, config=PREEMPT)
    assert victims(played) == [], why


def test_without_the_action_nobody_has_to_go() -> None:
    high = [group("g", 1), *gang("g", 1, at="10s", priority=10), low("one", at="10s", priority=10)]
    played = play(node("n1", 1), low("low"), high, config=actions("allocate", "reclaim"))
    assert victims(played) == []


def test_the_room_is_kept_while_victims_stop() -> None:
    lows = [low(f"low-{i}", stops_in="20s") for i in range(2)]
    high = [group("g", 2), *gang("g", 2, at="10s", priority=10)]
    other = low("other", at="15s", priority=5)
    played = play(node("n1", 2), lows, high, other, config=PREEMPT)
    assert played.times("g-0", "g-1", "other") == [30, 30, None]


def test_who_must_not_be_preempted_is_not() -> None:
    given = [low("spared", annotations=SPARED), low("plain")]
    high = [pod("high", 1, at="10s", priority=10), pod("higher", 1, at="11s", priority=20)]
    played = play(node("n1", 2), given, high, config=PREEMPT)
    assert victims(played) == ["plain", "high"]


def test_in_a_queue_only_those_of_the_queue_make_room() -> None:
    given = [queue("a"), queue("b"), low("in-b", queue="b"), low("in-a", queue="a")]
    high = low("high", queue="a", at="10s", priority=10)
    more = low("more", queue="a", at="20s", priority=10)
    played = play(node("n1", 2), given, high, more, config=PREEMPT)
    assert victims(played) == ["in-a"]
    assert played.times("high", "more") == [10, None]


def test_a_job_is_never_left_with_fewer_than_it_needs() -> None:
    """One member has to go, so all go; of a job with one to spare only that one goes."""
    nodes, high = [node("n1", 1), node("n2", 1)], low("high", at="10s", priority=9)
    tight = play(nodes, group("g", 2), gang("g", 2), high, config=PREEMPT)
    assert sorted(victims(tight)) == ["g-0", "g-1"]
    loose = play(nodes, group("g", 1), gang("g", 2), high, config=PREEMPT)
    assert len(victims(loose)) == 1
