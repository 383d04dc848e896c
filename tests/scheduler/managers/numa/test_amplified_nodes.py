"""Nodes that claim to have more CPUs than they have."""

import pytest

from harness.numa_objects import cpus, lsr, plain, reserved, topology, world, zones
from harness.objects import node, pod
from harness.world import World

RATIO = "node.koordinator.sh/resource-amplification-ratio"
SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'


def twice(numa: int = 1, text: str = '{"cpu": 2.0}') -> World:
    """Eight CPUs, which the node claims to be sixteen."""
    it = world(cpus=8, numa=numa, node_annotations={RATIO: text})
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return it.edit("Node", "n1", status={"allocatable": allocatable})


def test_owners_get_reserved_cpus_of_an_amplified_node() -> None:
    """All that the reservation counts for is theirs, and nobody else's."""
    it = twice().put(reserved("r", "8")).put(lsr("stranger", "1"), plain("other", "1"))
    assert "1 Insufficient amplified cpu" in it.message("stranger")
    assert (it.node_of("stranger"), it.node_of("other")) == ("", "")
    it.put(lsr("owner", "8", "own"))
    assert cpus(it, "owner") == set(range(8))


def test_reserved_cpus_count_for_more_too() -> None:
    it = twice().put(reserved("r", "4")).put(plain("nine", "9"), plain("eight", "8"))
    assert (it.node_of("nine"), it.node_of("eight")) == ("", "n1")
    it.put(lsr("owner", "4", "own"))
    assert (it.node_of("owner"), it.reservation_of("owner")) == ("n1", "r")


@pytest.mark.parametrize("text", ['{"cpu": "much"}', "[]", "{"])
def test_a_ratio_that_makes_no_sense_is_said_so(text: str) -> None:
    it = world(node_annotations={RATIO: text}).put(lsr("own", "2"), plain("plain", "1"))
    for name in ("own", "plain"):
        said = "0/1 nodes are available: 1 node(s) invalid CPU amplification ratio."
        assert it.message(name).startswith(said)
    it.put(pod("asks-for-no-cpu", requests={"memory": "1Gi"}))
    assert it.node_of("asks-for-no-cpu") == "n1"
    it.edit("Node", "n1", metadata__annotations={})
    assert (it.node_of("own"), it.node_of("plain")) == ("n1", "n1")


def test_a_ratio_that_makes_no_sense_needs_no_topology_to_be_noticed() -> None:
    odd = node("n1")
    odd["metadata"]["annotations"] = {RATIO: "{"}
    it = World(odd, node("n2")).put(plain("a", "1"))
    assert it.node_of("a") == "n2"


@pytest.mark.parametrize("ratio", ["1e308", "0", "-3", "0.5"])
def test_any_number_will_do(ratio: str) -> None:
    it = world(node_annotations={RATIO: f'{{"cpu": {ratio}}}'}).put(plain("a", "1", numa=SINGLE))
    assert it.node_of("a") == "n1"


def test_nobody_is_too_big_to_be_refused() -> None:
    it = twice(text='{"cpu": 1000}').put(plain("a", "9000000000000000"))
    assert it.node_of("a") == ""
    assert "1 Insufficient cpu" in it.message("a")


def test_numa_nodes_are_amplified_like_their_node() -> None:
    it = twice(2).put(plain("a", "7", numa=SINGLE)).put(plain("b", "7", numa=SINGLE))
    assert sorted([*zones(it, "a"), *zones(it, "b")]) == [0, 1]
    it.put(plain("c", "2", numa=SINGLE))
    assert it.node_of("c") == ""


def test_a_topology_that_names_a_ratio_is_amplified_already() -> None:
    it = twice(2).put(topology(cpus=8, numa=2, annotations={RATIO: '{"cpu": 2.0}'}))
    it.put(plain("a", "5", numa=SINGLE))
    assert "Unaligned NUMA Hint cause" in it.message("a")
