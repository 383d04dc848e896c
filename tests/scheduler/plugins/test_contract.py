"""Holdfast's own plugins use the contract that others use: run as if they came from outside, with their
answers checked and one row as an array of one, they say what they say in the tree."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.plugin import Plugin
from holdfast.plugin.testing import Cluster, check_plugin, node, pod, reservation
from holdfast.scheduler.framework.interface import ClusterPlugin
from holdfast.scheduler.plugins import IN_TREE
from holdfast.scheduler.plugins.image_locality import ImageLocality
from holdfast.scheduler.plugins.node_affinity import NodeAffinityPlugin
from holdfast.scheduler.plugins.node_ports import NodePorts
from holdfast.scheduler.plugins.taint_toleration import TaintToleration

Raw = dict[str, Any]
MB = 1024 * 1024
REACH_MORE = {
    "Coscheduling",
    "DefaultPreemption",
    "DeviceShare",
    "DynamicReservation",
    "DynamicResources",
    "InterPodAffinity",
    "LimitAware",
    "NodeNUMAResource",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "PrioritySort",
    "Reservation",
    "ReservationPreemption",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}
"""They keep a part of the core's state; see `ClusterPlugin`. The others read by their handle alone."""


def test_the_plugins_that_reach_more_than_their_handle() -> None:
    assert {plugin.name for plugin in IN_TREE if issubclass(plugin, ClusterPlugin)} == REACH_MORE


class OutsideAffinity(NodeAffinityPlugin):
    name = "OutsideAffinity"


class OutsideImages(ImageLocality):
    name = "OutsideImages"


class OutsidePorts(NodePorts):
    name = "OutsidePorts"


class OutsideTaints(TaintToleration):
    name = "OutsideTaints"


COPIES: dict[type[Plugin], str] = {
    OutsideAffinity: "NodeAffinity",
    OutsideImages: "ImageLocality",
    OutsidePorts: "NodePorts",
    OutsideTaints: "TaintToleration",
}


def some_node(random: Random, name: str) -> Raw:
    taints = random.sample(["a=1:NoSchedule", "b:PreferNoSchedule", "c:PreferNoSchedule"], k=2)
    made = node(
        name,
        labels={"zone": random.choice("xyz"), "cores": str(random.randrange(8))},
        taints=taints[: random.randrange(3)],
    )
    images = [f"example.com/{which}:1" for which in "abc" if random.random() < 0.5]
    made["status"]["images"] = [{"names": [each], "sizeBytes": 400 * MB} for each in images]
    return made


def some_pod(random: Random, name: str) -> Raw:
    key, operator, values = random.choice(
        [("zone", "In", ["x", "y"]), ("zone", "NotIn", ["x"]), ("cores", "Gt", ["3"])]
    )
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
    required = {"nodeSelectorTerms": [term, by_name]}
    affinity: Raw = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}]
    }
    if random.random() < 0.5:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
    made = pod(
        name,
        labels={"app": random.choice(("web", "db"))},
        tolerations=[{"key": random.choice("abc"), "operator": "Exists"}],
        nodeSelector={"zone": "y"} if random.random() < 0.2 else {},
        affinity={"nodeAffinity": affinity},
    )
    main = made["spec"]["containers"][0]
    main["image"] = f"example.com/{random.choice('abc')}:1"
    if random.random() < 0.5:
        main["ports"] = [{"containerPort": 80, "hostPort": random.choice((80, 81))}]
    return made


def ported(name: str, app: str) -> Raw:
    made = pod(name, labels={"app": app})
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return made


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.__name__)
def test_it_keeps_the_contract(copy: type[Plugin]) -> None:
    held = reservation("held", owners={"app": "web"})
    held["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    check_plugin(copy, seeds=range(3), node=some_node, pod=some_pod, objects=[held])


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.__name__)
def test_it_answers_as_in_the_tree(copy: type[Plugin]) -> None:
    for seed in range(5):
        random = Random(seed)
        cluster = Cluster(copy).add(*(some_node(random, f"n{i}") for i in range(6)))
        cluster.add(ported("there", "db")).schedule()
        for i in range(8):
            asked = some_pod(random, f"p{i}")
            ours, theirs = (
                (cluster.passes(asked, name), cluster.scores(asked, name))
                for name in (COPIES[copy], copy.name)
            )
            assert ours == theirs, (seed, asked)


def test_reserved_ports_are_free_to_owners_alone() -> None:
    held = reservation("held", owners={"app": "web"})
    held["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    cluster = Cluster(OutsidePorts).add(node("n"), held)
    cluster.schedule()
    assert cluster.passes(ported("web", "web")) == {"n": True}
    assert cluster.passes(ported("other", "db")) == {"n": False}
    cluster.add(ported("web", "web")).schedule()
    assert cluster.passes(ported("more", "web")) == {"n": False}
