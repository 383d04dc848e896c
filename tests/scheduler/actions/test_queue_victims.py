"""Room is made where a queue, and not the nodes, is full; and no one goes who need not."""

from typing import Any

import pytest

from harness.objects import Raw, gang, in_queue, node, pod, pod_group, queue
from harness.scenarios import Played, actions, play

PREEMPT = actions("allocate", "preempt")
RECLAIM = actions("allocate", "reclaim")
FULL: Raw = {"capability": {"cpu": "4"}}


def gone(played: Played) -> list[str]:
    events = ("Preempted", "Evicted")
    return sorted(e.object.rpartition("/")[2] for e in played.result.timeline if e.event in events)


def waiting(name: str, cpu: int = 1, of: str = "q", **more: Any) -> Raw:
    annotations = in_queue(of) | more.pop("annotations", {})
    return pod(name, cpu, annotations=annotations, **more)


def lows(count: int, **more: Any) -> list[Raw]:
    return [waiting(f"low-{i}", **more) for i in range(count)]


@pytest.mark.parametrize(
    ("more", "others", "victims"),
    [
        ({"priority": 10}, {}, ["low-3"]),
        ({"priority": 10, "cpu": 2}, {}, ["low-2", "low-3"]),
        ({"priority": 10, "cpu": 5}, {}, []),  # more than the queue may ever have
        ({}, {}, []),
        ({"priority": 10, "preemptionPolicy": "Never"}, {}, []),
        ({"priority": 10}, {"annotations": {"volcano.sh/preemptable": "false"}}, []),
    ],
)
def test_in_a_full_queue_the_less_important_free_capacity(
    more: Raw, others: Raw, victims: list[str]
) -> None:
    high = waiting("high", at="10s", **more)
    played = play(node("n1", 20), queue("q", **FULL), lows(4, **others), high, config=PREEMPT)
    assert gone(played) == victims
    assert played.times("high") == [10 if victims else None]


def test_only_those_of_the_queue_free_capacity() -> None:
    queues = [queue("q", capability={"cpu": "1"}), queue("other")]
    given = [*lows(1, priority=50), waiting("elsewhere", of="other")]
    high = waiting("high", at="10s", priority=50)
    assert gone(play(node("n1", 20), queues, given, high, config=PREEMPT)) == []


def test_wherever_they_are() -> None:
    nodes = [node(f"n{i}", 2) for i in range(4)]
    spread = [waiting(f"low-{i}", nodeName=f"n{i}") for i in range(4)]
    high = [waiting("high", 2, at="10s", priority=10, nodeSelector={})]
    played = play(nodes, node("n9", 8), queue("q", **FULL), spread, high, config=PREEMPT)
    assert gone(played) == ["low-2", "low-3"]
    assert played.times("high") == [10]


def test_nobody_else_has_to_go_while_they_stop() -> None:
    nodes = [node(f"n{i}", 2) for i in range(4)]
    spread = [waiting(f"low-{i}", nodeName=f"n{i}", stops_in="20s") for i in range(4)]
    high, other = waiting("high", 2, at="10s", priority=10), pod("other", 1, at="15s")
    played = play(nodes, node("n9", 8), queue("q", **FULL), spread, high, other, config=PREEMPT)
    assert gone(played) == ["low-2", "low-3"]
    assert played.times("high") == [30]


def test_each_pod_takes_the_place_of_one() -> None:
    """What pods that preempted wait for is counted once, and they do not wait for each other."""
    nodes = [node(f"n{i}", 4) for i in range(4)]
    spread = [waiting(f"low-{i}", 4, nodeName=f"n{i}", stops_in="20s") for i in range(4)]
    high = [waiting(f"high-{i}", 4, at=f"{10 + i}s", priority=10) for i in range(2)]
    full = queue("q", capability={"cpu": "16"})
    played = play(nodes, full, spread, high, config=PREEMPT, until=60)
    assert len(gone(played)) == 2
    assert played.times("high-0", "high-1") == [30, 31]


def test_a_closed_queue_frees_no_capacity() -> None:
    given = [queue("q", state="Closed", **FULL)]
    placed = [waiting(f"low-{i}", nodeName="n1") for i in range(4)]
    high = waiting("high", at="10s", priority=10)
    assert gone(play(node("n1", 20), given, placed, high, config=PREEMPT)) == []


@pytest.mark.parametrize(("members", "victims"), [(2, 2), (4, 4), (5, 0)])
def test_a_gang_gets_all_of_it_or_nothing(members: int, victims: int) -> None:
    high = [pod_group("g", members, queue="q"), *gang("g", members, at="10s", priority=10)]
    played = play(node("n1", 20), queue("q", **FULL), lows(4), high, config=PREEMPT)
    assert len(gone(played)) == victims
    assert len([name for name in played.bound() if name.startswith("g-")]) == victims


def test_what_a_job_needs_as_a_whole_may_be_freed_capacity_for() -> None:
    high = [pod_group("g", 2, minResources={"cpu": "2"}), *gang("g", 2, at="10s", priority=10)]
    played = play(node("n1", 2), [pod("low-0"), pod("low-1")], high, config=PREEMPT)
    assert gone(played) == ["low-0", "low-1"]


def test_below_a_full_queue_a_sibling_gives_back() -> None:
    """The queue above may have no more; so what is reclaimed must come from below it."""
    queues = [
        queue("top", capability={"cpu": "4"}),
        queue("a", parent="top", deserved={"cpu": "2"}),
        queue("b", parent="top", deserved={"cpu": "2"}),
        queue("other", deserved={"cpu": "4"}),
    ]
    given = [
        *(waiting(f"a-{i}", of="a", at="1s") for i in range(4)),
        *(waiting(f"other-{i}", of="other") for i in range(4)),
        *(waiting(f"b-{i}", of="b", at="10s") for i in range(3)),
    ]
    played = play(node("n1", 16), queues, given, config=RECLAIM)
    assert gone(played) == ["a-2", "a-3"]
    assert len([name for name in played.bound() if name.startswith("b-")]) == 2


def test_who_would_not_help_is_not_evicted() -> None:
    """Only the device is short."""
    gpu: Raw = {"allocatable": {"example.com/gpu": "1"}}
    queues = [
        queue("a", deserved={"cpu": "1"}),
        queue("b", deserved={"cpu": "3", "example.com/gpu": "1"}),
    ]
    given = [
        waiting("a-cpu", 2, of="a"),
        waiting("a-device", of="a", requests={"example.com/gpu": "1"}),
        waiting("b", of="b", at="10s", requests={"cpu": "1", "example.com/gpu": "1"}),
    ]
    assert gone(play(node("n1", 4, **gpu), queues, given, config=RECLAIM)) == ["a-device"]


def test_who_never_preempts_never_reclaims() -> None:
    given = [waiting("a-0", of="a"), waiting("a-1", of="a")]
    late = waiting("b", of="b", at="10s", preemptionPolicy="Never")
    assert gone(play(node("n1", 2), queue("a"), queue("b"), given, late, config=RECLAIM)) == []


def test_the_more_important_queue_is_first() -> None:
    queues = [queue("a", priority=1), queue("b", priority=10), queue("c", priority=5)]
    given = [waiting(name, of=name) for name in "abc"]
    assert list(play(node("n1", 2), queues, given).bound()) == ["b", "c"]


def test_the_less_important_queue_gives_back_first() -> None:
    queues = [queue("a", priority=9), queue("b", priority=1), queue("c")]
    given = [
        *(waiting(f"a-{i}", of="a") for i in range(2)),
        *(waiting(f"b-{i}", of="b") for i in range(2)),
    ]
    late = waiting("c", of="c", at="10s")
    assert gone(play(node("n1", 4), queues, given, late, config=RECLAIM)) == ["b-1"]


@pytest.mark.parametrize("config", [PREEMPT, RECLAIM])
def test_nobody_goes_for_those_a_job_could_do_without(config: Raw) -> None:
    queues = [queue("q", deserved={"cpu": "2"}), queue("r", deserved={"cpu": "6"})]
    of = "q" if config is PREEMPT else "r"
    high = [pod_group("g", 4, queue=of), *gang("g", 8, at="10s", priority=10)]
    played = play(node("n1", 8), queues, lows(8), high, config=config)
    assert len(gone(played)) == 4
    assert len([name for name in played.bound() if name.startswith("g-")]) == 4


@pytest.mark.parametrize(("needs", "victims"), [("2", 2), ("4", 4), ("5", 0)])
def test_as_much_capacity_is_freed_as_the_job_needs_as_a_whole_or_none(
    needs: str, victims: int
) -> None:
    spec: Raw = {"minResources": {"cpu": needs}}
    high = [pod_group("g", 2, **spec), *gang("g", 6, at="10s", priority=10)]
    played = play(node("n1", 4), [pod(f"low-{i}") for i in range(4)], high, config=PREEMPT)
    assert len(gone(played)) == victims


@pytest.mark.parametrize(
    "of_the_cluster", [{"metadata": {"namespace": "kube-system"}}, {"priority": 2_000_000_000}]
)
def test_what_the_cluster_itself_needs_is_not_reclaimed(of_the_cluster: Raw) -> None:
    given = [waiting(f"a-{i}", of="a", **of_the_cluster) for i in range(2)]
    late = waiting("b", of="b", at="10s")
    assert gone(play(node("n1", 2), queue("a"), queue("b"), given, late, config=RECLAIM)) == []


@pytest.mark.parametrize(("least", "victims"), [(1, 2), (2, 1), (3, 0)])
def test_those_a_job_can_do_without_go_though_others_of_it_must_not(least: int, victims: int) -> None:
    job = [pod_group("g", least, queue="a")]
    job += [pod(f"g-{i}", 1, group="g") for i in range(2)]
    job += [pod("g-2", 1, group="g", annotations={"volcano.sh/preemptable": "false"})]
    late = [waiting(f"b-{i}", of="b", at="10s") for i in range(2)]
    queues = [queue("a", deserved={"cpu": "1"}), queue("b", deserved={"cpu": "2"})]
    assert len(gone(play(node("n1", 3), queues, job, late, config=RECLAIM))) == victims
