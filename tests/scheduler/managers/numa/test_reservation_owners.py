"""Owners that want their CPUs otherwise than the reservation has them."""

from typing import Any

import pytest

from harness.numa_objects import NUMA_SPEC, cpus, lsr, plain, reserved, world, zones
from harness.objects import Raw, reservation

SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'


def owner(name: str, cpu: str, memory: str = "4Gi", numa: str = SINGLE) -> Raw:
    it = plain(name, cpu, memory, numa)
    it["metadata"]["labels"] = {"app": "own"}
    return it


def on_one_numa_node(name: str, cpu: str, memory: str = "4Gi", **spec: Any) -> Raw:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    template = {
        "metadata": {"annotations": {NUMA_SPEC: SINGLE}},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    return reservation(name, app="own", template=template, allocateOnce=False, **spec)


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_reserved_capacity_may_become_cpus_of_ones_own(policy: str) -> None:
    """The reservation holds an amount of cpu; the owner draws that, and gets CPUs nobody else has."""
    held = reservation("r", app="own", cpu="4", allocateOnce=False, allocatePolicy=policy)
    it = world(cpus=8, numa=1).put(held).put(lsr("stranger", "4")).put(lsr("late", "1"))
    assert it.node_of("late") == ""
    it.put(lsr("owner", "4", "own"))
    assert (it.reservation_of("owner"), len(cpus(it, "owner"))) == ("r", 4)
    assert not cpus(it, "owner") & cpus(it, "stranger")


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_owners_are_on_the_numa_node_that_is_reserved_for_them(policy: str) -> None:
    it = (
        world()
        .put(plain("first", "2", numa=SINGLE))
        .put(on_one_numa_node("r", "4", allocatePolicy=policy))
    )
    assert list(zones(it, "r", "Reservation")) == [1]
    it.delete("Pod", "first").put(owner("owner", "4"))
    assert (list(zones(it, "owner")), it.reservation_of("owner")) == ([1], "r")
    it.put(plain("stranger", "8", numa=SINGLE)).put(plain("other", "5", numa=SINGLE))
    assert list(zones(it, "stranger")) == [0]
    assert it.node_of("other") == ""


def test_restricted_owners_get_reserved_capacity_of_numa_nodes_only() -> None:
    it = world().put(on_one_numa_node("r", "4", allocatePolicy="Restricted"))
    it.put(owner("a", "3", "1Gi")).put(owner("b", "2", "1Gi"))
    assert list(zones(it, "a")) == list(zones(it, "r", "Reservation"))
    assert it.node_of("b") == ""


def test_what_restricted_cpus_do_not_cover_comes_from_the_node() -> None:
    """The reservation holds no memory, so that of the NUMA node serves."""
    it = world().put(reserved("r", "4", allocateOnce=False, allocatePolicy="Restricted"))
    it.put(lsr("owner", "4", "own", numa=SINGLE))
    assert cpus(it, "owner") == cpus(it, "r", "Reservation")
    assert zones(it, "owner") == {0: {"cpu": "4", "memory": "1Gi"}}


def test_restricted_owners_get_no_other_cpus_however_they_want_them() -> None:
    """Four CPUs of four cores are not among four CPUs of two."""
    it = world().put(reserved("r", "4", allocateOnce=False, allocatePolicy="Restricted"))
    it.put(lsr("owner", "4", "own", spec='{"requiredCPUBindPolicy": "SpreadByPCPUs"}'))
    assert it.node_of("owner") == ""
    assert "1 Reservation(s) not enough cpus available to satisfy request" in it.message("owner")


@pytest.mark.parametrize("ends", ["a", "b"])
def test_capacity_of_a_numa_node_is_waited_for(ends: str) -> None:
    """Two CPUs on each of two NUMA nodes are not four on one; whichever is free first will do."""
    it = world().put(plain("a", "6", numa=SINGLE)).put(plain("b", "6", numa=SINGLE))
    it.put(on_one_numa_node("r", "4", preAllocation=True))
    assert (it.phase("r"), zones(it, "r", "Reservation")) == ("Waiting", {})
    where = list(zones(it, ends))
    it.delete("Pod", ends)
    assert (it.phase("r"), list(zones(it, "r", "Reservation"))) == ("Available", where)


def test_a_numa_node_that_has_capacity_now_is_not_waited_for() -> None:
    it = world().put(plain("a", "6", numa=SINGLE)).put(on_one_numa_node("r", "4", preAllocation=True))
    assert (it.phase("r"), list(zones(it, "r", "Reservation"))) == ("Available", [1])


def test_cpus_reserved_ahead_are_those_of_pods_and_not_of_other_reservations() -> None:
    it = world(cpus=8, numa=1).put(reserved("other", "4", "b")).put(lsr("pod", "4"))
    it.put(reserved("r", "4", preAllocation=True))
    assert it.phase("r") == "Waiting"
    theirs = cpus(it, "pod")
    it.delete("Pod", "pod")
    assert (it.phase("r"), cpus(it, "r", "Reservation")) == ("Available", theirs)
