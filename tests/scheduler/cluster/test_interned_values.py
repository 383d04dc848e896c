"""What is kept by names that objects bring goes with the last of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from harness.builders import PodBuilder, make_node, make_pod, make_reservation
from harness.driver import Driver
from holdfast.scheduler.cluster.affinity_terms import terms_of
from holdfast.scheduler.cluster.class_key import (
    MAX_NODE_KEYS,
    MAX_POD_TERMS,
    MAX_PORTS,
    MAX_RESOURCES,
    MAX_SPREAD,
)
from holdfast.scheduler.cluster.decisions import SetPodScheduled
from holdfast.scheduler.state.recount import interned

MANY = 120
IDLE = 32


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Nothing may wait for the garbage collector, which comes when it likes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def driver() -> Driver:
    d = Driver()
    for i in range(4):
        d.add(make_node(f"n{i}").zone(f"z{i % 2}").allocatable(cpu=1000, pods=10_000).obj())
    d.add(make_pod("base").obj())
    d.round()
    return d


def known(d: Driver) -> dict[str, int]:
    return interned(d.scheduler.cluster)


PODS: dict[str, Callable[[int], PodBuilder]] = {
    "topology keys": lambda i: make_pod(f"p{i}").pod_anti_affinity(f"key-{i}", {"app": "a"}),
    "topology keys nodes have": lambda i: (
        make_pod(f"p{i}").label("app", f"a{i}").pod_affinity("zone", {"app": f"a{i}"}, weight=1)
    ),
    "preferred terms": lambda i: (
        make_pod(f"p{i}")
        .label("app", "same")
        .pod_anti_affinity("topology.kubernetes.io/zone", {"app": "same", "n": f"{i}"}, weight=1)
    ),
    "spread": lambda i: make_pod(f"p{i}").spread(f"key-{i}", when="ScheduleAnyway"),
    "node selector": lambda i: make_pod(f"p{i}").node_selector({f"key-{i}": "x"}),
    "node affinity": lambda i: make_pod(f"p{i}").node_affinity_in(f"key-{i}", ["x", "y"]),
    "resources": lambda i: make_pod(f"p{i}").requests({f"example.com/r{i}": "1"}),
    "labels": lambda i: make_pod(f"p{i}").label(f"key-{i}", "x"),
    "host ports": lambda i: make_pod(f"p{i}").host_port(1000 + i),
}


@pytest.mark.parametrize("kind", PODS)
def test_what_pods_bring_goes_with_them(kind: str) -> None:
    d = driver()
    before = known(d)
    for turn in range(2):
        pods = [PODS[kind](i + turn * MANY).obj() for i in range(MANY)]
        d.add(*pods)
        d.round(d.now + 1)
        assert sum(known(d).values()) >= sum(before.values()) + MANY
        d.delete(*pods)
        d.round(d.now + 1)
        after = known(d)
        idle = after.pop("classes") - before["classes"]
        assert idle <= IDLE
        assert after == {name: count for name, count in before.items() if name != "classes"}


def test_names_live_as_long_as_one_pod_has_them() -> None:
    d = driver()
    before = known(d)
    pods = [
        make_pod(f"p{i}").requests({"example.com/x": "1"}).label("n", f"{i}").obj() for i in range(3)
    ]
    for left in range(3, 0, -1):
        if left == 3:
            d.add(*pods)
        d.round(d.now + 1)
        assert known(d)["slots"] == before["slots"] + 1
        d.delete(pods[left - 1])
    d.round(d.now + 1)
    assert known(d)["slots"] == before["slots"]


def test_a_slot_given_again_counts_the_new_resource_alone() -> None:
    d = driver()
    slots = d.scheduler.cluster.nodes.slots
    old = make_pod("old").requests({"example.com/old": "1"}).obj()
    d.add(old)
    assert "Insufficient example.com/old" in d.messages(d.now + 1)["old"]
    slot = slots.find("example.com/old")
    d.delete(old)
    d.round(d.now + 1)
    assert slots.find("example.com/old") is None
    offering = make_node("n9").allocatable({"example.com/new": "2", "cpu": "4", "pods": "10"}).obj()
    d.add(offering, make_pod("new").requests({"example.com/new": "2"}).obj())
    assert slots.find("example.com/new") == slot
    assert d.binds(d.now + 1) == {"new": "n9"}
    d.add(make_pod("another").requests({"example.com/new": "1"}).obj())
    assert "Insufficient example.com/new" in d.messages(d.now + 1)["another"]
    d.delete(offering)
    d.round(d.now + 1)
    assert slots.find("example.com/new") == slot, "pods still ask for it"


def test_what_nodes_bring_goes_with_them() -> None:
    d = driver()
    selecting = make_pod("selecting").node_affinity("rack", "NotIn", ["none"]).obj()
    tolerant = make_pod("tolerant").toleration("k5", operator="Exists").label("a", "b").obj()
    d.add(selecting, tolerant)
    d.round(d.now + 1)
    before = known(d)
    for turn in range(3):
        nodes = [
            make_node(f"m{turn}-{i}")
            .label("rack", f"r{turn}-{i}")
            .taint(f"k{i}", f"{turn}")
            .image(f"image-{turn}-{i}")
            .allocatable({f"example.com/n{turn}-{i}": 1, "cpu": 1, "pods": 10})
            .obj()
            for i in range(MANY)
        ]
        d.add(*nodes)
        d.round(d.now + 1)
        during = known(d)
        assert all(
            during[name] >= before[name] + MANY
            for name in ("label values", "taint sets", "images", "slots")
        )
        d.delete(*nodes)
        d.round(d.now + 1)
        assert known(d) == before
    columns = {column.key: column for column in d.scheduler.cluster.nodes.labels.known()}
    assert len(columns["rack"].values) <= MANY + 1, "codes are given again"


def test_codes_given_again_mean_what_they_stand_for_now() -> None:
    d = driver()
    only = make_pod("only").node_affinity_in("rack", ["good", "better"]).obj()
    tolerant = make_pod("tolerant").node_selector({"rack": "bad"}).toleration("t", "good").obj()
    for i in range(4):
        d.delete(make_node(f"n{i}").obj())
    d.add(only, tolerant)
    for rack, expected in (("bad", ""), ("good", "n"), ("worse", ""), ("better", "n")):
        there = make_node("n").label("rack", rack).taint("u", effect="PreferNoSchedule").obj()
        d.add(there)
        assert d.answer(only).node == expected
        d.delete(there)
    for value, expected in (("bad", ""), ("good", "n"), ("worse", ""), ("good", "n")):
        there = make_node("n").label("rack", "bad").taint("t", value).obj()
        d.add(there)
        assert d.answer(tolerant).node == expected
        d.delete(there)
    assert d.scheduler.cluster.nodes.taints.in_use() == 1


def test_what_reservations_bring_goes_with_them() -> None:
    d = driver()
    before = known(d)
    reservations = [
        make_reservation(f"r{i}").requests({f"example.com/r{i}": "1", "cpu": "1"}).obj()
        for i in range(MANY)
    ]
    d.add(*reservations)
    d.round(d.now + 1)
    assert known(d)["slots"] == before["slots"] + MANY
    d.delete(*reservations)
    d.round(d.now + 1)
    after = known(d)
    assert after.pop("classes") <= before.pop("classes") + IDLE
    assert after == before


def test_terms_of_keys_no_node_has_matter_once_a_node_has_one() -> None:
    d = driver()
    first = make_pod("first").label("app", "a").pod_anti_affinity("rack", {"app": "a"}).obj()
    d.add(first)
    node = d.binds(d.now + 1)["first"]
    racks = [
        make_node(f"n{i}").zone(f"z{i % 2}").label("rack", "r").allocatable(cpu=1000, pods=100)
        for i in range(4)
    ]
    d.update(*[each.obj() for each in racks])
    second = make_pod("second").label("app", "a").obj()
    d.add(second)
    assert "existing pods anti-affinity" in d.messages(d.now + 1)["second"]
    assert node.startswith("n")


def too_much(kind: str) -> PodBuilder:
    pod = make_pod("large")
    match kind:
        case "terms":
            for i in range(MAX_POD_TERMS + 1):
                pod.pod_anti_affinity(f"key-{i}", {"app": "a"})
        case "spread":
            for i in range(MAX_SPREAD + 1):
                pod.spread(f"key-{i}")
        case "selector":
            pod.node_selector({f"key-{i}": "x" for i in range(MAX_NODE_KEYS + 1)})
        case "resources":
            pod.requests({f"example.com/r{i}": "1" for i in range(MAX_RESOURCES + 1)})
        case _:
            for i in range(MAX_PORTS + 1):
                pod.host_port(1000 + i)
    return pod


@pytest.mark.parametrize("kind", ["terms", "spread", "selector", "resources", "ports"])
def test_one_pod_may_bring_only_so_much(kind: str) -> None:
    d = driver()
    before = known(d)
    d.add(too_much(kind).obj())
    (said,) = [each for each in d.round(d.now + 1) if isinstance(each, SetPodScheduled)]
    assert said.reason == "SchedulerError"
    assert "exceed the limit of" in said.message
    assert known(d) == before


def test_a_node_with_too_many_resources_is_reported() -> None:
    d = driver()
    before = known(d)
    d.add(make_node("huge").allocatable({f"example.com/r{i}": 1 for i in range(600)}).obj())
    d.round(d.now + 1)
    assert known(d) == before
    assert d.scheduler.cluster.nodes.row("huge") is None


def test_ten_thousand_equal_terms_are_told_apart_in_linear_time() -> None:
    d = driver()
    pod = make_pod("p").pod_affinity("zone", {"app": "a"}, weight=1).obj()
    d.add(pod)
    cls = d.record(pod).cls
    assert cls.affinity is not None and cls.affinity.pod_affinity is not None
    preferred = cls.affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution
    preferred *= 10_000
    assert [own.repeat for own in terms_of(cls)] == [*range(10_000)]
