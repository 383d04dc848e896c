"""Random nodes and pods, made by nothing but choosing from short lists.

Choosing is a function, so the same makers serve hypothesis (which shrinks what fails) and a seeded
`random.Random` (twenty times as fast, for volume). They use everything the plugins known to
`reference` look at, and nothing that other plugins do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from harness.builders import (
    NodeBuilder,
    PodBuilder,
    Raw,
    make_controller,
    make_namespace,
    make_node,
    make_pod,
    make_service,
)
from harness.strategies import EFFECTS, GPU, LABEL_KEYS, LABEL_VALUES, NAMESPACES, PORTS, ZONES
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.scheduler.cluster.class_key import RESTART_ALL_CONTAINERS

T = TypeVar("T")

FOO = "example.com/foo"
HUGEPAGES = "hugepages-2Mi"
NODE_NAMES = ("n0", "n1", "n2", "n3", "n4")
IPS = ("", "0.0.0.0", "10.0.0.1", "10.0.0.2")
IMAGES = ("pause", "web", "web:1", "db:2", "reg.io:5000/app", "absent")
ON_NODES = ("pause:latest", "web:latest", "web:1", "db:2", "reg.io:5000/app:latest")

LIMITS = (
    '{"cpu": "125%"}',
    '{"cpu": 300, "memory": "200%"}',
    '{"memory": 80, "example.com/foo": "100%"}',
    '{"cpu": 0}',
    "{}",
    '{"cpu": "1000000000%", "memory": 1000, "hugepages-2Mi": 50}',
    '{"cpu": "half"}',
    '{"memory": -1}',
    "cpu=125%",
)
"""Limit-to-allocatable ratios of nodes; three of them are invalid or absent."""

_ALLOCATABLE: dict[str, tuple[Any, ...]] = {
    "cpu": ("0", "500m", "1", "2", "4", "3.9"),
    "memory": ("0", "500Mi", "1Gi", "2Gi", "4Gi", "3G"),
    "pods": (0, 1, 2, 3, 110, 110),
    "ephemeral-storage": (None, None, None, "5Gi", "20Gi"),
    GPU: (None, None, None, "0", "1", "4"),
    FOO: (None, None, None, "3", "8"),
    HUGEPAGES: (None, None, None, "4Mi"),
}
_ASKED: dict[str, tuple[Any, ...]] = {
    "cpu": ("0", "1m", "100m", "250m", "0.5", "1", "1500m", "2", 1),
    "memory": ("0", "1", "128Mi", "256Mi", "0.5Gi", "1Gi", "1500M", 10**8),
    "ephemeral-storage": ("1Gi", "10Gi"),
    GPU: ("1", "2"),
    FOO: ("1", "5"),
    HUGEPAGES: ("2Mi", "4Mi"),
}
_SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("cpu",),
    ("memory",),
    ("cpu", "memory"),
    ("cpu", "memory"),
    ("cpu", "memory", GPU),
    ("cpu", FOO),
    ("cpu", "memory", HUGEPAGES, FOO),
    ("memory", "ephemeral-storage"),
)
TOPOLOGY = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/zone")
CONTROLLERS = ("ReplicationController", "ReplicaSet", "StatefulSet")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


class Chooser(Protocol):
    def __call__(self, options: Sequence[T], /) -> T: ...


def seeded(seed: int) -> Chooser:
    return random.Random(seed).choice


@cache
def _sampled(options: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


def choosing(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Chooser:
    """A chooser for use with hypothesis' `data.draw`."""

    def choose(options: Sequence[T]) -> T:
        chosen: T = draw(_sampled(tuple(options)))
        return chosen

    return choose


def rarely(choose: Chooser) -> bool:
    return choose((False, False, False, False, False, True))


def sometimes(choose: Chooser) -> bool:
    return choose((False, False, True))


def requests(choose: Chooser) -> dict[str, Any]:
    return {resource: choose(_ASKED[resource]) for resource in choose(_SETS)}


def node(choose: Chooser, name: str) -> Node:
    return node_builder(choose, name).obj()


def node_builder(choose: Chooser, name: str) -> NodeBuilder:
    made = make_node(name)
    for resource, amounts in _ALLOCATABLE.items():
        amount = choose(amounts)
        if amount is not None:
            made.allocatable({resource: amount})
    zone = choose((None, *ZONES))
    if zone:
        made.zone(zone)
    if rarely(choose):
        del made.raw_metadata["labels"]["kubernetes.io/hostname"]
    if sometimes(choose):
        made.label("cores", choose(("0", "2", "4", "many")))
    for key in LABEL_KEYS:
        value = choose((None, None, *LABEL_VALUES))
        if value is not None:
            made.label(key, value)
    for key in ("dedicated", "load"):
        if rarely(choose):
            made.taint(key, choose(("a", "3", "7", "")), choose(EFFECTS))
            if rarely(choose):
                made.raw_spec["taints"][-1]["timeAdded"] = choose(("2026-01-01T00:00:00Z", "x"))
    if rarely(choose):
        made.unschedulable()
    if sometimes(choose):
        made.annotation("node.koordinator.sh/limit-to-allocatable", choose(LIMITS))
    for image in ON_NODES:
        if rarely(choose):
            made.image(image, choose((10**6, 3 * 10**8, 2 * 10**9)))
    if sometimes(choose):
        made.declares(RESTART_ALL_CONTAINERS)
    return made


def make_roomy(node: NodeBuilder) -> None:
    """Nothing about the node itself keeps pods away."""
    node.raw_spec.pop("taints", None)
    node.raw_spec.pop("unschedulable", None)
    node.allocatable(cpu="16", memory="64Gi", pods=110)


def make_easy(pod: PodBuilder) -> None:
    """Nothing but its volumes, if it has any, keeps the pod away from a roomy node."""
    for key in ("affinity", "nodeSelector", "topologySpreadConstraints", "resources", "overhead"):
        pod.raw_spec.pop(key, None)
    for key in ("resources", "ports"):
        pod.raw_spec["containers"][0].pop(key, None)
    pod.raw_spec.pop("initContainers", None)
    pod.namespace("default").requests({"cpu": "10m"})


def pod_builder(choose: Chooser, name: str) -> PodBuilder:
    made = make_pod(name).requests(requests(choose)).image(choose(IMAGES))
    made.namespace(choose(NAMESPACES))
    if not rarely(choose):
        made.label("app", choose(("a", "b")))
    if sometimes(choose):
        made.label(choose(LABEL_KEYS), choose(LABEL_VALUES))
    if sometimes(choose):
        made.priority(choose((-10, 0, 5, 100)))
    if rarely(choose):
        made.limits({"cpu": "1", "memory": "1Gi"})
    elif rarely(choose):
        made.limits(requests(choose))
    if rarely(choose):
        made.container(requests(choose), image=choose(IMAGES))
    if rarely(choose):
        made.init_container(requests(choose), sidecar=choose((False, True)))
        if choose((False, True)):
            made.init_container(requests(choose))
    if rarely(choose):
        made.overhead(cpu=choose(_ASKED["cpu"]), memory=choose(_ASKED["memory"]))
    if rarely(choose):
        made.pod_resources(
            {"cpu": choose(_ASKED["cpu"])}, {"memory": "1Gi"} if sometimes(choose) else None
        )
    if rarely(choose):
        made.volume("data", image={"reference": choose(IMAGES)})
    if rarely(choose) and rarely(choose):
        rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}
        made.raw_spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    _ports(choose, made)
    _tolerations(choose, made)
    _affinity(choose, made)
    _spread(choose, made)
    _neighbours(choose, made)
    if rarely(choose):
        kind = choose((*CONTROLLERS, "DaemonSet"))
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        made.owned_by(kind, "owner", api_version=version, controller=not rarely(choose))
    return made


def _ports(choose: Chooser, made: PodBuilder) -> None:
    while sometimes(choose):
        made.host_port(choose(PORTS), choose(("TCP", "UDP")), choose(IPS))


def _tolerations(choose: Chooser, made: PodBuilder) -> None:
    while sometimes(choose):
        operator = choose(("", "Equal", "Exists", "Exists", "Gt", "Lt"))
        key = choose(("dedicated", "load", "", "node.kubernetes.io/unschedulable"))
        value = "" if operator == "Exists" else choose(("a", "3", "5", ""))
        made.toleration(key, value, choose(("", *EFFECTS)), operator)


def _affinity(choose: Chooser, made: PodBuilder) -> None:
    if rarely(choose):
        made.node_selector({choose(LABEL_KEYS): choose(LABEL_VALUES)})
    if rarely(choose):
        made.spec(affinity={"nodeAffinity": {}})
    while rarely(choose):
        made.node_affinity_term(
            [expression(choose) for _ in range(choose((0, 1, 1, 2)))],
            [_field(choose) for _ in range(choose((0, 0, 1, 2)))],
        )
    while sometimes(choose):
        preference = expression(choose)
        made.prefers_node(
            choose((1, 10, 100)), preference["key"], preference["operator"], preference.get("values")
        )


def selector(choose: Chooser) -> Raw | None:
    """Mostly some pods; now and then all, none, or an odd lot."""
    match choose(("app",) * 6 + ("everything", "nothing", "odd", "odd")):
        case "everything":
            return {}
        case "nothing":
            return None
        case "odd":
            key, operator = choose(LABEL_KEYS), choose(_OPERATORS[:4])
            made: Raw = {"key": key, "operator": operator}
            if operator in ("In", "NotIn"):
                made["values"] = [choose(LABEL_VALUES) for _ in range(choose((1, 2)))]
            return {"matchExpressions": [made]}
        case _:
            return {"matchLabels": {"app": choose(("a", "b"))}}


def _spread(choose: Chooser, made: PodBuilder) -> None:
    while rarely(choose):
        more: Raw = {"labelSelector": selector(choose)}
        hard = choose((True, False))
        if hard and rarely(choose):
            more["minDomains"] = choose((1, 2, 4))
        if sometimes(choose):
            more["nodeAffinityPolicy"] = choose(("Honor", "Ignore"))
        if sometimes(choose):
            more["nodeTaintsPolicy"] = choose(("Honor", "Ignore"))
        if rarely(choose) and more["labelSelector"] is not None:
            more["matchLabelKeys"] = [choose(LABEL_KEYS)]
        when = "DoNotSchedule" if hard else "ScheduleAnyway"
        made.spread(choose((*TOPOLOGY, "tier")), choose((1, 1, 2, 3)), when=when, **more)


def _neighbours(choose: Chooser, made: PodBuilder) -> None:
    for add in (made.pod_affinity, made.pod_anti_affinity):
        while rarely(choose):
            weight = choose((None, None, 1, 10, 100))
            more: Raw = {}
            if (chosen := selector(choose)) is not None:
                more["labelSelector"] = chosen
                if rarely(choose):
                    keys = choose(("matchLabelKeys", "mismatchLabelKeys"))
                    more[keys] = [choose(LABEL_KEYS)]
            if sometimes(choose):
                more["namespaces"] = [choose(NAMESPACES)]
            if sometimes(choose):
                more["namespaceSelector"] = namespace_selector(choose)
            add(choose((*TOPOLOGY, "tier")), weight=weight, **more)


def namespace_selector(choose: Chooser) -> Raw:
    if rarely(choose):
        return {}
    if sometimes(choose):
        return {"matchExpressions": [{"key": "team", "operator": choose(("Exists", "DoesNotExist"))}]}
    return {"matchLabels": {"team": choose(("a", "b"))}}


def other_object(choose: Chooser) -> Object:
    """A namespace, service or controller."""
    namespace = choose(NAMESPACES)
    match choose(("namespace", "namespace", "service", "controller")):
        case "namespace":
            labels = {} if rarely(choose) else {"team": choose(("a", "b"))}
            return make_namespace(namespace, labels)
        case "service":
            labels = dict(choose(((), (("app", "a"),), (("app", "b"),), (("app", "a"), ("tier", "b")))))
            return make_service(choose(("s0", "s1")), None if rarely(choose) else labels, namespace)
        case _:
            kind = choose(CONTROLLERS)
            wanted = selector(choose)
            if kind == "ReplicationController":
                wanted = {"app": "a"} if choose((True, False)) else None
            return make_controller(kind, "owner", wanted, namespace)


def expression(choose: Chooser) -> Raw:
    operator = choose(_OPERATORS)
    if operator in ("Gt", "Lt"):
        return {"key": "cores", "operator": operator, "values": [choose(("0", "2", "3"))]}
    key = choose((*LABEL_KEYS, "topology.kubernetes.io/zone"))
    made: Raw = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        pool = ZONES if "/zone" in key else LABEL_VALUES
        made["values"] = [choose(pool) for _ in range(choose((1, 1, 2)))]
    return made


def _field(choose: Chooser) -> Raw:
    values = [choose(NODE_NAMES) for _ in range(choose((1, 1, 1, 2)))]
    return {"key": "metadata.name", "operator": choose(("In", "In", "NotIn")), "values": values}
