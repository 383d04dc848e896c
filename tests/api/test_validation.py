"""What is refused, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from builders import (
    NodeBuilder,
    PodBuilder,
    QueueBuilder,
    ReservationBuilder,
    make_node,
    make_pod,
    make_pod_group,
    make_queue,
    make_reservation,
)
from holdfast.api import InvalidObject
from holdfast.machinery.typed_validation import validate
from strategies import node_builders, pod_builders, reservation_builders

Raw = dict[str, Any]


def found(raw: Raw) -> list[str]:
    return [f"{error.field}: {error.message}" for error in validate(raw)]


def fields(raw: Raw) -> list[str]:
    return [error.field for error in validate(raw)]


def test_a_complaint_reads_object_field_message() -> None:
    error = InvalidObject("Pod/default/p1", "spec.owners[1]", "is wrong")
    assert str(error) == "Pod/default/p1: spec.owners[1]: is wrong"
    assert str(InvalidObject("", "", "is wrong")) == "is wrong"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda p: p.spec(containers=[]), "spec.containers"),
        (lambda p: p.container(name="Upper"), "spec.containers[1].name"),
        (lambda p: p.container(name="c"), "spec.containers[1].name"),
        (lambda p: p.init_container(name="c"), "spec.initContainers[0].name"),
        (lambda p: p.cpu("1K"), "spec.containers[0].resources.requests[cpu]"),
        (lambda p: p.cpu("-1"), "spec.containers[0].resources.requests[cpu]"),
        (lambda p: p.cpu(2).limits({"cpu": 1}), "spec.containers[0].resources.requests[cpu]"),
        (lambda p: p.requests({"gpu": 1}), "spec.containers[0].resources.requests[gpu]"),
        (lambda p: p.requests({"pods": 1}), "spec.containers[0].resources.requests[pods]"),
        (lambda p: p.requests({"a.b/c": "0.5"}), "spec.containers[0].resources.requests[a.b/c]"),
        (lambda p: p.overhead(cpu="x"), "spec.overhead[cpu]"),
        (lambda p: p.pod_resources({"a.b/c": 1}), "spec.resources.requests[a.b/c]"),
        (lambda p: p.port(0), "spec.containers[0].ports[0].containerPort"),
        (lambda p: p.port(70000), "spec.containers[0].ports[0].containerPort"),
        (lambda p: p.host_port(80, "HTTP"), "spec.containers[0].ports[0].protocol"),
        (lambda p: p.host_port(80).host_port(80), "spec.containers[0].ports[1].hostPort"),
        (lambda p: p.toleration(key="a", effect="Never"), "spec.tolerations[0].effect"),
        (lambda p: p.toleration(key="a", operator="In"), "spec.tolerations[0].operator"),
        (lambda p: p.toleration(value="a"), "spec.tolerations[0].operator"),
        (lambda p: p.toleration("a", "b", operator="Exists"), "spec.tolerations[0].value"),
        (lambda p: p.toleration("a", "b", operator="Gt"), "spec.tolerations[0].value"),
        (lambda p: p.node_selector({"a b": "c"}), "spec.nodeSelector[a b]"),
        (lambda p: p.priority(2**31), "spec.priority"),
        (lambda p: p.preemption_policy("Always"), "spec.preemptionPolicy"),
        (lambda p: p.gate("a").gate("a"), "spec.schedulingGates[1].name"),
        (lambda p: p.gate("a").node("n"), "spec.nodeName"),
        (lambda p: p.spread("zone", 0), "spec.topologySpreadConstraints[0].maxSkew"),
        (lambda p: p.spread(""), "spec.topologySpreadConstraints[0].topologyKey"),
        (
            lambda p: p.spread("zone", when="Sometimes"),
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        (
            lambda p: p.spread("zone", when="ScheduleAnyway", minDomains=2),
            "spec.topologySpreadConstraints[0].minDomains",
        ),
        (lambda p: p.spread("zone").spread("zone"), "spec.topologySpreadConstraints[1]"),
        (
            lambda p: p.node_affinity("a", "In"),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0]",
        ),
        (
            lambda p: p.node_affinity_term(
                fields=[{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]
            ),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchFields[0]",
        ),
        (
            lambda p: p.prefers_node(101, "a", "Exists"),
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
        ),
        (
            lambda p: p.pod_affinity("", {"a": "b"}),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
        ),
        (
            lambda p: p.pod_anti_affinity("zone", {"a": "b c"}, weight=1),
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
            ".podAffinityTerm.labelSelector.matchLabels[a]",
        ),
        (lambda p: p.claim(""), "spec.volumes[0].persistentVolumeClaim.claimName"),
        (lambda p: p.label("a b", "c"), "metadata.labels[a b]"),
        (lambda p: p.label("a", "-"), "metadata.labels[a]"),
        (lambda p: p.annotation("a/b/c", "x"), "metadata.annotations[a/b/c]"),
        (lambda p: p.namespace("A"), "metadata.namespace"),
        (lambda p: p.created("yesterday"), "metadata.creationTimestamp"),
        (lambda p: p.spec(priority="high"), "spec.priority"),
        (lambda p: p.spec(labels={}), "spec.labels"),
    ],
)
def test_pods_are_refused_at(change: Callable[[PodBuilder], PodBuilder], field: str) -> None:
    raw = change(make_pod("p1")).raw()
    assert field in fields(raw), found(raw)
    assert all(error.object.endswith("/p1") for error in validate(raw))


def test_an_image_may_be_left_out_of_scenarios() -> None:
    assert found({**make_pod("p").raw(), "spec": {"containers": [{"name": "c"}]}}) == []


def test_a_node_label_is_compared_with_what_is_no_number_in_vain_but_not_refused() -> None:
    assert found(make_pod("p").prefers_node(1, "cores", "Gt", ["many"]).raw()) == []
    assert found(make_pod("p").node_affinity("cores", "Lt", ["many"]).raw()) == []
    assert found(make_pod("p").node_affinity("cores", "Lt", ["1", "2"]).raw())


def test_fields_we_do_not_know_are_left_to_the_api_server() -> None:
    assert found(make_pod("p").spec(fieldOfTheFuture=1).raw()) == []


def test_everything_wrong_is_reported_at_once() -> None:
    raw = make_pod("P").cpu("x").priority(2**40).raw()
    assert fields(raw) == [
        "metadata.name",
        "spec.containers[0].resources.requests[cpu]",
        "spec.priority",
    ]


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-a", "a-", "a" * 254, "a..b", "ä"])
def test_names_are_dns_names(name: str) -> None:
    assert fields(make_node(name).labels({"kubernetes.io/hostname": "n"}).raw()) == ["metadata.name"]


def test_a_generated_name_is_enough() -> None:
    raw = make_pod("x").raw()
    raw["metadata"] = {"generateName": "p-"}
    assert found(raw) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda n: n.taint(""), "spec.taints[0].key"),
        (lambda n: n.taint("a", effect="Maybe"), "spec.taints[0].effect"),
        (lambda n: n.taint("a").taint("a", "b"), "spec.taints[1]"),
        (lambda n: n.allocatable(cpu="four"), "status.allocatable[cpu]"),
        (lambda n: n.allocatable(cpu="-4"), "status.capacity[cpu]"),
    ],
)
def test_nodes_are_refused_at(change: Callable[[NodeBuilder], NodeBuilder], field: str) -> None:
    assert field in fields(change(make_node("n")).raw())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r.spec(template=None), "spec.template: is required: the pod to reserve for"),
        (
            lambda r: r.spec(template={"spec": {}}),
            "spec.template.spec.containers: is required: at least one container",
        ),
        (lambda r: r.spec(owners=[]), "spec.owners: is required: at least one owner"),
        (
            lambda r: r.owner(),
            "spec.owners[0]: needs at least one of object, controller, labelSelector",
        ),
        (
            lambda r: r.owner(object={}),
            "spec.owners[0].object: needs at least one of name, namespace, uid, kind",
        ),
        (
            lambda r: r.owner(labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "spec.owners[0].labelSelector.matchExpressions[0]: "
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            lambda r: r.ttl("1h").expires("2026-01-02T00:00:00Z"),
            "spec.expires: cannot be given together with ttl; keep one of them",
        ),
        (
            lambda r: r.ttl("5"),
            "spec.ttl: not a duration: '5' (write it as 90s, 5m or 1h30m)",
        ),
        (lambda r: r.ttl("-1s"), "spec.ttl: must not be negative: -1s"),
        (
            lambda r: r.expires("soon"),
            "spec.expires: not a time: 'soon' (write it as 2026-01-01T00:00:00Z)",
        ),
        (
            lambda r: r.policy("Strict"),
            "spec.allocatePolicy: unknown value 'Strict'; known: Aligned, Restricted",
        ),
        (
            lambda r: r.spec(alocateOnce=True),
            "spec.alocateOnce: unknown field; did you mean allocateOnce?",
        ),
        (
            lambda r: r.spec(nodeName="n1"),
            "spec.nodeName: unknown field here; it belongs to spec.template.spec",
        ),
        (
            lambda r: r.spec(template={"spec": {"containers": [{"requests": {"cpu": 1}}]}}),
            "spec.template.spec.containers[0].requests: unknown field here; "
            "it belongs to spec.template.spec.containers[0].resources",
        ),
        (
            lambda r: r.spec(template={"containers": [{"name": "c"}]}),
            "spec.template.containers: unknown field here; it belongs to spec.template.spec",
        ),
        (
            lambda r: r.spec(template={"spec": {"containers": [{"name": "c"}], "nodeNmae": "n"}}),
            "spec.template.spec.nodeNmae: unknown field; did you mean nodeName?",
        ),
        (
            lambda r: r.spec(template={"spec": {"containers": "c"}}),
            "spec.template.spec.containers: expected a list, got the string 'c'",
        ),
        (
            lambda r: r.cpu("1K"),
            "spec.template.spec.containers[0].resources.requests[cpu]: "
            "unable to parse quantity's suffix: '1K'",
        ),
        (
            lambda r: r.label("scheduling.koordinator.sh/reservation-order", "high"),
            "metadata.labels[scheduling.koordinator.sh/reservation-order]: "
            "must be an integer, not 'high'",
        ),
        (
            lambda r: r.spec(taints=[{"key": "a", "effect": "No"}]),
            "spec.taints[0].effect: unknown value 'No'; known: NoSchedule, PreferNoSchedule, NoExecute",
        ),
    ],
)
def test_reservations_are_refused_with(
    change: Callable[[ReservationBuilder], ReservationBuilder], complaint: str
) -> None:
    raw = change(make_reservation("r1").cpu("1")).raw()
    assert complaint in found(raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r,
        lambda r: r.ttl("0"),
        lambda r: r.expires("2026-01-02T00:00:00Z"),
        lambda r: r.requests({"pods": 3}),
        lambda r: r.spec(template={"spec": {"resources": {"requests": {"cpu": "1"}}}}),
        lambda r: r.spec(
            template={
                "namespace": "default",
                "spec": {
                    "schedulerName": "x",
                    "containers": [{"args": ["-c"], "command": ["stress"], "name": "s"}],
                    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
                },
            }
        ),
        lambda r: r.owner(controller={"kind": "ReplicaSet", "name": "x", "namespace": "ns"}),
        lambda r: r.owner(labelSelector={}),
        lambda r: r.available("n1"),
        lambda r: r.label("koordinator.sh/priority", "high"),  # counts as not set, and is told
    ],
)
def test_reservations_are_accepted(
    change: Callable[[ReservationBuilder], ReservationBuilder],
) -> None:
    assert found(change(make_reservation("r1").cpu("1")).raw()) == []


def test_pod_groups_and_queues() -> None:
    assert found(make_pod_group("g").min_member(3).raw()) == []
    assert fields(make_pod_group("g").min_member(-1).raw()) == ["spec.minMember"]
    assert fields(make_pod_group("g").spec(minResources={"cpu": "x"}).raw()) == [
        "spec.minResources[cpu]"
    ]
    assert found(make_queue("q").weight(4).capability(cpu=4).deserved(cpu=2).raw()) == []
    assert fields(make_queue("q").weight(0).raw()) == ["spec.weight"]
    assert found(make_queue("q").guarantee(cpu=2).raw()) == []


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (
            make_queue("q").capability(cpu=1).guarantee(cpu=2),
            "spec.guarantee.resource[cpu]: guarantee[cpu]=2 must be <= capability[cpu]=1",
        ),
        (
            make_queue("q").deserved(cpu="1500m").guarantee(cpu=2),
            "spec.deserved[cpu]: deserved[cpu]=1500m must be >= guarantee[cpu]=2",
        ),
        (
            make_queue("q").capability(memory="1Gi").deserved(memory="1025Mi"),
            "spec.deserved[memory]: deserved[memory]=1025Mi must be <= capability[memory]=1Gi",
        ),
        (make_queue("q").spec(parent="q"), "spec.parent: queue q cannot use itself as parent"),
    ],
)
def test_queues_that_contradict_themselves(queue: QueueBuilder, expected: str) -> None:
    assert found(queue.raw()) == [expected]


def test_a_pod_group_names_a_tier_in_one_way() -> None:
    both = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}
    assert fields(make_pod_group("g").spec(networkTopology=both).raw()) == ["spec.networkTopology"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1, "selector": {}}, []),
        ({"minAvailable": "50%"}, []),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec.maxUnavailable"]),
        ({"maxUnavailable": "half"}, ["spec.maxUnavailable"]),
        ({"minAvailable": -1}, ["spec.minAvailable"]),
    ],
)
def test_disruption_budgets(spec: Raw, expected: list[str]) -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    assert fields({**budget, "metadata": {"name": "b"}, "spec": spec}) == expected


def test_unknown_kinds_are_refused() -> None:
    assert fields({"apiVersion": "v1", "kind": "Pood"}) == ["kind"]


@given(pod_builders(), node_builders(), reservation_builders())
def test_what_our_strategies_make_is_acceptable(
    pod: PodBuilder, node: NodeBuilder, reservation: ReservationBuilder
) -> None:
    for builder in (pod, node, reservation):
        assert found(builder.raw()) == []
