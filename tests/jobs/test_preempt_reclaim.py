"""Who makes room for whom: inside a queue by importance, across queues by what is deserved."""

from typing import Any

import pytest

from jobs.stage import Played, Raw, actions, gang, group, in_queue, node, play, pod, queue

PREEMPT = actions("allocate", "preempt")
RECLAIM = actions("allocate", "reclaim")
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


@pytest.mark.parametrize(
    "mark",
    [{"annotations": SPARED}, {"labels": {"scheduling.koordinator.sh/disable-preemptible": "true"}}],
)
def test_who_must_not_be_preempted_is_not(mark: dict[str, Any]) -> None:
    given = [low("spared", **mark), low("plain")]
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


# Reclaim


def fill(of: str, count: int, **more: Any) -> list[Raw]:
    return [low(f"{of}-{i}", queue=of, **more) for i in range(count)]


def test_a_queue_gets_back_what_it_deserves_and_no_more() -> None:
    queues = [queue("a", 1), queue("b", 3)]
    played = play(node("n1", 8), queues, fill("a", 8), fill("b", 8, at="10s"), config=RECLAIM)
    assert len(victims(played, "Evicted")) == 6
    assert sum(name.startswith("b-") for name in played.bound()) == 6


@pytest.mark.parametrize(
    ("a", "b", "evicted"),
    [
        ({"deserved": {"cpu": "2"}}, {"deserved": {"cpu": "6"}}, 6),
        ({"reclaimable": False}, {}, 0),
        ({}, {"capability": {"cpu": "1"}}, 1),
        ({"guarantee": {"resource": {"cpu": "6"}}}, {}, 1),
    ],
)
def test_what_queues_say_is_minded(a: Raw, b: Raw, evicted: int) -> None:
    queues = [queue("a", **a), queue("b", **b)]
    played = play(node("n1", 8), queues, fill("a", 8), fill("b", 8, at="10s"), config=RECLAIM)
    assert len(victims(played, "Evicted")) == evicted


def test_without_the_action_what_is_lent_stays_lent() -> None:
    queues = [queue("a"), queue("b")]
    played = play(node("n1", 4), queues, fill("a", 4), fill("b", 4, at="10s"), config=PREEMPT)
    assert victims(played, "Evicted") == []


def test_the_least_important_goes_first_and_the_spared_never() -> None:
    queues = [queue("a"), queue("b")]
    given = [
        low("dear", queue="a", priority=5),
        low("cheap", queue="a"),
        low("spared", queue="a", annotations=SPARED),
        low("dear-2", queue="a", priority=5),
    ]
    late = low("late", queue="b", at="10s")
    played = play(node("n1", 4), queues, given, late, config=RECLAIM)
    assert victims(played, "Evicted") == ["cheap"]
    assert played.times("late") == [10]


def test_a_job_reclaims_for_all_of_it_or_not_at_all() -> None:
    queues = [queue("a"), queue("b")]
    fits = [group("g", 2, queue="b"), *gang("g", 2, at="10s")]
    played = play(node("n1", 4), queues, fill("a", 4), fits, config=RECLAIM)
    assert played.times("g-0", "g-1") == [10, 10]
    too_much = [group("g", 3, queue="b"), *gang("g", 3, at="10s")]
    played = play(node("n1", 4), queues, fill("a", 4), too_much, config=RECLAIM)
    assert victims(played, "Evicted") == []


def test_of_a_job_all_goes_or_what_it_can_spare() -> None:
    queues = [queue("a"), queue("b")]
    job = [group("g", 4, queue="a"), *gang("g", 4)]
    played = play(node("n1", 4), queues, job, fill("b", 1, at="10s"), config=RECLAIM)
    assert len(victims(played, "Evicted")) == 4
