"""Which jobs will have waited too long, and when."""

import pytest

from builders import make_pod
from holdfast.scheduler.actions.reserve import Countdown
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClasses
from holdfast.scheduler.cluster.pods import Phase, PodRecord

_CLASS = PodClasses(NodeTable().slot).acquire(make_pod("any").obj())


@pytest.fixture
def countdown() -> Countdown:
    return Countdown()


def waiting(name: str) -> PodRecord:
    return PodRecord(ObjectRef("Pod", "default", name, name), _CLASS, "default-scheduler", 0.0)


def served(pod: PodRecord) -> PodRecord:
    pod.phase = Phase.ASSIGNED
    return pod


def test_each_is_due_once_and_in_turn(countdown: Countdown) -> None:
    late, soon = waiting("late"), waiting("soon")
    countdown.put("late", 20, late)
    countdown.put("soon", 10, soon)
    assert countdown.next() == 10
    assert list(countdown.over(10)) == [("soon", soon)]
    assert list(countdown.over(10)) == []
    assert countdown.next() == 20


def test_what_was_said_last_holds(countdown: Countdown) -> None:
    pod = waiting("p")
    for due in (10, 30, 20):
        countdown.put("p", due, pod)
    assert countdown.next() == 20
    assert list(countdown.over(40)) == [("p", pod)]


def test_who_is_served_is_never_due(countdown: Countdown) -> None:
    pod = waiting("p")
    countdown.put("p", 10, pod)
    served(pod)
    assert countdown.next() is None
    assert list(countdown.over(10)) == []


def test_a_job_is_due_if_another_of_its_pods_waits(countdown: Countdown) -> None:
    first, other = waiting("first"), waiting("other")
    countdown.put("job", 10, first)
    served(first)
    countdown.put("job", 10, other)
    assert list(countdown.over(10)) == [("job", other)]


def test_those_who_were_served_are_not_kept_until_they_would_be_due(countdown: Countdown) -> None:
    patient = waiting("patient")
    countdown.put("patient", 10, patient)  # ahead of them all
    for number in range(5000):
        countdown.put(number, 1e6, served(waiting("p")))
    assert len(countdown) <= 1001
    assert list(countdown.over(10)) == [("patient", patient)]
