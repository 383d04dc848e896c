"""What nodes say of their CPUs, said otherwise than one would like."""

import msgspec
import pytest

from harness.numa_objects import STATUS, cpus, lsr, plain, reserved, status, topology, world, zones
from harness.objects import Raw, node
from harness.world import World

DETAIL = "node.koordinator.sh/cpu-topology"
SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'


def told(**of_each: object) -> Raw:
    """A topology whose CPUs are told otherwise; what is callable is asked."""
    it = topology()
    annotations = it["metadata"]["annotations"]
    detail = msgspec.json.decode(annotations[DETAIL])
    for cpu in detail["detail"]:
        for name, value in of_each.items():
            cpu[name] = value(cpu) if callable(value) else value
    annotations[DETAIL] = msgspec.json.encode(detail).decode()
    return it


def test_cores_may_be_numbered_anew_on_each_socket() -> None:
    it = World(node("n1"), told(core=lambda cpu: cpu["core"] % 4)).put(lsr("a", "4"))
    assert status(it, "a") == {"cpuset": "0-3"}


def test_a_node_need_not_know_its_sockets_and_numa_nodes() -> None:
    it = World(node("n1"), told(node=-1, socket=-1)).put(lsr("a", "4"))
    assert status(it, "a") == {"cpuset": "0-3"}


@pytest.mark.parametrize(
    "text",
    ['{"cpuset": "0-4000000000"}', '{"cpuset": 5}', '{"cpuset": "9-3"}', "[]", '{"cpuset": "-1"}'],
)
def test_who_says_nonsense_of_its_cpus_is_taken_to_have_some(text: str) -> None:
    said = lsr("said", "4")
    said["spec"]["nodeName"] = "n1"
    said["metadata"]["annotations"] = {STATUS: text}
    it = world(cpus=8, numa=1).put(said).put(lsr("a", "4"), lsr("b", "1"))
    assert len(cpus(it, "a")) == 4
    assert it.node_of("b") == ""


@pytest.mark.parametrize("name", ["node-100000000000", "node-99", "node-", "node-x", "nodes"])
def test_numa_nodes_nobody_has_are_not_believed(name: str) -> None:
    it = topology()
    it["zones"][1]["name"] = name
    found = World(node("n1"), it).put(plain("a", "8", numa=SINGLE), plain("b", "8", numa=SINGLE))
    assert sorted([*zones(found, "a"), *zones(found, "b")]) == [0]


def test_a_numa_node_that_has_none_of_a_resource_serves_nobody_who_asks_for_it() -> None:
    it = topology()
    it["zones"][0]["resources"].pop()
    assert list(zones(World(node("n1"), it).put(plain("a", "4", numa=SINGLE)), "a")) == [1]


def test_cpus_of_system_daemons_are_given_to_nobody() -> None:
    key = "node.koordinator.sh/system-qos-resource"
    it = world(cpus=8, numa=1, annotations={key: '{"cpuset": "0-1"}'}).put(lsr("a", "6"))
    assert cpus(it, "a") == set(range(2, 8))
    shared = {key: '{"cpuset": "0-1", "cpusetExclusive": false}'}
    assert len(cpus(world(cpus=8, numa=1, annotations=shared).put(lsr("a", "8")), "a")) == 8


def test_owners_get_what_is_left_of_reserved_cpus_that_vanished() -> None:
    it = world().put(reserved("r", "8", allocateOnce=False)).put(lsr("stranger", "8"))
    assert cpus(it, "r", "Reservation") == set(range(8))
    it.put(topology(cpus=4)).put(lsr("owner", "4", "own"))
    assert cpus(it, "owner") == {0, 1, 2, 3}
    it.put(lsr("next", "2", "own"))
    assert it.node_of("next") == ""


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("SingleNUMANode", "cpu prefer [10] among [10],memory prefer [10] among [10 11]"),
        ("Restricted", "cpu prefer [10] among [10] & memory prefer [10 11] among [10 11]"),
    ],
)
def test_what_is_said_where_pods_keep_away_from_each_other(policy: str, said: str) -> None:
    """The first has CPUs of both NUMA nodes, so that no pod may be on one of them alone."""
    it = world().put(lsr("wide", "10"))
    it.put(plain("a", "2", numa=f'{{"numaTopologyPolicy": "{policy}"}}'))
    assert f"1 Unaligned NUMA Hint cause {said}." in it.message("a")


def test_what_is_said_of_four_numa_nodes() -> None:
    it = world(cpus=16, numa=4, memory=4).put(plain("a", "1", "13Gi", numa=SINGLE))
    said = "cpu prefer [1111] among [1111],memory prefer [1111] among [1111]"
    assert f"1 Unaligned NUMA Hint cause {said}." in it.message("a")
    it.put(plain("b", "1", "17Gi", numa=SINGLE))
    assert "1 Unsatisfied NUMA cpu, 1 Unsatisfied NUMA memory." in it.message("b")
