"""Which CPUs are taken: by NUMA node and socket, by core, by how full they are."""

import json

import pytest

from holdfast.api.decode import decode
from holdfast.api.node import NodeResourceTopology
from holdfast.scheduler.managers.numa.cpu_accumulator import BY_CORE, BY_NUMA, Apart, Manner, take_cpus
from holdfast.scheduler.managers.numa.node_topology import FULL_CORES, SPREAD, NodeTopology

WHOLE = Manner(FULL_CORES)
ONE_EACH = Manner(SPREAD)


def machine(sockets: int, numa: int, cores: int) -> NodeTopology:
    """So many sockets, NUMA nodes on each, cores on each of these, and two CPUs of each core; numbered
    one after the other."""
    cpus = [
        {"id": cpu, "core": cpu // 2, "socket": cpu // (2 * cores * numa), "node": cpu // (2 * cores)}
        for cpu in range(2 * cores * numa * sockets)
    ]
    topology = json.dumps({"detail": cpus})
    raw = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n", "annotations": {"node.koordinator.sh/cpu-topology": topology}},
        "zones": [],
    }
    made = decode(raw)
    assert isinstance(made, NodeResourceTopology)
    return NodeTopology(made)


def cpus(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


TWO = (2, 1, 4)
FOUR = (2, 2, 4)
SMALL = (2, 2, 2)


@pytest.mark.parametrize(
    ("shape", "used", "count", "manner", "fullest", "emptiest"),
    [
        pytest.param(TWO, "", 8, WHOLE, "0-7", "0-7", id="a whole socket"),
        pytest.param(TWO, "", 12, WHOLE, "0-11", "0-11", id="more than a socket"),
        pytest.param(TWO, "0-1", 8, WHOLE, "8-15", "8-15", id="the socket nobody is on"),
        pytest.param(FOUR, "0-5,16-23", 6, WHOLE, "24-29", "8-13", id="one of two NUMA nodes"),
        pytest.param(FOUR, "0-5,16-23", 12, WHOLE, "6-15,24-25", "6-15,24-25", id="most on one socket"),
        pytest.param(FOUR, "0-3,8-11", 4, WHOLE, "4-7", "16-19", id="where some are, or none"),
        pytest.param(
            SMALL, "0,2,4,8,12", 4, WHOLE, "10-11,14-15", "10-11,14-15", id="whole cores left"
        ),
        pytest.param(SMALL, "0,2,4,8,10,12", 6, WHOLE, "5-7,13-15", "1,3,6-7,14-15", id="and halves"),
        pytest.param(TWO, "", 4, ONE_EACH, "0,2,4,6", "0,2,4,6", id="one of each core"),
        pytest.param(TWO, "0,2", 4, ONE_EACH, "1,3,4,6", "8,10,12,14", id="of cores used by half"),
        pytest.param(TWO, "0-3", 4, ONE_EACH, "8,10,12,14", "8,10,12,14", id="enough cores elsewhere"),
        pytest.param(TWO, "0-3,8-11", 4, ONE_EACH, "4-7", "4-7", id="enough cores nowhere"),
        pytest.param(TWO, "0,2", 6, ONE_EACH, "1,3-7", "8-11,12,14", id="more than there are cores"),
    ],
)
def test_the_fullest_or_the_emptiest_that_will_do(
    shape: tuple[int, int, int], used: str, count: int, manner: Manner, fullest: str, emptiest: str
) -> None:
    topology = machine(*shape)
    free = set(topology.cpus) - cpus(used)
    for first, expected in ((True, fullest), (False, emptiest)):
        taken = take_cpus(topology, free, (), count, manner._replace(fullest=first), Apart())
        assert taken == cpus(expected)


@pytest.mark.parametrize(
    ("apart", "level", "manner", "expected"),
    [
        pytest.param("cores", BY_CORE, ONE_EACH, "8,10,12,14", id="not the cores of others"),
        pytest.param("cores", "", ONE_EACH, "1,3,4,6", id="who does not mind"),
        pytest.param("numa", BY_NUMA, ONE_EACH, "8,10,12,14", id="not the NUMA nodes of others"),
        pytest.param("numa", BY_NUMA, WHOLE, "8-11", id="whole cores there"),
        pytest.param("numa", "", WHOLE, "4-7", id="whole cores, and does not mind"),
    ],
)
def test_who_wants_to_be_apart(apart: str, level: str, manner: Manner, expected: str) -> None:
    topology = machine(*TWO)
    others = Apart(frozenset({0, 1})) if apart == "cores" else Apart(numa=frozenset({0}))
    wish = manner._replace(fullest=True, apart=level)
    assert take_cpus(topology, set(topology.cpus) - {0, 2}, (), 4, wish, others) == cpus(expected)


@pytest.mark.parametrize(
    ("count", "expected"), [(2, "11,13"), (4, "11,13,15,17"), (6, "11,13,15,17,32,34")]
)
def test_those_that_are_reserved_come_first(count: int, expected: str) -> None:
    topology = machine(2, 1, 16)
    taken = take_cpus(topology, topology.cpus, (11, 13, 15, 17), count, ONE_EACH, Apart())
    assert taken == cpus(expected)
