"""Pods that differ only in labels and owners wait as one group, until something tells them apart."""

from __future__ import annotations

from typing import Any

from harness.builders import PodBuilder, make_node, make_pod, make_reservation
from harness.driver import Driver, default_driver


def tenant(cpu: str = "4") -> PodBuilder:
    return make_pod("tenant").cpu(cpu).on("n")


def job(number: int, cpu: str = "2") -> PodBuilder:
    """A pod with labels and an owner of its own."""
    return (
        make_pod(f"job-{number}")
        .cpu(cpu)
        .label("job", f"job-{number}")
        .owned_by("Job", f"job-{number}")
    )


def full(*objects: Any) -> Driver:
    node = make_node("n").allocatable(cpu="4", memory="8Gi", pods=10)
    driver = default_driver(node.obj(), tenant().obj(), *objects)
    driver.round()
    return driver


def groups(driver: Driver) -> list[list[str]]:
    """The names of the pods of each group."""
    return sorted(sorted(pod.name for pod in group.pods.values()) for group in driver.queue.groups())


def attempts(driver: Driver, *pods: PodBuilder) -> list[int]:
    return [driver.record(pod.obj()).attempts for pod in pods]


def test_pods_with_an_owner_of_their_own_are_one_group() -> None:
    jobs = [job(i) for i in range(5)]
    driver = full(*(each.obj() for each in jobs))
    assert groups(driver) == [[f"job-{i}" for i in range(5)]]
    assert len({driver.record(each.obj()).cls.id for each in jobs}) == 5


def test_other_requests_priorities_and_selectors_are_other_groups() -> None:
    jobs = [job(0), job(1, cpu="1"), job(2).priority(-5), job(3).node_selector({"a": "b"}), job(4)]
    driver = full(*(each.obj() for each in jobs))
    assert groups(driver) == [["job-0", "job-4"], ["job-1"], ["job-2"], ["job-3"]]


def test_one_of_them_goes_ahead_and_the_others_follow_as_far_as_there_is_room() -> None:
    jobs = [job(i) for i in range(5)]
    driver = full(*(each.obj() for each in jobs))
    driver.at(100.0).delete(tenant().obj())
    assert driver.binds() == {"job-0": "n", "job-1": "n"}
    assert attempts(driver, *jobs[2:]) == [2, 1, 1]


def test_a_freed_place_that_is_too_small_costs_one_attempt() -> None:
    jobs = [job(i) for i in range(5)]
    driver = full(*(each.obj() for each in jobs))
    driver.at(100.0).update(tenant("3").obj())
    assert driver.binds() == {}
    assert sum(attempts(driver, *jobs)) <= 6


def test_a_reservation_for_one_of_them_divides_the_group() -> None:
    """The first finds no node, but the third does."""
    jobs = [job(i) for i in range(3)]
    driver = full(*(each.obj() for each in jobs))
    reserved = make_reservation("r").cpu("2").owner_labels({"job": "job-2"}).available("m")
    driver.at(100.0).add(
        make_node("m").allocatable(cpu="2", memory="8Gi", pods=9).obj(), reserved.obj()
    )
    assert driver.binds() == {"job-2": "m"}


def test_anti_affinity_against_one_of_them_divides_the_group() -> None:
    """The first may not go to the node, but the second may."""
    guard = (
        make_pod("guard").cpu("1").on("n").pod_anti_affinity("kubernetes.io/hostname", {"job": "job-0"})
    )
    jobs = [job(i) for i in range(3)]
    node = (
        make_node("n").label("kubernetes.io/hostname", "n").allocatable(cpu="4", memory="8Gi", pods=9)
    )
    driver = default_driver(node.obj(), tenant().obj(), *(each.obj() for each in jobs))
    driver.round()
    assert groups(driver) == [["job-0", "job-1", "job-2"]]
    driver.at(50.0).add(guard.obj())
    driver.at(100.0).delete(tenant().obj())
    assert driver.binds() == {"job-1": "n"}
    driver.at(200.0).delete(guard.obj())
    assert driver.binds() == {"job-0": "n"}
