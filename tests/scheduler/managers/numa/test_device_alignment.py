"""Devices come from the NUMA nodes their pods are on."""

import pytest

from harness.device_objects import device, gpu, minors
from harness.numa_objects import NUMA_SPEC, topology, zones
from harness.objects import Raw, node, pod
from harness.world import World

GPU = "koordinator.sh/gpu"


def wants(name: str, cpu: str, gpus: str, policy: str = "SingleNUMANode") -> Raw:
    annotations = {NUMA_SPEC: f'{{"numaTopologyPolicy": "{policy}"}}'} if policy else {}
    return pod(name, metadata={"annotations": annotations}, requests={"cpu": cpu, GPU: gpus})


def world(numa_of_gpus: tuple[int, ...] = (0, 0, 1, 1)) -> World:
    gpus = [gpu(minor, numa=numa) for minor, numa in enumerate(numa_of_gpus)]
    return World(node("n1"), topology(), device("n1", *gpus))


def test_gpus_are_on_the_numa_node_of_the_cpus() -> None:
    it = world().put(wants("a", "6", "100")).put(wants("b", "6", "100"))
    assert (list(zones(it, "a")), list(zones(it, "b"))) == ([0], [1])
    assert (minors(it, "a"), minors(it, "b")) == ([0], [2])


def test_a_numa_node_without_gpus_will_not_do() -> None:
    it = world((1, 1, 1, 1)).put(wants("a", "6", "100"))
    assert list(zones(it, "a")) == [1]
    it.put(wants("b", "6", "100"))
    assert it.node_of("b") == ""
    assert "1 Unaligned NUMA Hint cause" in it.message("b")


@pytest.mark.parametrize(("policy", "found"), [("Restricted", [0, 1, 2]), ("BestEffort", [0, 1, 2])])
def test_gpus_of_several_numa_nodes_need_several_numa_nodes(policy: str, found: list[int]) -> None:
    it = world().put(wants("a", "2", "300", policy))
    assert minors(it, "a") == found
    if policy == "Restricted":
        assert sorted(zones(it, "a")) == [0, 1]
