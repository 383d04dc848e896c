"""Which jobs will have waited too long, and when."""

import pytest

from harness.builders import make_pod
from holdfast.scheduler.actions.reserve import StarvationTimers
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClasses
from holdfast.scheduler.cluster.records import Phase, PodRecord

_CLASS = PodClasses(NodeTable().slot).acquire(make_pod("any").obj())


@pytest.fixture
def timers() -> StarvationTimers:
    return StarvationTimers()


def waiting(name: str) -> PodRecord:
    return PodRecord(ObjectRef("Pod", "default", name, name), _CLASS, "default-scheduler", 0.0)


def served(pod: PodRecord) -> PodRecord:
    pod.phase = Phase.ASSIGNED
    return pod


def test_each_is_due_once_and_in_turn(timers: StarvationTimers) -> None:
    late, soon = waiting("late"), waiting("soon")
    timers.put("late", 20, late)
    timers.put("soon", 10, soon)
    assert timers.next() == 10
    assert list(timers.over(10)) == [("soon", soon)]
    assert list(timers.over(10)) == []
    assert timers.next() == 20


def test_what_was_said_last_holds(timers: StarvationTimers) -> None:
    pod = waiting("p")
    for due in (10, 30, 20):
        timers.put("p", due, pod)
    assert timers.next() == 20
    assert list(timers.over(40)) == [("p", pod)]


def test_who_is_served_is_never_due(timers: StarvationTimers) -> None:
    pod = waiting("p")
    timers.put("p", 10, pod)
    served(pod)
    assert timers.next() is None
    assert list(timers.over(10)) == []


def test_a_job_is_due_if_another_of_its_pods_waits(timers: StarvationTimers) -> None:
    first, other = waiting("first"), waiting("other")
    timers.put("job", 10, first)
    served(first)
    timers.put("job", 10, other)
    assert list(timers.over(10)) == [("job", other)]


def test_those_who_were_served_are_not_kept_until_they_would_be_due(timers: StarvationTimers) -> None:
    patient = waiting("patient")
    timers.put("patient", 10, patient)  # ahead of them all
    for number in range(5000):
        timers.put(number, 1e6, served(waiting("p")))
    assert len(timers) <= 1001
    assert list(timers.over(10)) == [("patient", patient)]
