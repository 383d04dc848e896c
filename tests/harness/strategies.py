"""Hypothesis strategies for small random clusters.

The vocabulary is kept tiny on purpose: with three label values and four resources, random pods
and nodes meet, fit, conflict and exclude each other all the time, and shrunk examples read well.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from harness.builders import (
    NodeBuilder,
    PodBuilder,
    ReservationBuilder,
    make_node,
    make_pod,
    make_reservation,
)
from holdfast.api import names
from holdfast.api.affinity import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from holdfast.api.meta import LabelSelector, LabelSelectorRequirement
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation

LABEL_KEYS = ("app", "tier", "example.com/team")
LABEL_VALUES = ("a", "b", "c", "")
TOPOLOGY_KEYS = (names.HOSTNAME_LABEL, names.ZONE_LABEL)
ZONES = ("z1", "z2", "z3")
NAMESPACES = ("default", "other")
EFFECTS = (names.NO_SCHEDULE, names.PREFER_NO_SCHEDULE, names.NO_EXECUTE)
GPU = names.NVIDIA_GPU
IMAGES = ("pause", "web:1", "db:2")
PORTS = (80, 443)


def examples(count: int) -> settings:
    """So many examples in the default profile, and in proportion in others."""
    usual = settings().max_examples
    return settings(max_examples=count * usual // 100)


label_keys = st.sampled_from(LABEL_KEYS)
label_values = st.sampled_from(LABEL_VALUES)
labels = st.dictionaries(label_keys, label_values, max_size=len(LABEL_KEYS))
namespaces = st.sampled_from(NAMESPACES)
priorities = st.sampled_from([-10, 0, 0, 0, 5, 100])

_suffixes = st.sampled_from(
    ["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e0", "e3", "E-3", "e+2"]
)


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Any well-formed, non-negative quantity of a sensible size."""
    whole = draw(st.integers(0, 10**6))
    fraction = draw(st.sampled_from(["", ".", ".5", ".25", ".125", ".0001"]))
    return f"{whole}{fraction}{draw(_suffixes)}"


cpu_quantities = st.sampled_from(["0", "1m", "100m", "250m", "500m", "1", "1.5", "2", 1, 0.5])
memory_quantities = st.sampled_from(["0", "128Mi", "256Mi", "0.5Gi", "1Gi", "1500M", 10**8])
gpu_quantities = st.sampled_from(["1", 1, 2])


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """What a container asks for; any part may be missing."""
    asked: dict[str, Any] = {}
    if draw(st.booleans()):
        asked["cpu"] = draw(cpu_quantities)
    if draw(st.booleans()):
        asked["memory"] = draw(memory_quantities)
    if draw(st.integers(0, 9)) == 0:
        asked[GPU] = draw(gpu_quantities)
    return asked


@st.composite
def label_requirements(draw: st.DrawFn) -> LabelSelectorRequirement:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
    values: list[str] = []
    if operator in ("In", "NotIn"):
        values = draw(st.lists(label_values, min_size=1, max_size=3))
    return LabelSelectorRequirement(key=draw(label_keys), operator=operator, values=values)


label_selectors = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(label_keys, label_values, max_size=2),
    match_expressions=st.lists(label_requirements(), max_size=2),
)


@st.composite
def node_requirements(draw: st.DrawFn) -> NodeSelectorRequirement:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    if operator in ("Gt", "Lt"):
        value = str(draw(st.integers(0, 4)))
        return NodeSelectorRequirement(key="cores", operator=operator, values=[value])
    key = draw(st.sampled_from([*LABEL_KEYS, names.ZONE_LABEL]))
    pool = ZONES if key == names.ZONE_LABEL else LABEL_VALUES
    values: list[str] = []
    if operator in ("In", "NotIn"):
        values = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=2, unique=True))
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


node_terms = st.builds(NodeSelectorTerm, match_expressions=st.lists(node_requirements(), max_size=2))
node_selectors = st.builds(
    NodeSelector, node_selector_terms=st.lists(node_terms, min_size=1, max_size=2)
)

taints = st.builds(
    Taint,
    key=st.sampled_from(["dedicated", "gpu"]),
    value=st.sampled_from(["a", "b", ""]),
    effect=st.sampled_from(EFFECTS),
)


@st.composite
def tolerations(draw: st.DrawFn) -> Toleration:
    """Valid ones only: without a key, or with Exists, there is no value."""
    key = draw(st.sampled_from(["dedicated", "gpu", ""]))
    operator = "Exists" if not key else draw(st.sampled_from(["", "Equal", "Exists"]))
    value = "" if operator == "Exists" else draw(st.sampled_from(["a", "b", ""]))
    effect = draw(st.sampled_from(["", *EFFECTS]))
    return Toleration(key=key, operator=operator, value=value, effect=effect)


@st.composite
def node_builders(draw: st.DrawFn, name: str | None = None) -> NodeBuilder:
    node = make_node(name or f"n{draw(st.integers(0, 99))}")
    node.allocatable(
        cpu=draw(st.sampled_from(["1", "2", "4"])),
        memory=draw(st.sampled_from(["1Gi", "2Gi", "4Gi"])),
        pods=draw(st.sampled_from([2, 5, 110])),
    )
    if draw(st.booleans()):
        node.zone(draw(st.sampled_from(ZONES)))
    if draw(st.integers(0, 3)) == 0:
        node.allocatable({GPU: draw(st.integers(0, 2))})
    if draw(st.booleans()):
        node.label("cores", str(draw(st.integers(0, 4))))
    node.labels(draw(labels))
    seen: set[tuple[str, str]] = set()
    for taint in draw(st.lists(taints, max_size=1)):
        if (taint.key, taint.effect) not in seen:
            node.taint(taint.key, taint.value, taint.effect)
        seen.add((taint.key, taint.effect))
    if draw(st.integers(0, 9)) == 0:
        node.unschedulable()
    for image in draw(st.lists(st.sampled_from(IMAGES), max_size=2, unique=True)):
        node.image(image, draw(st.sampled_from([10**7, 10**8, 10**9])))
    return node


@st.composite
def pod_builders(draw: st.DrawFn, name: str | None = None) -> PodBuilder:
    pod = make_pod(name or f"p{draw(st.integers(0, 999))}")
    pod.namespace(draw(namespaces)).labels(draw(labels)).priority(draw(priorities))
    pod.requests(draw(requests())).image(draw(st.sampled_from(IMAGES)))
    if draw(st.integers(0, 4)) == 0:
        pod.init_container(draw(requests()), sidecar=draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0:
        pod.host_port(draw(st.sampled_from(PORTS)), draw(st.sampled_from(["TCP", "UDP"])))
    for toleration in draw(st.lists(tolerations(), max_size=2)):
        pod.toleration(toleration.key, toleration.value, toleration.effect, toleration.operator)
    _constrain(draw, pod)
    return pod


def _constrain(draw: st.DrawFn, pod: PodBuilder) -> None:
    """At most one constraint of each sort, and seldom: most pods should find a node."""
    if draw(st.integers(0, 4)) == 0:
        pod.node_selector(draw(st.dictionaries(label_keys, label_values, max_size=1)))
    if draw(st.integers(0, 4)) == 0:
        term = draw(node_requirements())
        pod.node_affinity(term.key, term.operator, term.values)
    if draw(st.integers(0, 4)) == 0:
        term = draw(node_requirements())
        pod.prefers_node(draw(st.integers(1, 100)), term.key, term.operator, term.values)
    for add in (pod.pod_affinity, pod.pod_anti_affinity):
        if draw(st.integers(0, 5)) == 0:
            weight = draw(st.sampled_from([None, 1, 50]))
            match_labels = draw(st.dictionaries(label_keys, label_values, max_size=1))
            add(draw(st.sampled_from(TOPOLOGY_KEYS)), match_labels, weight=weight)
    if draw(st.integers(0, 4)) == 0:
        pod.spread(
            draw(st.sampled_from(TOPOLOGY_KEYS)),
            draw(st.integers(1, 2)),
            draw(st.dictionaries(label_keys, label_values, max_size=1)),
            when=draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
        )


@st.composite
def reservation_builders(draw: st.DrawFn, name: str | None = None) -> ReservationBuilder:
    reservation = make_reservation(name or f"r{draw(st.integers(0, 99))}")
    reservation.requests(draw(requests()))
    reservation.owner_labels(draw(st.dictionaries(label_keys, label_values, min_size=1)))
    reservation.once(draw(st.booleans()))
    policy = draw(st.sampled_from(["", "Aligned", "Restricted"]))
    return reservation.policy(policy) if policy else reservation


@st.composite
def nodes(draw: st.DrawFn, name: str | None = None) -> Node:
    return draw(node_builders(name)).obj()


@st.composite
def pods(draw: st.DrawFn, name: str | None = None) -> Pod:
    return draw(pod_builders(name)).obj()


@st.composite
def reservations(draw: st.DrawFn, name: str | None = None) -> Reservation:
    return draw(reservation_builders(name)).obj()


@st.composite
def clusters(draw: st.DrawFn, max_nodes: int = 4, max_pods: int = 8) -> tuple[list[Node], list[Pod]]:
    """Nodes `n0…` and unbound pods `p0…`, all with names of their own."""
    node_count = draw(st.integers(1, max_nodes))
    pod_count = draw(st.integers(0, max_pods))
    return (
        [draw(nodes(f"n{i}")) for i in range(node_count)],
        [draw(pods(f"p{i}")) for i in range(pod_count)],
    )
