"""NodeNUMAResource as a whole: which node, which CPUs, which NUMA nodes, and what is written."""

import pytest

from harness.numa_objects import SPEC, cpus, lsr, plain, reserved, status, topology, world, zones
from harness.objects import node, pod
from harness.world import World

FULL = '{"preferredCPUBindPolicy": "FullPCPUs"}'
SPREAD = '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'
SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'
RESTRICTED = '{"numaTopologyPolicy": "Restricted"}'
BEST_EFFORT = '{"numaTopologyPolicy": "BestEffort"}'


# CPUs of their own


@pytest.mark.parametrize(
    ("spec", "asked", "found"),
    [
        ("", "4", "0-3"),
        (FULL, "4", "0-3"),
        (SPREAD, "4", "0,2,4,6"),
        ('{"requiredCPUBindPolicy": "FullPCPUs"}', "4", "0-3"),
        ('{"requiredCPUBindPolicy": "SpreadByPCPUs"}', "4", "0,2,4,6"),
        ('{"preferredCPUBindPolicy": "Default"}', "2", "0-1"),
        (FULL, "8", "0-7"),
        (FULL, "10", "0-9"),
        (FULL, "3", "0-2"),
    ],
)
def test_cpus_are_taken_as_the_policy_says(spec: str, asked: str, found: str) -> None:
    it = world().put(lsr("p", asked, spec=spec))
    assert status(it, "p") == {"cpuset": found}


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
def test_what_was_decided_for_the_pod_is_written_back(qos: str) -> None:
    it = world().put(lsr("p", "2", qos=qos))
    annotations = it.objects["Pod", "p"]["metadata"]["annotations"]
    assert annotations[SPEC] == '{"preferredCPUBindPolicy":"FullPCPUs"}'


def test_nobody_gets_the_same_cpu_twice() -> None:
    it = world().put(lsr("a", "6")).put(lsr("b", "6")).put(lsr("c", "4")).put(lsr("d", "1"))
    assert cpus(it, "a") | cpus(it, "b") | cpus(it, "c") == set(range(16))
    assert it.node_of("d") == ""
    it.delete("Pod", "b")
    assert len(cpus(it, "d")) == 1


def test_numa_nodes_with_most_left_come_first_unless_the_node_says_otherwise() -> None:
    it = world().put(lsr("a", "2")).put(lsr("b", "2"))
    assert cpus(it, "b") == {8, 9}
    packed = world({"node.koordinator.sh/numa-allocate-strategy": "MostAllocated"})
    packed.put(lsr("a", "2")).put(lsr("b", "2"))
    assert cpus(packed, "b") == {2, 3}


@pytest.mark.parametrize(
    ("qos", "priority", "own"), [("LS", 0, False), ("LSR", 5500, False), ("LSR", 9500, True)]
)
def test_who_has_cpus_of_its_own(qos: str, priority: int, own: bool) -> None:
    it = world().put(lsr("p", "2", qos=qos, priority=priority))
    assert it.node_of("p") == "n1"
    assert bool(cpus(it, "p")) is own


def test_parts_of_cpus_are_nobodys_own() -> None:
    it = world().put(lsr("p", "1500m"))
    assert it.message("p").startswith("0/1 nodes are available: the requested CPUs must be integer.")


def test_without_a_topology_there_are_no_cpus_of_ones_own() -> None:
    it = World(node("n1")).put(lsr("p", "2"), pod("ordinary"))
    assert it.message("p").startswith("0/1 nodes are available: 1 node(s) invalid CPU Topology.")
    assert it.node_of("ordinary") == "n1"
    it.put(topology())
    assert it.node_of("p") == "n1"


def test_whole_cores_only_where_they_are_required() -> None:
    required = '{"requiredCPUBindPolicy": "FullPCPUs"}'
    it = world().put(lsr("odd", "3", spec=required))
    said = "0/1 nodes are available: 1 node(s) requested cpus not multiple cpus per core."
    assert it.message("odd").startswith(said)
    it.put(lsr("everywhere", "8", spec='{"requiredCPUBindPolicy": "SpreadByPCPUs"}'))
    it.put(lsr("whole", "2", spec=required))
    assert "1 not enough cpus available to satisfy request" in it.message("whole")
    it.put(lsr("any", "2"))
    assert it.node_of("any") == "n1"


def test_a_node_may_insist_on_how_cpus_are_bound() -> None:
    it = world({"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"})
    it.put(plain("ordinary", "2"), plain("part", "500m"))
    assert cpus(it, "ordinary") == {0, 1}
    assert "1 the requested CPUs must be integer" in it.message("part")
    it.put(lsr("spread", "2", spec='{"requiredCPUBindPolicy": "SpreadByPCPUs"}'))
    said = "1 node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    assert said in it.message("spread")


@pytest.mark.parametrize(
    ("policy", "second", "third"),
    [("PCPULevel", {4, 6}, {1, 3}), ("None", {1, 3}, {4, 6}), ("", {1, 3}, {4, 6})],
)
def test_those_who_want_cores_apart_have_them_as_long_as_it_goes(
    policy: str, second: set[int], third: set[int]
) -> None:
    spec = f'{{"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "{policy}"}}'
    it = world(cpus=8, numa=1).put(lsr("a", "2", spec=spec))
    it.put(lsr("b", "2", spec=spec)).put(lsr("c", "2", spec=spec))
    assert cpus(it, "a") == {0, 2}
    assert (cpus(it, "b"), cpus(it, "c")) == (second, third)


def test_those_who_want_numa_nodes_apart_have_them_as_long_as_it_goes() -> None:
    spec = '{"preferredCPUExclusivePolicy": "NUMANodeLevel"}'
    packed = {"node.koordinator.sh/numa-allocate-strategy": "MostAllocated"}
    it = world(packed).put(lsr("a", "2", spec=spec)).put(lsr("b", "2", spec=spec))
    it.put(lsr("c", "2", spec=spec))
    assert (cpus(it, "a"), cpus(it, "b"), cpus(it, "c")) == ({0, 1}, {8, 9}, {2, 3})


def test_cpus_of_kubelet_and_system_are_given_to_nobody() -> None:
    closed = {
        "kubelet.koordinator.sh/cpu-manager-policy": '{"policy": "static", "reservedCPUs": "0-1"}',
        "node.koordinator.sh/reservation": '{"reservedCPUs": "2"}',
        "node.koordinator.sh/pod-cpu-allocs": (
            '[{"uid": "x", "cpuset": "4-5", "managedByKubelet": true}]'
        ),
    }
    it = world(cpus=8, numa=1, annotations=closed).put(lsr("p", "3", spec=SPREAD))
    assert cpus(it, "p") == {3, 6, 7}


def test_where_cpus_are_amplified_those_of_ones_own_count_for_more() -> None:
    ratio = {"node.koordinator.sh/resource-amplification-ratio": '{"cpu": 2.0}'}
    it = world(cpus=8, numa=1, node_annotations=ratio)
    it.edit("Node", "n1", status={"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}})
    it.put(lsr("own", "6")).put(plain("fits", "4"), plain("no", "5"))
    assert (it.node_of("own"), it.node_of("fits"), it.node_of("no")) == ("n1", "n1", "")
    assert "1 Insufficient amplified cpu" in it.message("no")


@pytest.mark.parametrize(
    ("told", "offered", "asked", "said"),
    [
        (4, "16", "6", "1 not enough cpus available to satisfy request"),
        (32, "4", "6", "1 Insufficient cpu"),
    ],
)
def test_a_topology_that_contradicts_its_node_sells_nothing_twice(
    told: int, offered: str, asked: str, said: str
) -> None:
    it = World(node("n1", cpu=offered), topology(cpus=told)).put(lsr("p", asked))
    assert said in it.message("p")
    it.put(lsr("q", "4"))
    assert len(cpus(it, "q")) == 4


def test_a_kubelet_that_comes_to_have_a_policy_is_heeded() -> None:
    it = world().put(plain("before", "6"))
    assert zones(it, "before") == {}
    it.put(topology(policies=["SingleNUMANodePodLevel"])).put(plain("after", "6"), plain("big", "9"))
    assert len(zones(it, "after")) == 1
    assert it.node_of("big") == ""


# NUMA nodes


def test_a_single_numa_node_has_all_or_nothing() -> None:
    it = world().put(plain("a", "6", numa=SINGLE)).put(plain("b", "6", numa=SINGLE))
    assert zones(it, "a") == {0: {"cpu": "6", "memory": "1Gi"}}
    assert zones(it, "b") == {1: {"cpu": "6", "memory": "1Gi"}}
    it.put(plain("c", "3", numa=SINGLE))
    said = "1 Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
    assert said in it.message("c")


def test_restricted_spans_numa_nodes_where_no_single_one_has_capacity() -> None:
    it = world().put(plain("a", "6", numa=RESTRICTED)).put(plain("b", "6", numa=RESTRICTED))
    it.put(plain("c", "3", numa=RESTRICTED))
    assert {numa: each["cpu"] for numa, each in zones(it, "c").items()} == {0: "1500m", 1: "1500m"}
    it.put(plain("d", "1", memory="30Gi", numa=RESTRICTED))
    assert "1 Unsatisfied NUMA memory" in it.message("d")


def test_best_effort_takes_what_there_is() -> None:
    it = world().put(plain("a", "6", numa=BEST_EFFORT)).put(plain("b", "6", numa=BEST_EFFORT))
    it.put(plain("c", "4", numa=BEST_EFFORT))
    assert sorted(zones(it, "c")) == [0, 1]


@pytest.mark.parametrize("where", ["label", "kubelet"])
def test_a_node_may_have_a_policy_for_all(where: str) -> None:
    labels = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"} if where == "label" else {}
    policies = ["SingleNUMANodePodLevel"] if where == "kubelet" else ["None"]
    it = world(labels, policies=policies).put(plain("a", "6")).put(plain("b", "6", memory="12Gi"))
    assert sorted([*zones(it, "a"), *zones(it, "b")]) == [0, 1]
    it.put(plain("other", "1", numa=RESTRICTED))
    assert "1 node(s) NUMA Topology policy not match" in it.message("other")


def test_memory_counts_by_numa_node_too() -> None:
    it = world().put(plain("a", "1", memory="12Gi", numa=SINGLE))
    it.put(plain("b", "1", memory="12Gi", numa=SINGLE), plain("c", "1", memory="5Gi", numa=SINGLE))
    assert it.node_of("c") == ""


def test_a_policy_needs_zones() -> None:
    it = world(zones=False).put(plain("a", "1", numa=SINGLE))
    assert "1 node(s) missing NUMA resources" in it.message("a")


def test_own_cpus_are_on_the_numa_node_that_was_chosen() -> None:
    it = world().put(plain("a", "6", numa=SINGLE)).put(lsr("b", "4", numa=SINGLE))
    assert list(zones(it, "a")) == [0]
    assert zones(it, "b") == {1: {"cpu": "4", "memory": "1Gi"}}
    assert cpus(it, "b") <= set(range(8, 16))


def test_a_restart_knows_who_has_which_cpus() -> None:
    it = world().put(lsr("a", "3")).put(lsr("b", "2", spec=SPREAD)).put(plain("c", "2", numa=SINGLE))
    manager = it.scheduler.cluster.managers.cpus
    before = (manager.free(0), manager.counts.free.tolist(), manager.counts.amounts.tolist())
    it.restart()
    it.settle()
    manager = it.scheduler.cluster.managers.cpus
    assert (manager.free(0), manager.counts.free.tolist(), manager.counts.amounts.tolist()) == before


def test_a_refused_bind_gives_the_cpus_back() -> None:
    it = world(cpus=4, numa=1)
    it.refuse.add("pod-a")
    it.put(lsr("a", "4"))
    assert it.node_of("a") == ""
    it.put(lsr("b", "4"))
    assert it.node_of("b") == "n1"


# Reservations


def test_an_owner_gets_the_reserved_cpus() -> None:
    it = world().put(reserved("r", "4"))
    held = cpus(it, "r", "Reservation")
    assert len(held) == 4
    it.put(lsr("stranger", "12")).put(lsr("late", "1"))
    assert not cpus(it, "stranger") & held
    assert it.node_of("late") == ""
    it.put(lsr("owner", "4", "own"))
    assert (cpus(it, "owner"), it.reservation_of("owner")) == (held, "r")


def test_what_is_reserved_comes_first_and_the_rest_from_the_node() -> None:
    it = world().put(reserved("r", "4")).put(lsr("owner", "6", "own"))
    assert it.reservation_of("owner") == "r"
    assert cpus(it, "r", "Reservation") < cpus(it, "owner")
    assert len(cpus(it, "owner")) == 6


@pytest.mark.parametrize(("each", "second"), [("2", 0), ("3", 2)])
def test_two_owners_share_reserved_cpus(each: str, second: int) -> None:
    """What the second gets beyond the reservation."""
    it = world().put(reserved("r", "4", allocateOnce=False))
    held = cpus(it, "r", "Reservation")
    it.put(lsr("a", each, "own")).put(lsr("b", each, "own"))
    assert (it.reservation_of("a"), it.reservation_of("b")) == ("r", "r")
    assert cpus(it, "a") < held
    assert not cpus(it, "a") & cpus(it, "b")
    assert len(cpus(it, "b") - held) == second


def test_restricted_owners_get_reserved_cpus_only() -> None:
    it = world().put(reserved("r", "4", allocateOnce=False, allocatePolicy="Restricted"))
    it.put(lsr("a", "3", "own")).put(lsr("b", "2", "own"))
    assert cpus(it, "a") < cpus(it, "r", "Reservation")
    assert it.node_of("b") == ""


def test_reserved_cpus_survive_a_restart() -> None:
    it = world().put(reserved("r", "4", allocateOnce=False)).put(lsr("a", "1", "own"))
    held = cpus(it, "r", "Reservation")
    it.restart()
    it.settle()
    it.put(lsr("stranger", "12")).put(lsr("other", "1"))
    assert it.node_of("other") == ""
    it.put(lsr("b", "3", "own"))
    assert cpus(it, "a") | cpus(it, "b") == held


@pytest.mark.parametrize(("size", "resized"), [("6", "True"), ("2", "True"), ("16", "False")])
def test_a_reservation_of_another_size_holds_other_cpus(size: str, resized: str) -> None:
    it = world().put(reserved("r", "4", allocateOnce=False)).put(lsr("a", "2"))
    it.edit("Reservation", "r", spec__template=reserved("r", size)["spec"]["template"])
    assert it.condition("r", "Resized")["status"] == resized
    assert len(cpus(it, "r", "Reservation")) == (int(size) if resized == "True" else 4)
    assert not cpus(it, "r", "Reservation") & cpus(it, "a")
