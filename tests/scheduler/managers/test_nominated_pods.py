"""Devices and CPUs that a nominated pod needs and no reservation holds: others get different ones."""

from typing import Any

import msgspec

from harness.device_objects import ALLOCATED, CORE, GIB, MEMORY, RATIO, minors, with_gpus
from harness.numa_objects import cpus, lsr, world
from harness.objects import Raw, pod, reservation
from harness.world import World

GPU = "koordinator.sh/gpu"
SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'


def share(name: str, percent: int, **more: Any) -> Raw:
    return pod(name, requests={GPU: str(percent)}, **more)


def running(name: str, minor: int, percent: int, **more: Any) -> Raw:
    amounts = {CORE: percent, RATIO: percent, MEMORY: percent * 16 * GIB // 100}
    part = {"minor": minor, "resources": amounts}
    text = msgspec.json.encode({"gpu": [part]}).decode()
    meta = {"annotations": {ALLOCATED: text}}
    return share(name, percent, nodeName="n1", metadata=meta, **more)


def preempting() -> World:
    """Of two GPUs one has a pod that is on its way out for one that needs most of it."""
    it = with_gpus(2)
    it.creation_refusal = "no such kind"
    it.graceful = True
    it.put(running("low", 0, 30), running("other", 1, 30, priority=10))
    it.put(share("high", 80, priority=10))
    assert it.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    return it


def test_a_pod_gets_a_device_that_the_nominated_pod_does_not_need() -> None:
    it = preempting().put(share("again", 30))
    assert minors(it, "again") == [1]
    it.delete("Pod", "low")
    assert minors(it, "high") == [0]


def test_a_pod_that_needs_that_device_waits() -> None:
    it = preempting().put(share("again", 75))
    assert minors(it, "again") == []
    it.delete("Pod", "low")
    assert (minors(it, "high"), minors(it, "again")) == ([0], [])


def test_a_more_important_pod_takes_it() -> None:
    it = preempting().put(share("higher", 70, priority=20))
    assert minors(it, "higher") == [0]


def test_a_reservation_gets_a_device_that_the_nominated_pod_does_not_need() -> None:
    it = preempting()
    it.creation_refusal = ""
    it.put(reservation("r", requests={GPU: "30"}, labels={"koordinator.sh/priority": "5"}))
    assert minors(it, "r", "Reservation") == [1]
    it.delete("Pod", "low")
    assert minors(it, "high") == [0]


def test_a_restart_changes_nothing_about_it() -> None:
    it = preempting()
    it.restart()
    it.settle()
    it.put(share("again", 30))
    assert minors(it, "again") == [1]
    it.delete("Pod", "low")
    assert minors(it, "high") == [0]


def test_a_pod_gets_cpus_of_another_numa_node_than_the_nominated_pod_needs() -> None:
    it = world()
    it.creation_refusal = "no such kind"
    it.graceful = True
    it.put(lsr("low", "2")).put(lsr("other", "2", numa=SINGLE, priority=10))
    assert (cpus(it, "low"), cpus(it, "other")) == ({0, 1}, {8, 9})
    it.put(lsr("high", "8", numa=SINGLE, priority=10))
    it.put(lsr("again", "2")).delete("Pod", "low")
    assert (cpus(it, "high"), cpus(it, "again")) == (set(range(8)), {10, 11})
