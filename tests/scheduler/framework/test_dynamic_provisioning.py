"""Pods that bring a reservation template, and the queues they are in."""

from typing import Any

from harness.objects import ID, in_queue, node, pod, queue, requesting, required, reservation
from harness.world import World


def asking(name: str, cpu: str) -> Any:
    raw = requesting(name, cpu, requirement=required("one", cpu=cpu))
    raw["metadata"]["annotations"].update(in_queue("q"))
    return raw


def test_a_created_reservation_does_not_bring_its_pod_past_the_limit_of_its_queue() -> None:
    it = World(node("n1", "8"), node("n2", "8"), queue("q", capability={"cpu": "8"}))
    it.put(pod("first", "6", annotations=in_queue("q")))
    it.put(asking("second", "6"))
    assert (it.node_of("first") != "", it.node_of("second")) == (True, "")
    it.put(reservation("mine", "6", labels={ID: "one"}))
    it.wait(60)
    assert it.node_of("second") == "", "the queue has 6 of 8"
    it.delete("Pod", "first")
    it.wait(60)
    assert it.node_of("second") != ""
