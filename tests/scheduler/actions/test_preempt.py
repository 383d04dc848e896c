"""Pods preempt others only where `preempt` is among the actions."""

from typing import Any

import pytest

from harness.builders import make_node, make_pod, make_pod_group
from harness.driver import Driver
from harness.objects import gang, node, pod, pod_group, queue
from harness.scenarios import play, step
from holdfast.scheduler.cluster.decisions import Decision, Emit, Nominate, Preempt
from holdfast.scheduler.cluster.events import write_refused
from reference.setup import Setup

CROWDED = "0/1 nodes are available: 1 Insufficient cpu."


def full_cluster(**config: Any) -> Driver:
    driver = Driver((Setup(preempts=True),), **config)
    node = make_node("n1").allocatable(cpu="4", memory="8Gi").obj()
    there = make_pod("there").cpu("4").on("n1").obj()
    return driver.add(node, there, make_pod("urgent").cpu("4").priority(100).obj())


@pytest.mark.parametrize(
    "config",
    [{}, {"actions": "allocate, preempt"}, {"actions": [{"name": "preempt"}, {"name": "allocate"}]}],
)
def test_with_preempt_among_the_actions_pods_free_capacity(config: dict[str, Any]) -> None:
    decisions = full_cluster(**config).round()
    assert [d.pod.name for d in decisions if isinstance(d, Preempt)] == ["there"]
    assert [d.node for d in decisions if isinstance(d, Nominate)] == ["n1"]


@pytest.mark.parametrize("actions", ["allocate", "allocate, backfill, reserve", "reclaim, allocate"])
def test_without_it_they_stay_where_they_are(actions: str) -> None:
    driver = full_cluster(actions=actions)
    decisions = driver.round()
    assert not [d for d in decisions if isinstance(d, Preempt | Nominate)]
    assert driver.record(make_pod("urgent").obj()).condition_message == CROWDED


def victims(decisions: list[Decision]) -> list[tuple[str, str]]:
    return [(d.pod.name, d.preemptor.name) for d in decisions if isinstance(d, Preempt)]


def test_a_victim_is_sent_away_once_though_two_need_its_capacity() -> None:
    driver = Driver((Setup(preempts=True),))
    driver.add(make_node("n1").allocatable(cpu="4", memory="8Gi").obj())
    driver.add(*(make_pod(name).cpu("2").on("n1").obj() for name in ("a", "b")))
    driver.add(*(make_pod(f"urgent-{i}").cpu("2").priority(100).obj() for i in (1, 2)))
    decisions = driver.round()
    assert victims(decisions) == [("b", "urgent-1"), ("a", "urgent-2")]
    told = [d.about.name for d in decisions if isinstance(d, Emit) and d.reason == "Preempted"]
    assert told == ["b", "a"]


def test_when_a_victim_stays_all_who_counted_on_its_capacity_are_tried_again() -> None:
    driver = Driver((Setup(preempts=True),))
    driver.add(make_node("n1").allocatable(cpu="4", memory="8Gi").obj())
    there = make_pod("there").cpu("4").on("n1").obj()
    urgent = [make_pod(f"urgent-{i}").cpu("2").priority(100).obj() for i in (1, 2)]
    driver.add(there, *urgent)
    decisions = driver.round()
    assert victims(decisions) == [("there", "urgent-1")]
    refused = next(each for each in decisions if isinstance(each, Preempt))
    driver.update(there).feed(write_refused(refused, "forbidden"))
    assert victims(driver.round(20.0)) == [("there", "urgent-1")]
    assert [driver.record(pod).attempts for pod in urgent] == [2, 2]


def test_all_members_that_fit_after_a_preemption_have_the_capacity_kept_for_them() -> None:
    """One victim frees enough for three; the capacity must not go to others when it has ended."""
    driver = Driver((Setup(preempts=True, extra=("Coscheduling",)),))
    driver.add(make_node("n1").allocatable(cpu="6", memory="8Gi").obj())
    there = make_pod("there").cpu("5").on("n1").obj()
    driver.add(there, make_pod_group("g").min_member(4).obj())
    driver.add(*(make_pod(f"g-{i}").cpu("1").group("g").priority(10).obj() for i in range(4)))
    decisions = driver.round()
    assert victims(decisions) == [("there", "g-1")]
    nominated = {d.pod.name: d.node for d in decisions if isinstance(d, Nominate)}
    assert nominated == {f"g-{i}": "n1" for i in range(4)}
    driver.add(make_pod("first").cpu("3").priority(10).created("2025-12-31T00:00:00Z").obj())
    assert driver.delete(there).binds(60.0) == {f"g-{i}": "n1" for i in range(4)}


# Gangs that an estimate says have too little capacity


LOW: dict[str, Any] = {"priority": 0}
HIGH: dict[str, Any] = {"priority": 10}


@pytest.mark.parametrize("members", [2, 3, 5])
def test_a_gang_preempts_once_its_group_is_created(members: int) -> None:
    """Its pods had a condition before, which is not of nodes."""
    least = pod_group("g", members, at="10s")
    there = pod("there", 1, **LOW)
    played = play(node("n1", members), least, there, gang("g", members, at="5s", **HIGH), until=60)
    assert played.events("Pod/default/there", "Preempted") == [(10.0, "Preempted")]
    assert len(played.bound().keys() - {"there"}) == members


def test_a_gang_preempts_pods_that_came_after_it_was_tried() -> None:
    important = [pod("ends", 4, delete_at="20s", priority=50), pod("stays", 4, priority=50)]
    low = pod("low", 4, at="20s", nodeName="n1", **LOW)
    waits = gang("g", 3, at="5s", **HIGH)
    played = play(node("n1", 8), pod_group("g", 3), *important, low, waits, until=60)
    assert played.times("g-0", "g-1", "g-2") == [20, 20, 20]
    assert played.events("Pod/default/low", "Preempted") == [(20.0, "Preempted")]


def test_a_gang_that_cannot_fit_has_the_message_of_the_nodes_and_not_an_older_one() -> None:
    """Its group did not exist, its queue was closed, and its minimum was not free."""
    message = "0/1 nodes are available: 1 Insufficient cpu."
    shut, large = queue("q", state="Closed"), {"cpu": "9"}
    opened = step("20s", patch={"kind": "Queue", "name": "q", "merge": {"status": {"state": "Open"}}})
    fitting = {"spec": {"minResources": {"cpu": "1"}}}
    lowered = step("20s", patch={"kind": "PodGroup", "name": "g", "merge": fitting})
    for given in (
        [pod_group("g", 3, at="10s")],
        [shut, pod_group("g", 3, queue="q"), opened],
        [pod_group("g", 3, minResources=large), lowered],
    ):
        played = play(node("n1", 8), given, gang("g", 3, 3), until=60)
        assert message in {each.message for each in played.result.timeline}, given


@pytest.mark.parametrize("others", [0, 150])
def test_a_gang_is_woken_to_preempt_among_many_pods(others: int) -> None:
    """Above 100 groups of pods, conditions are not updated any more."""
    waiting = [pod(f"w{i}", 100 + i, **LOW) for i in range(others)]
    important = [pod("ends", 4, delete_at="20s", priority=50), pod("stays", 4, priority=50)]
    low = pod("low", 4, at="20s", nodeName="n1", **LOW)
    waits = gang("g", 3, at="5s", **HIGH)
    played = play(node("n1", 8), pod_group("g", 3), waiting, *important, low, waits, until=60)
    assert played.times("g-0", "g-1", "g-2") == [20, 20, 20]
