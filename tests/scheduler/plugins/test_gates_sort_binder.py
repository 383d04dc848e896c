"""SchedulingGates, PrioritySort and DefaultBinder."""

from __future__ import annotations

from harness.builders import make_node, make_pod
from harness.driver import Driver, profile_of
from holdfast.scheduler.cluster.decisions import Bind, Emit, ObjectRef


def test_a_gated_pod_waits_until_all_its_gates_are_gone() -> None:
    driver = Driver().add(make_node("n").obj())
    driver.add(make_pod("p").gate("a").gate("b").obj())
    assert driver.round(0.0) == []
    assert driver.queued_in(make_pod("p").obj()) == "gated"
    driver.update(make_pod("p").gate("b").obj())
    assert driver.round(1.0) == []
    driver.update(make_pod("p").obj())
    assert driver.binds(1.0) == {"p": "n"}


def test_a_gated_pod_says_what_it_waits_for() -> None:
    driver = Driver().add(make_pod("p").gate("a").gate("b").obj())
    gates = profile_of(driver.scheduler, "default-scheduler").plugins["SchedulingGates"]
    record = driver.record(make_pod("p").obj())
    assert gates.pre_enqueue(record) == "waiting for scheduling gates: [a b]"


def test_pods_are_tried_by_priority_then_age_then_name() -> None:
    driver = Driver().add(make_node("n").allocatable(cpu="100").obj())
    driver.at(1.0).add(make_pod("young").obj(), make_pod("important").priority(10).obj())
    driver.at(1.0).add(make_pod("alike").obj(), make_pod("least").priority(-5).obj())
    driver.at(2.0).add(make_pod("urgent").priority(10).obj(), make_pod("late").obj())
    assert list(driver.binds(3.0)) == ["important", "urgent", "alike", "young", "late", "least"]


def test_a_pod_is_bound_by_a_binding_and_told_so_when_it_is_done() -> None:
    driver = Driver().add(make_node("n").obj())
    pod = make_pod("p").obj()
    ref = ObjectRef("Pod", "default", "p", "uid-p")
    assert driver.add(pod).round(0.0) == [Bind(ref, "n")]
    assert driver.confirm(pod).round(0.0) == [
        Emit(ref, "Normal", "Scheduled", "Successfully assigned default/p to n", "Binding")
    ]
