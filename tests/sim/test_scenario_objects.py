"""What is refused in a scenario's object, and with which words: the API server's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from harness.builders import (
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
from harness.strategies import node_builders, pod_builders, reservation_builders
from holdfast.api import InvalidObject
from holdfast.sim.scenario_objects import ScenarioObject

Raw = dict[str, Any]

QUANTITY = r"'^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$'"


def found(raw: Raw) -> list[str]:
    return [f"{error.field}: {error.message}" for error in ScenarioObject(raw).errors]


def fields(raw: Raw) -> list[str]:
    return [error.field for error in ScenarioObject(raw).errors]


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
        (lambda p: p.cpu(2).limits({"cpu": 1}), "spec.containers[0].resources.requests"),
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
        (lambda p: p.toleration("a", "b", operator="Exists"), "spec.tolerations[0].operator"),
        (lambda p: p.toleration("a", "b", operator="Gt"), "spec.tolerations[0].operator"),
        (lambda p: p.node_selector({"a b": "c"}), "spec.nodeSelector"),
        (lambda p: p.priority(2**31), "spec.priority"),
        (lambda p: p.preemption_policy("Always"), "spec.preemptionPolicy"),
        (lambda p: p.gate("a").gate("a"), "spec.schedulingGates[1]"),
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
        (
            lambda p: p.spread("zone").spread("zone"),
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
        ),
        (
            lambda p: p.node_affinity("a", "In"),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].values",
        ),
        (
            lambda p: p.node_affinity_term(
                fields=[{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]
            ),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchFields[0].values",
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
            ".podAffinityTerm.labelSelector.matchLabels",
        ),
        (lambda p: p.claim(""), "spec.volumes[0].persistentVolumeClaim.claimName"),
        (lambda p: p.label("a b", "c"), "metadata.labels"),
        (lambda p: p.label("a", "-"), "metadata.labels"),
        (lambda p: p.annotation("a/b/c", "x"), "metadata.annotations"),
        (lambda p: p.namespace("A"), "metadata.namespace"),
        (lambda p: p.created("yesterday"), "metadata.creationTimestamp"),
        (lambda p: p.spec(priority="high"), "spec.priority"),
        (lambda p: p.spec(labels={}), "spec.labels"),
    ],
)
def test_pods_are_refused_at(change: Callable[[PodBuilder], PodBuilder], field: str) -> None:
    raw = change(make_pod("p1")).raw()
    assert field in fields(raw), found(raw)
    assert all(error.object.endswith("/p1") for error in ScenarioObject(raw).errors)


def test_all_errors_of_calendar_annotations_are_reported_with_misspelt_ones() -> None:
    raw = make_reservation("r").raw()
    raw["metadata"]["annotations"] = {
        "holdfast.io/starts-at": "tomorrow",
        "holdfast.io/leed": "30m",
        "holdfast.io/before-start": "Evict",
        "holdfast.io/at-end": "evict",
    }
    assert fields(raw) == [
        f"metadata.annotations[holdfast.io/{name}]"
        for name in ("starts-at", "before-start", "at-end", "leed")
    ]


def _pod(name: str, **spec: Any) -> Raw:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def test_pods_with_equal_specs_share_the_decoded_spec() -> None:
    first, second = ScenarioObject(_pod("first")), ScenarioObject(_pod("second"))
    assert second.raw["spec"] is first.raw["spec"]
    assert second.raw["metadata"] == {"name": "second"}


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        ({"hostNetwork": True}, {"hostNetwork": 1}, "spec.hostNetwork"),
        ({"priority": 1}, {"priority": 1.5}, "spec.priority"),
        ({}, {"nodename": "n"}, "spec.nodename"),
    ],
    ids=str,
)
def test_specs_that_only_look_equal_are_read_on_their_own(first: Raw, second: Raw, field: str) -> None:
    assert not found(_pod("first", **first))
    alone = found(_pod("second", **{**second, "subdomain": "alone"}))
    assert found(_pod("second", **second)) == alone
    assert not alone or alone[0].startswith(field)


def test_the_metadata_of_a_pod_with_a_known_spec_is_checked() -> None:
    assert not found(_pod("first"))
    assert fields(_pod("Second_")) == ["metadata.name"]
    assert fields({**_pod("second"), "metadata": {"name": "b", "label": {}}}) == ["metadata.label"]


def test_an_image_may_be_left_out_of_scenarios() -> None:
    assert found({**make_pod("p").raw(), "spec": {"containers": [{"name": "c"}]}}) == []


def test_what_scenarios_may_leave_out_is_filled_in() -> None:
    gpu = make_pod("p").requests({"cpu": 1, "nvidia.com/gpu": 2}).raw()
    del gpu["spec"]["containers"][0]["image"]
    read = ScenarioObject(gpu)
    container = read.raw["spec"]["containers"][0]
    assert (read.errors, container["image"]) == ([], "pause")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    zone = {"name": "numa-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "4"}]}
    topology = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    assert found({**topology, "metadata": {"name": "n"}, "topologyPolicies": [], "zones": [zone]}) == []
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    kind = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}}
    assert found({**kind, "spec": volume}) == []


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
def test_an_owner_without_a_template_is_there_to_be_referred_to(kind: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "o"}}
    assert found(owner) == []
    assert found({**owner, "spec": {"selector": {"matchLabels": {"a": "b"}}}}) == []
    assert fields({**owner, "spec": {"selectr": {}}}) == ["spec.selectr"]
    assert "spec.template.spec.containers" in fields({**owner, "spec": {"template": {"spec": {}}}})


def test_a_node_label_compared_with_a_non_number_never_matches_and_is_not_refused() -> None:
    assert found(make_pod("p").prefers_node(1, "cores", "Gt", ["many"]).raw()) == []
    assert found(make_pod("p").node_affinity("cores", "Lt", ["many"]).raw()) == []
    assert found(make_pod("p").node_affinity("cores", "Lt", ["1", "2"]).raw())


def test_fields_of_a_newer_server_are_left_out_of_what_it_stored() -> None:
    raw = make_pod("p").spec(fieldOfTheFuture=1).raw()
    assert fields(raw) == ["spec.fieldOfTheFuture"]
    stored = ScenarioObject({**raw, "metadata": {**raw["metadata"], "resourceVersion": "5"}})
    assert (stored.errors, stored.newer) == ([], ["spec.fieldOfTheFuture"])
    assert "fieldOfTheFuture" not in stored.raw["spec"]


def test_everything_wrong_with_a_decoded_object_is_reported_at_once() -> None:
    raw = make_pod("P").cpu("-1").gate("a").node("n").raw()
    assert fields(raw) == [
        "metadata.name",
        "spec.containers[0].resources.requests[cpu]",
        "spec.nodeName",
    ]


def test_malformed_unknown_and_invalid_fields_are_reported_together() -> None:
    wrong = {"requests": {"cpu": "1x", "memory": "2Q"}}
    given = {"containers": [{"name": "C", "resources": wrong}], "nodeSelectr": {}}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": given}
    assert fields(made) == [
        "spec.containers[0].resources.requests[cpu]",
        "spec.containers[0].resources.requests[memory]",
        "spec.nodeSelectr",
        "spec.containers[0].name",
    ]
    held = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4x"}}}]}
    owners = [{"labelSelector": {"matchLabels": {"a": "b"}}}]
    kept = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"owners": owners, "tll": "1h", "template": {"spec": held}},
    }
    quantity = "spec.template.spec.containers[0].resources.requests.cpu"
    assert fields(kept) == ["spec.tll", quantity]
    kept["spec"] = {"ownres": owners, "template": {"spec": held}}
    assert fields(kept) == ["spec.ownres", quantity]


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
        (lambda n: n.taint(""), "metadata.taints[0].key"),
        (lambda n: n.taint("a", effect="Maybe"), "metadata.taints[0].effect"),
        (lambda n: n.taint("a").taint("a", "b"), "metadata.taints[1]"),
        (lambda n: n.allocatable(cpu="four"), "status.allocatable[cpu]"),
        (lambda n: n.allocatable(cpu="-4"), "status.capacity.cpu"),
    ],
)
def test_nodes_are_refused_at(change: Callable[[NodeBuilder], NodeBuilder], field: str) -> None:
    assert field in fields(change(make_node("n")).raw())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r.spec(template=None), "spec.template: Required value"),
        (
            lambda r: r.spec(template={"spec": {}}),
            "spec.template.spec.containers: Invalid value: is required: at least one container, "
            "or resources of the pod as a whole",
        ),
        (
            lambda r: r.spec(owners=[]),
            "spec.owners: Invalid value: 0: spec.owners in body should have at least 1 items",
        ),
        (
            lambda r: r.owner(),
            "spec.owners[0]: Invalid value: 0: "
            "spec.owners[0] in body should have at least 1 properties",
        ),
        (
            lambda r: r.owner(object={}),
            "spec.owners[0].object: Invalid value: 0: "
            "spec.owners[0].object in body should have at least 1 properties",
        ),
        (
            lambda r: r.owner(labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "spec.owners[0].labelSelector.matchExpressions[0].values: "
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            lambda r: r.ttl("1h").expires("2026-01-02T00:00:00Z"),
            "spec.expires: Invalid value: expires cannot be given together with ttl; keep one of them",
        ),
        (
            lambda r: r.ttl("5"),
            'spec.ttl: Invalid value: "5": must be a duration such as 90s, 5m or 1h30m',
        ),
        (
            lambda r: r.ttl("-1s"),
            'spec.ttl: Invalid value: "-1s": must be a duration such as 90s, 5m or 1h30m',
        ),
        (
            lambda r: r.expires("soon"),
            'spec.expires: Invalid value: "soon": '
            'spec.expires in body must be of type date-time: "soon"',
        ),
        (
            lambda r: r.policy("Strict"),
            'spec.allocatePolicy: Unsupported value: "Strict": '
            'supported values: "", "Aligned", "Restricted"',
        ),
        (
            lambda r: r.spec(alocateOnce=True),
            'spec.alocateOnce: strict decoding error: unknown field "spec.alocateOnce"; '
            "did you mean allocateOnce?",
        ),
        (
            lambda r: r.spec(nodeName="n1"),
            'spec.nodeName: strict decoding error: unknown field "spec.nodeName"; '
            "it belongs to spec.template.spec",
        ),
        (
            lambda r: r.spec(template={"spec": {"containers": [{"requests": {"cpu": 1}}]}}),
            "spec.template.spec.containers[0].requests: strict decoding error: "
            'unknown field "spec.template.spec.containers[0].requests"; '
            "it belongs to spec.template.spec.containers[0].resources",
        ),
        (
            lambda r: r.spec(template={"containers": [{"name": "c"}]}),
            "spec.template.containers: strict decoding error: "
            'unknown field "spec.template.containers"; '
            "it belongs to spec.template.spec",
        ),
        (
            lambda r: r.spec(template={"spec": {"containers": [{"name": "c"}], "nodeNmae": "n"}}),
            "spec.template.spec.nodeNmae: strict decoding error: "
            'unknown field "spec.template.spec.nodeNmae"; did you mean nodeName?',
        ),
        (
            lambda r: r.spec(template={"spec": {"containers": "c"}}),
            'spec.template.spec.containers: Invalid value: "string": '
            'spec.template.spec.containers in body must be of type array: "string"',
        ),
        (
            lambda r: r.cpu("1K"),
            'spec.template.spec.containers[0].resources.requests.cpu: Invalid value: "1K": '
            f"spec.template.spec.containers[0].resources.requests.cpu in body should match {QUANTITY}",
        ),
        (
            lambda r: r.label("scheduling.koordinator.sh/reservation-order", "high"),
            'metadata.labels[scheduling.koordinator.sh/reservation-order]: Invalid value: "high": '
            "must be an integer",
        ),
        (
            lambda r: r.spec(taints=[{"key": "a", "effect": "No"}]),
            'spec.taints[0].effect: Unsupported value: "No": '
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
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
        lambda r: r.label("koordinator.sh/priority", "high"),  # counts as not set, and is reported
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
        "spec.minResources.cpu"
    ]
    assert found(make_queue("q").weight(4).capability(cpu=4).deserved(cpu=2).raw()) == []
    assert fields(make_queue("q").weight(0).raw()) == ["spec.weight"]
    assert found(make_queue("q").guarantee(cpu=2).raw()) == []


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (
            make_queue("q").capability(cpu=1).guarantee(cpu=2),
            "spec.guarantee.resource.cpu: Invalid value: 2: "
            "guarantee[cpu]=2 must be <= capability[cpu]=1",
        ),
        (
            make_queue("q").deserved(cpu="1500m").guarantee(cpu=2),
            'spec.deserved.cpu: Invalid value: "1500m": '
            "deserved[cpu]=1500m must be >= guarantee[cpu]=2",
        ),
        (
            make_queue("q").capability(memory="1Gi").deserved(memory="1025Mi"),
            'spec.deserved.memory: Invalid value: "1025Mi": '
            "deserved[memory]=1025Mi must be <= capability[memory]=1Gi",
        ),
        (
            make_queue("q").spec(parent="q"),
            'spec.parent: Invalid value: "q": queue q cannot use itself as parent',
        ),
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
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec"]),
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
