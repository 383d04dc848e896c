"""Who is tried when: kube-scheduler's timing."""

from __future__ import annotations

from harness.builders import make_node, make_pod
from harness.driver import Driver
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClasses
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue

_classes = PodClasses(NodeTable().slot)


def record(name: str, priority: int = 0, first_seen: float = 0.0) -> PodRecord:
    cls = _classes.acquire(make_pod(name).priority(priority).obj())
    return PodRecord(ObjectRef("Pod", "default", name, name), cls, "default-scheduler", first_seen)


def make_queue() -> SchedulingQueue:
    return SchedulingQueue(lambda pod: (-pod.cls.priority, pod.first_seen, pod.name))


def reject(queue: SchedulingQueue, pod: PodRecord, now: float) -> None:
    queue.reject(pod, (0, pod.cls.id), Change.ANY, now)


def wake_all(queue: SchedulingQueue, now: float) -> None:
    for group in queue.groups():
        queue.wake(group, now)


def names(queue: SchedulingQueue, now: float) -> list[str]:
    popped = []
    while (pod := queue.pop(now)) is not None:
        popped.append(pod.name)
    return popped


def test_back_off_doubles_from_one_second_to_ten() -> None:
    queue, pod, now = make_queue(), record("p"), 0.0
    waits = []
    for _ in range(7):
        reject(queue, pod, now)
        wake_all(queue, now)
        assert queue.place("p") == "backoff"
        due = queue.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
        assert queue.pop(now) is pod
    assert waits == [1, 2, 4, 8, 10, 10, 10]


def test_back_off_is_configurable() -> None:
    queue = SchedulingQueue(lambda pod: (), initial_backoff=2.0, max_backoff=5.0)
    pod, waits = record("p"), []
    for _ in range(3):
        reject(queue, pod, 0.0)
        wake_all(queue, 0.0)
        waits.append(queue.next_due())
        queue.pop(10.0)
    assert waits == [2, 4, 5]


def test_a_woken_pod_is_tried_early_when_nothing_else_is_active() -> None:
    queue, pod, other = make_queue(), record("p", priority=9), record("other")
    reject(queue, pod, 0.0)
    wake_all(queue, 0.5)
    queue.add(other)
    assert names(queue, 0.5) == ["other", "p"]


def test_among_pods_tried_early_those_of_one_second_go_by_importance() -> None:
    queue = make_queue()
    for name, priority, failed in (("low", 0, 0.2), ("high", 9, 0.5), ("later", 99, 1.1)):
        reject(queue, record(name, priority), failed)
    wake_all(queue, 1.15)
    assert names(queue, 1.15) == ["high", "low", "later"]


def test_a_woken_pod_whose_back_off_is_over_takes_its_turn() -> None:
    queue, pod, other = make_queue(), record("p", priority=9), record("other")
    reject(queue, pod, 0.0)
    wake_all(queue, 1.0)
    queue.add(other)
    assert queue.place("p") == "active"
    assert names(queue, 1.0) == ["p", "other"]


def test_a_back_off_that_ends_while_waiting_brings_the_pod_its_turn() -> None:
    queue, pod, other = make_queue(), record("p", priority=9), record("other")
    reject(queue, pod, 0.0)
    wake_all(queue, 0.1)
    queue.add(other)
    assert names(queue, 1.0) == ["p", "other"]


def test_a_pod_whose_attempt_ended_in_an_error_is_not_tried_early() -> None:
    queue, pod = make_queue(), record("p")
    queue.retry_later(pod, 0.0)
    assert (queue.place("p"), queue.next_due()) == ("backoff", 1.0)
    assert names(queue, 0.99) == []
    assert names(queue, 1.0) == ["p"]


def test_a_pod_is_taken_from_its_place_only_if_it_may_be_tried_early() -> None:
    queue, pod = make_queue(), record("p")
    assert not queue.pop_pod(pod), "it is nowhere"
    reject(queue, pod, 0.0)
    assert queue.pop_pod(pod), "unschedulable"
    reject(queue, pod, 0.0)
    wake_all(queue, 0.0)
    assert (queue.place("p"), queue.pop_pod(pod)) == ("backoff", True)
    for is_error in (True, False):
        queue.retry_later(pod, 0.0, is_error)
        assert (queue.place("p"), queue.pop_pod(pod)) == ("backoff", False)
    due = queue.next_due()
    assert due is not None and names(queue, due) == ["p"]
    queue.add(pod)
    assert queue.pop_pod(pod), "active"


def test_errors_in_a_row_back_off_on_their_own_count() -> None:
    queue, pod, now, waits = make_queue(), record("p"), 0.0, []
    for _ in range(3):
        reject(queue, pod, now)
    for _ in range(3):
        queue.retry_later(pod, now)
        waits.append((queue.next_due() or 0.0) - now)
        now += 20
        assert queue.pop(now) is pod
    assert waits == [1, 2, 4]
    reject(queue, pod, now)
    wake_all(queue, now)
    assert queue.next_due() == now + 8, "the fourth time there was no node"


def test_unschedulable_pods_stay_until_woken() -> None:
    queue, pod = make_queue(), record("p")
    reject(queue, pod, 0.0)
    assert names(queue, 1000.0) == [] and queue.next_due() is None
    assert queue.place("p") == "unschedulable"


def test_gated_pods_stay_until_added() -> None:
    queue, pod = make_queue(), record("p")
    queue.gate(pod)
    assert names(queue, 1000.0) == [] and queue.counts()["gated"] == 1
    queue.add(pod)
    assert names(queue, 1000.0) == ["p"]


def test_a_pod_is_in_one_place_only() -> None:
    queue, pod = make_queue(), record("p")
    queue.add(pod)
    queue.gate(pod)
    queue.add(pod)
    queue.add(pod)
    reject(queue, pod, 0.0)
    wake_all(queue, 0.0)
    queue.retry_later(pod, 0.0)
    assert queue.counts() == {"active": 0, "backoff": 1, "unschedulable": 0, "gated": 0}
    queue.add(pod)
    assert names(queue, 100.0) == ["p"]
    assert len(queue) == 0


def test_a_forgotten_pod_is_nowhere() -> None:
    for enter in ("add", "gate"):
        queue, pod = make_queue(), record("p")
        getattr(queue, enter)(pod)
        queue.forget(pod)
        assert queue.place("p") is None and names(queue, 100.0) == []
    queue, pod = make_queue(), record("p")
    reject(queue, pod, 0.0)
    queue.forget(pod)
    assert list(queue.groups()) == []


def test_a_group_is_of_one_class() -> None:
    queue = make_queue()
    for name, priority in (("a", 0), ("b", 0), ("c", 5)):
        reject(queue, record(name, priority), 0.0)
    assert sorted(sorted(group.pods) for group in queue.groups()) == [["a", "b"], ["c"]]


# Through the whole scheduler


def full(*pods: Pod) -> Driver:
    """A node without room, and pods that were told so."""
    driver = Driver().add(make_node("n").allocatable(cpu="1").obj())
    driver.add(make_pod("tenant").cpu("1").on("n").obj(), *pods)
    driver.round(0.0)
    return driver


def test_capacity_wakes_those_it_can_help_most_important_first() -> None:
    pods = [make_pod(f"p{i}").cpu("1").priority(i).obj() for i in range(3)]
    driver = full(*pods)
    assert driver.delete(make_pod("tenant").obj()).binds(5.0) == {"p2": "n"}


def test_a_change_that_cannot_help_wakes_nobody() -> None:
    pod = make_pod("p").cpu("1").obj()
    driver = full(pod)
    driver.update(make_node("n").allocatable(cpu="1").label("a", "b").obj())
    driver.round(5.0)
    assert driver.record(pod).attempts == 1
    driver.update(make_node("n").allocatable(cpu="1500m").obj())
    driver.round(6.0)
    assert (driver.queued_in(pod), driver.record(pod).attempts) == ("unschedulable", 1)


def test_refused_binds_back_off_longer_each_time() -> None:
    pod = make_pod("p").obj()
    driver = Driver().add(make_node("n").obj(), pod)
    assert driver.binds(0.0) == {"p": "n"}
    waits = []
    for _ in range(6):
        assert driver.refuse(pod).binds(driver.now) == {}
        due = driver.scheduler.next_timer()
        assert due is not None
        waits.append(due - driver.now)
        assert driver.binds(due - 0.001) == {}
        assert driver.binds(due) == {"p": "n"}
    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_refused_bind_is_told_and_its_capacity_given_back() -> None:
    pod, other = make_pod("p").cpu("1").priority(1).obj(), make_pod("other").cpu("1").obj()
    driver = Driver().add(make_node("n").allocatable(cpu="1").obj(), pod, other)
    assert driver.binds(0.0) == {"p": "n"}
    driver.refuse(pod, message="pods is forbidden")
    decisions = driver.round(0.1)
    assert [d.message for d in decisions if hasattr(d, "message")] == ["pods is forbidden"] * 2
    assert driver.record(other).phase.value == "assumed", "the next in line has the room"


def test_a_pod_changed_during_its_back_off_waits_on() -> None:
    """An update is no way around an error's back-off."""
    pod = make_pod("p").obj()
    driver = Driver().add(make_node("n").obj(), pod)
    driver.round(0.0)
    driver.refuse(pod)
    driver.update(make_pod("p").label("a", "b").obj())
    assert driver.binds(0.5) == {}
    assert driver.binds(1.0) == {"p": "n"}


def test_a_pod_that_leaves_is_not_tried_again() -> None:
    pod = make_pod("p").obj()
    driver = Driver().add(make_node("n").obj(), pod)
    driver.round(0.0)
    driver.update(make_pod("p").deleted().obj()).refuse(pod)
    assert (driver.binds(100.0), driver.queued_in(pod)) == ({}, None)


def test_pods_of_other_schedulers_are_left_alone_but_counted() -> None:
    other = make_pod("other").cpu("1").scheduler("someone-else")
    driver = Driver().add(make_node("n").allocatable(cpu="1").obj(), other.obj())
    assert driver.binds(0.0) == {}
    driver.update(other.on("n").obj()).add(make_pod("p").cpu("1").obj())
    assert driver.messages(1.0) == {"p": "0/1 nodes are available: 1 Insufficient cpu."}


def test_the_story_of_a_pod() -> None:
    pod = make_pod("p").cpu("1").obj()
    driver = full(pod)
    driver.at(3.0).delete(make_pod("tenant").obj()).round()
    driver.at(4.0).refuse(pod, message="timeout").round()
    driver.round(5.0)
    driver.at(6.0).confirm(pod).at(7.0).delete(pod)
    lines = [
        f"{line.time:g} {line.what} {line.detail}".rstrip()
        for line in driver.scheduler.cluster.story("Pod/default/p")
    ]
    assert lines == [
        "0 added",
        "0 Unschedulable 0/1 nodes are available: 1 Insufficient cpu.",
        "3 decided n",
        "4 bind refused timeout",
        "4 SchedulerError timeout",
        "5 decided n",
        "6 bound",
        "7 deleted",
    ]


def test_pods_that_wait_no_more_are_forgotten_whoever_asks_for_those_refused() -> None:
    queue, pod = make_queue(), record("p")
    reject(queue, pod, 0.0)
    assert queue.refused == {"p": pod}
    queue.forget(pod)
    assert queue.refused == {}


def test_a_group_keeps_no_pods_that_have_left_it() -> None:
    """The first waits for good, so none of the others ever comes to the top."""
    queue = make_queue()
    reject(queue, record("first", first_seen=0.0), 0.0)
    for number in range(1000):
        pod = record(f"p{number}", first_seen=1.0 + number)
        reject(queue, pod, 0.0)
        queue.forget(pod)
    (group,) = queue.groups()
    assert list(group.pods) == ["first"]
    assert len(group.order) < 20


def test_numbers_of_groups_are_kept_as_long_as_the_groups() -> None:
    queue, stays = make_queue(), record("stays")
    number = queue.number("shape")
    queue.reject(stays, (0, number), Change.ANY, 0.0)
    seen = {number}
    for each in range(20_000):
        pod, other = record("p"), queue.number(("shape", each))
        queue.reject(pod, (0, other), Change.ANY, 0.0)
        assert queue.number(("shape", each)) == other
        queue.forget(pod)
        seen.add(other)
    assert len(seen) == 20_001 and max(seen) < 0
    assert len(queue.numbers) <= 1000
    assert queue.number("shape") == number
