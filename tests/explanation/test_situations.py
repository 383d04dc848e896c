"""What `explain` says of pending objects, one row per situation, and that its advice is true.

A row has the objects of a cluster, the pending object, what the summary and details must say, and the
kinds of change that must be advised. Each advised change is applied to the objects, and a scheduler
that knows nothing of explanations must then bind the pod.
"""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

import pytest

from harness.objects import Raw, node, pod, pod_group, queue, reservation
from harness.world import START, World
from holdfast.api.times import format_time
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.kube.decoding import WATCHED
from holdfast.local.setup import SchedulerFactory
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
QUEUE = "scheduling.volcano.sh/queue-name"
LIMIT = "node.koordinator.sh/limit-to-allocatable"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
ESTIMATE = "holdfast.io/run-estimate"
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
DB = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
FACTORY = SchedulerFactory.of()


class Row(NamedTuple):
    objects: list[Raw]
    says: list[str]
    """Texts that must be in the summary or the details."""
    advises: list[str]
    """The first action of each advice, cheapest first."""
    name: str = "p"
    kind: str = "Pod"
    node: str = ""
    """Where it is, if it has a node."""
    provisioner: str = "builtin"


def full(name: str, cpu: str, on: str, **more: Any) -> Raw:
    raw = pod(name, cpu, nodeName=on, **more)
    raw["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return raw


def in_default(raw: Raw) -> Raw:
    raw["metadata"] |= {"namespace": "default", "uid": raw["metadata"]["name"]}
    return raw


def annotated(**annotations: str) -> Raw:
    return {"annotations": annotations}


def limited(name: str, cpu: str, limit: str, memory: str = "") -> Raw:
    raw = pod(name, cpu)
    resources = raw["spec"]["containers"][0]["resources"]
    resources["limits"] = {"cpu": limit}
    if memory:
        resources["limits"]["memory"] = memory
        resources["requests"]["memory"] = "1Gi"
    return raw


def with_init(raw: Raw, name: str, cpu: str) -> Raw:
    raw["spec"]["initContainers"] = [{"name": name, "resources": {"requests": {"cpu": cpu}}}]
    return raw


def affinity_to(value: Any) -> Raw:
    return {AFFINITY: json.dumps(value)}


def on_n1(raw: Raw) -> Raw:
    """The reservation as it is once it is Available on the node n1."""
    asked = raw["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return {**raw, "status": {"phase": "Available", "nodeName": "n1", "allocatable": asked}}


def anti_affinity(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def near(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_nodes(*expressions: Raw) -> Raw:
    return on_terms({"matchExpressions": list(expressions)})


def on_terms(*terms: Raw) -> Raw:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def spread(key: str) -> list[Raw]:
    selector = {"matchLabels": {"app": "s"}}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
    ]


def claim(name: str, modes: str = "ReadWriteOnce", volume: str = "", kind: str = "") -> Raw:
    raw: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {
            "accessModes": [modes],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": kind,
        },
        "status": {"phase": "Pending"},
    }
    if volume:
        raw["spec"]["volumeName"] = volume
        raw["status"] = {"phase": "Bound"}
        raw["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return raw


def volume(name: str, claim: str, zone: str = "", modes: str = "ReadWriteOnce") -> Raw:
    metadata: Raw = {"name": name, "uid": f"volume-{name}"}
    if zone:
        metadata["labels"] = {"topology.kubernetes.io/zone": zone}
    reference = {"kind": "PersistentVolumeClaim", "name": claim, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata,
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [modes],
            "claimRef": {**reference, "uid": f"claim-{claim}"},
        },
        "status": {"phase": "Bound"},
    }


def storage_class(name: str) -> Raw:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "uid": f"class-{name}"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def using(name: str) -> list[Raw]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def planned(name: str, cpu: str, app: str = "night", ttl: str = "4h", **annotations: str) -> Raw:
    """A reservation that starts at 02:00, two hours after the world begins."""
    starts = {"holdfast.io/starts-at": "2026-01-01T02:00:00Z"}
    more = {f"holdfast.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    raw = reservation(name, cpu, app=app, ttl=ttl, allocateOnce=False)
    raw["metadata"]["annotations"] = starts | more
    return raw


def schedule(name: str, suspend: bool = False) -> Raw:
    """A schedule whose reservation is `made_by` it."""
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "schedule": "0 2 * * *",
            "duration": "4h",
            "suspend": suspend,
            "template": {"spec": reservation(name, "6", app="night", allocateOnce=False)["spec"]},
        },
    }


def made_by(name: str) -> Raw:
    raw = planned(f"{name}-1", "6", schedule_generation="0")
    owner = {"apiVersion": "scheduling.holdfast.io/v1alpha1", "kind": "ReservationSchedule"}
    raw["metadata"]["ownerReferences"] = [{**owner, "name": name, "uid": name, "controller": True}]
    return raw


def budget(app: str) -> Raw:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default", "uid": f"budget-{app}"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": 0},
    }


NVME = {"key": "disk", "operator": "In", "values": ["nvme"]}
EPHEMERAL = {"ephemeral-storage": "500G"}
N1 = node("n1", cpu="8")
MASTER = node("cp", cpu="4", taints=[CONTROL_PLANE])
HELD = reservation("peak", "6", app="web", ttl="1h", allocateOnce=False)

SITUATIONS: dict[str, Row] = {
    "too big for every node": Row(
        [N1, MASTER, pod("p", "20")],
        ["no node is large enough: it requests 20 cpu, the most a node has is 8"],
        ["Resize"],
    ),
    "far too big for every node": Row(
        [
            N1,
            pod("p", requests={"example.com/fpga": "20"}),
            node("n2", allocatable={"example.com/fpga": 1}),
        ],
        ["the most a node has is 1"],
        [],
    ),
    "cpu without its unit": Row(
        [N1, pod("p", "250")],
        ["it requests 250 cpu, the most a node has is 8; did you mean 250m?"],
        ["CorrectUnit"],
    ),
    "fewer cpu without their unit": Row(
        [N1, pod("p", "50")],
        ["it requests 50 cpu, the most a node has is 8; did you mean 50m?"],
        ["CorrectUnit"],
    ),
    "thousands of cpu without their unit, as they are stored": Row(
        [N1, pod("p", "2k")],
        ["it requests 2000 cpu, the most a node has is 8; did you mean 2000m?"],
        ["CorrectUnit"],
    ),
    "cpu without its unit, and memory in a unit too large": Row(
        [node("n1", cpu="8", memory="16Gi"), pod("p", "1k", memory="1Ti")],
        ["did you mean 1000m?", "did you mean 1Gi?"],
        ["CorrectUnit"],
    ),
    "cpu without its unit, of the pod as a whole": Row(
        [N1, pod("p", "100m", resources={"requests": {"cpu": "4k"}, "limits": {"cpu": "5k"}})],
        ["it requests 4000 cpu (spec.resources), the most a node has is 8; did you mean 4000m?"],
        ["CorrectUnit"],
    ),
    "ephemeral storage in a unit too large": Row(
        [node("n1", allocatable={"ephemeral-storage": "100Gi"}), pod("p", requests=EPHEMERAL)],
        ["ephemeral-storage, the most a node has is 100Gi; did you mean 500M?"],
        ["CorrectUnit"],
    ),
    "memory in a unit too large": Row(
        [node("n1", memory="16Gi"), pod("p", memory="256Gi")],
        ["it requests 256Gi memory, the most a node has is 16Gi; did you mean 256Mi?"],
        ["CorrectUnit"],
    ),
    "label of another pool, and a taint": Row(
        [
            node("n1", labels={"pool": "web"}),
            node("n2", labels={"pool": "gpu"}, taints=[DB]),
            pod("p", nodeSelector={"pool": "gpu"}),
        ],
        ["taint dedicated=db:NoSchedule is not tolerated: n2"],
        ["Tolerate"],
    ),
    "taint": Row([node("n1", cpu="8", taints=[DB]), pod("p", "4")], ["dedicated=db"], ["Tolerate"]),
    "taint and too small": Row(
        [node("n1", cpu="4", taints=[DB]), pod("p", "8")], ["dedicated=db"], ["Tolerate"]
    ),
    "control plane is too small": Row(
        [N1, MASTER, full("a", "6", "n1"), pod("p", "8")],
        ["closest: n1, short of 6 cpu"],
        ["Resize"],
    ),
    "two taints": Row(
        [node("n1", taints=[DB, {"key": "spot", "effect": "NoSchedule"}]), pod("p")],
        ["spot:NoSchedule"],
        ["Tolerate"],
    ),
    "node not ready": Row(
        [node("n1", taints=[NOT_READY]), pod("p")], ["not usable now", "not-ready"], []
    ),
    "all nodes cordoned": Row(
        [node("n1", unschedulable=True), node("n2", unschedulable=True), pod("p")],
        ["cordoned (2)"],
        ["Uncordon"],
    ),
    "cordoned and too small": Row(
        [node("n1", cpu="2", unschedulable=True), pod("p", "16")], ["cordoned"], ["Uncordon"]
    ),
    "no nodes": Row([pod("p")], ["the cluster has no nodes"], []),
    "node selector": Row(
        [N1, pod("p", nodeSelector={"disk": "nvme"})],
        ["nodeSelector disk=nvme", "no node has the label disk"],
        ["LabelNode"],
    ),
    "node affinity": Row(
        [
            node("n1", labels={"disk": "hdd"}),
            pod("p", affinity=on_nodes({"key": "disk", "operator": "In", "values": ["nvme"]})),
        ],
        ["node affinity disk In (nvme)", "hdd on 1"],
        ["RemoveAffinity", "AddNode"],
    ),
    "node affinity that is empty": Row(
        [N1, pod("p", affinity=on_terms({}))],
        ["its node affinity has 1 empty term, which matches no node"],
        ["RemoveAffinity"],
    ),
    "node affinity with a term that is empty": Row(
        [N1, pod("p", affinity=on_terms({}, {"matchExpressions": [NVME]}))],
        [
            "its node affinity has 1 empty term, which matches no node",
            "node affinity disk In (nvme) is not met by the only node",
        ],
        ["LabelNode"],
    ),
    "memory that no node has, and too little cpu": Row(
        [node("n1", cpu="8", memory="32Gi"), full("a", "2", "n1"), pod("p", "7", memory="34Gi")],
        [
            "no node is large enough: it requests 34Gi memory, the most a node has is 32Gi",
            "closest: n1, short of 1 cpu, 2Gi memory",
        ],
        ["Resize"],
    ),
    "zone that no node has": Row(
        [N1, pod("p", nodeSelector={"topology.kubernetes.io/zone": "z9"})],
        ["topology.kubernetes.io/zone=z9"],
        ["AddNode"],
    ),
    "host port": Row(
        [N1, full("a", "1", "n1", ports=[80]), pod("p", ports=[80])],
        ["host port 80/TCP on n1 is used by pod default/a"],
        ["ChangePort"],
    ),
    "anti-affinity": Row(
        [N1, full("a", "1", "n1", app="x"), pod("p", affinity=anti_affinity("x"))],
        ["in the way is default/a"],
        ["EndPods"],
    ),
    "anti-affinity of another pod": Row(
        [N1, full("a", "1", "n1", affinity=anti_affinity("p")), pod("p", app="p")],
        ["anti-affinity of other pods excludes it: default/a"],
        ["EndPods"],
    ),
    "pod affinity to nothing": Row(
        [N1, pod("p", affinity=near("db"))],
        ["affinity to app=db", "no such pod is on a node"],
        ["RemoveAffinity"],
    ),
    "spread over a missing label": Row(
        [N1, pod("p", app="s", topologySpreadConstraints=spread("rack"))],
        ["the label rack is missing on n1"],
        ["LabelNode"],
    ),
    "spread is uneven": Row(
        [
            node("n1", labels={"rack": "a"}),
            node("n2", cpu="1", labels={"rack": "b"}),
            full("a", "1", "n1", app="s"),
            full("b", "1", "n2"),
            pod("p", app="s", topologySpreadConstraints=spread("rack")),
        ],
        ["pods by rack are a: 1, b: 0"],
        ["RelaxSpread"],
    ),
    "gated": Row(
        [N1, pod("p", schedulingGates=[{"name": "example.com/wait"}])],
        ["blocked by scheduling gates", "example.com/wait"],
        ["RemoveGates"],
    ),
    "gated and too big": Row(
        [N1, pod("p", "200", schedulingGates=[{"name": "example.com/wait"}])],
        ["scheduling gates", "the most a node has is 8"],
        ["RemoveGates"],
    ),
    "other scheduler": Row(
        [N1, pod("p", schedulerName="nobody")],
        ["Its schedulerName is nobody", "only a scheduler that serves nobody places it"],
        ["SetScheduler"],
    ),
    "nodes without allocatable": Row(
        [{**node("n1"), "status": {}}, pod("p", "1")],
        ["n1 has no status.allocatable: the kubelet has not reported it"],
        [],
    ),
    "too full, ends unknown": Row(
        [N1, full("a", "6", "n1"), pod("p", "4")],
        ["closest: n1, short of 2 cpu", "is unknown"],
        ["Resize"],
    ),
    "too full, end is known": Row(
        [N1, full("a", "6", "n1", annotations={ESTIMATE: "10m"}), pod("p", "8")],
        ["closest: n1"],
        ["Wait", "Resize"],
    ),
    "too full, one pod must end": Row(
        [N1, full("a", "7", "n1"), full("b", "1", "n1"), pod("p", "7")],
        ["closest: n1, short of 7 cpu"],
        ["EndPods"],
    ),
    "too full, protected by a budget": Row(
        [N1, full("a", "8", "n1", app="safe"), budget("safe"), pod("p", "7")],
        [
            "closest: n1, short of 7 cpu",
            "default/safe allows 0 more evictions: ending default/a on n1 is not advised",
        ],
        [],
    ),
    "reservation of others": Row(
        [N1, HELD, pod("p", "4")],
        ["reservation peak keeps 6 cpu on n1 for pods with app=web"],
        ["Wait", "Resize", "DeleteReservation"],
    ),
    "resource that no node has": Row(
        [N1, pod("p", requests={"example.com/fpga": "1"})],
        ["no node has the resource example.com/fpga"],
        ["AddNode"],
    ),
    "names a reservation that is not there": Row(
        [N1, pod("p", annotations=affinity_to({"name": "nope"}))],
        ["nope, does not exist"],
        ["RemoveAnnotation"],
    ),
    "names a reservation nearly right": Row(
        [N1, HELD, pod("p", app="web", annotations=affinity_to({"name": "paek"}))],
        ["did you mean peak?"],
        ["Annotate", "RemoveAnnotation"],
    ),
    "names a reservation on another node than it selects": Row(
        [
            N1,
            node("n2", cpu="8"),
            reservation("peak", "6", app="web", pod={"nodeName": "n1"}),
            pod(
                "p",
                app="web",
                annotations=affinity_to({"name": "peak"}),
                nodeSelector={"kubernetes.io/hostname": "n2"},
            ),
        ],
        ["reservation peak on n1 cannot be used: its node didn't match Pod's node affinity/selector"],
        ["RemoveAnnotation", "RemoveSelector"],
    ),
    "names a reservation of others": Row(
        [N1, HELD, pod("p", annotations=affinity_to({"name": "peak"}))],
        ["is for pods with app=web, and the pod is not one of them (spec.owners)"],
        ["LabelPod", "RemoveAnnotation"],
    ),
    "names a reservation of another namespace": Row(
        [
            N1,
            reservation(
                "peak",
                "6",
                owners=[
                    {
                        "object": {"namespace": "b"},
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ],
            ),
            pod("p", app="web", annotations=affinity_to({"name": "peak"})),
        ],
        ["is for pods with app=web in namespace b, and the pod is not one of them (spec.owners)"],
        ["CorrectOwner", "RemoveAnnotation"],
    ),
    "names a reservation without a node": Row(
        [
            N1,
            reservation("huge", "99", app="web"),
            pod("p", app="web", annotations=affinity_to({"name": "huge"})),
        ],
        ["the reservation it names, huge, has no node yet"],
        ["RemoveAnnotation"],
    ),
    "selects no reservation": Row(
        [N1, HELD, pod("p", app="web", annotations=affinity_to({"reservationSelector": {"a": "b"}}))],
        ["no reservation has them"],
        ["LabelReservation", "RemoveAnnotation"],
    ),
    "misspelt reservation affinity": Row(
        [N1, pod("p", annotations=affinity_to({"nam": "peak"}))], ["nam"], ["RemoveAnnotation"]
    ),
    "unschedulable reservation": Row(
        [
            N1,
            reservation("peak", "6", app="web", unschedulable=True, allocateOnce=False),
            pod("p", "4", app="web", annotations=affinity_to({})),
        ],
        ["No suitable node"],
        ["OpenReservation"],
    ),
    "tainted reservation": Row(
        [
            N1,
            reservation("peak", "6", app="web", taints=[DB], allocateOnce=False),
            pod("p", "4", app="web", annotations=affinity_to({})),
        ],
        ["No suitable node"],
        ["Tolerate"],
    ),
    "required reservation on a tainted node": Row(
        [
            node("n1", "8", taints=[DB]),
            on_n1(HELD),
            pod("p", "4", app="web", annotations=affinity_to({})),
        ],
        ["No suitable node"],
        ["Tolerate"],
    ),
    "required reservation on a cordoned node": Row(
        [
            node("n1", "8", unschedulable=True),
            on_n1(HELD),
            pod("p", "4", app="web", annotations=affinity_to({})),
        ],
        ["No suitable node"],
        ["Uncordon"],
    ),
    "required reservation on a node without a label": Row(
        [
            N1,
            on_n1(HELD),
            pod("p", "4", app="web", annotations=affinity_to({}), nodeSelector={"disk": "ssd"}),
        ],
        ["No suitable node"],
        ["LabelNode"],
    ),
    "restricted reservation, too small": Row(
        [
            N1,
            reservation("peak", "3", app="web", allocatePolicy="Restricted", allocateOnce=False),
            pod("p", "4", app="web", annotations=affinity_to({})),
        ],
        ["No suitable node"],
        ["Resize", "EnlargeReservation"],
    ),
    "restricted reservation, too small beside another owner": Row(
        [
            N1,
            reservation("peak", "4", app="web", allocatePolicy="Restricted", allocateOnce=False),
            pod("a", "2", app="web"),
            pod("p", "3", app="web"),
        ],
        ["the pod requests 3 cpu, the reservation has 2 left, and its policy is Restricted"],
        ["Resize", "EnlargeReservation"],
    ),
    "restricted reservation, too small on a full node": Row(
        [
            N1,
            full("a", "5", "n1"),
            reservation("peak", "3", app="web", allocatePolicy="Restricted", allocateOnce=False),
            pod("p", "4", app="web"),
        ],
        ["the reservation has 3 left, and its policy is Restricted"],
        ["Resize"],
    ),
    "node without places for pods": Row(
        [node("n1", "8", allocatable={"pods": "0"}), pod("p")], ["n1 takes no pods"], []
    ),
    "queue that cannot exist": Row(
        [N1, pod("p", annotations={QUEUE: "Small"})], ["queue Small does not exist"], []
    ),
    "exact match of a reservation that is larger": Row(
        [N1, on_n1(HELD), pod("p", "4", app="web", annotations={EXACT: '{"resourceNames":["cpu"]}'})],
        [
            "reservation peak on n1 cannot be used: its size must match exactly "
            "(exact-match-reservation): the pod requests 4 cpu, the reservation has 6"
        ],
        ["RemoveAnnotation", "Resize"],
    ),
    "exact match": Row(
        [
            N1,
            reservation("peak", "3", app="web", allocateOnce=False),
            pod(
                "p", "4", app="web", annotations={**affinity_to({}), EXACT: '{"resourceNames":["cpu"]}'}
            ),
        ],
        ["No suitable node"],
        ["RemoveAnnotation", "RemoveAnnotation", "Resize"],
    ),
    "ignores reservations": Row(
        [N1, HELD, pod("p", "4", metadata={"labels": {"app": "web", IGNORED: "true"}})],
        ["it ignores reservations"],
        ["Wait", "RemoveLabel", "Resize", "DeleteReservation"],
    ),
    "claim is missing": Row(
        [N1, pod("p", volumes=using("nope"))],
        ["PersistentVolumeClaim default/nope does not exist"],
        ["CreateClaim"],
    ),
    "claim waits for a pod, no volume": Row(
        [N1, storage_class("local"), claim("c", kind="local"), pod("p", volumes=using("c"))],
        ["claim c is not bound", "storage class local"],
        ["CreateVolume"],
    ),
    "volume in another zone": Row(
        [
            node("n1", labels={"topology.kubernetes.io/zone": "b"}),
            claim("c", volume="v"),
            volume("v", "c", zone="a"),
            pod("p", volumes=using("c")),
        ],
        ["claim c is bound to v, which needs topology.kubernetes.io/zone=a"],
        [],
    ),
    "claim for one pod is in use": Row(
        [
            N1,
            claim("c", "ReadWriteOncePod", "v"),
            volume("v", "c", modes="ReadWriteOncePod"),
            full("a", "1", "n1", volumes=using("c")),
            pod("p", volumes=using("c")),
        ],
        ["default/a uses it"],
        ["EndPods"],
    ),
    "queue does not exist": Row(
        [N1, queue("batch"), pod("p", annotations={QUEUE: "bacth"})],
        ["queue bacth does not exist"],
        ["Annotate", "CreateQueue"],
    ),
    "over the capability of its queue": Row(
        [N1, queue("small", capability={"cpu": "2"}), pod("p", "4", annotations={QUEUE: "small"})],
        ["uses 0 of the 2 cpu of its capability", "it can never start"],
        ["RaiseCapability", "Resize"],
    ),
    "cpu without its unit, over the capability of its queue": Row(
        [
            node("n1", cpu="64"),
            queue("small", capability={"cpu": "4"}),
            pod("p", "2k", annotations={QUEUE: "small"}),
        ],
        ["the request is 2000 cpu: it can never start; did you mean 2000m cpu?"],
        ["CorrectUnit"],
    ),
    "memory in a unit too large, over the capability of its queue": Row(
        [
            node("n1", memory="256Gi"),
            queue("small", capability={"memory": "4Gi"}),
            pod("p", memory="64Gi", annotations={QUEUE: "small"}),
        ],
        ["it can never start; did you mean 64Mi memory?"],
        ["CorrectUnit", "RaiseCapability"],
    ),
    "cpu without its unit, and its queue is in use": Row(
        [
            N1,
            queue("small", capability={"cpu": "4"}),
            full("a", "3", "n1", annotations={QUEUE: "small"}),
            pod("p", "2k", annotations={QUEUE: "small"}),
        ],
        ["did you mean 2000m cpu?"],
        ["CorrectUnit"],
    ),
    "cpu without its unit, a queue, and too little capacity": Row(
        [
            node("n1", cpu="4"),
            queue("small", capability={"cpu": "4"}),
            full("a", "3", "n1"),
            pod("p", "2k", annotations={QUEUE: "small"}),
        ],
        ["did you mean 2000m cpu?"],
        ["CorrectUnit"],
    ),
    "many CPUs, more than the capability of its queue": Row(
        [
            node("n1", cpu="64"),
            queue("small", capability={"cpu": "2"}),
            pod("p", "16", annotations={QUEUE: "small"}),
        ],
        ["the request is 16 cpu: it can never start"],
        ["RaiseCapability"],
    ),
    "gang whose members differ, over the capability of its queue": Row(
        [
            node("n1", cpu="64"),
            queue("small", capability={"cpu": "2"}),
            in_default(pod_group("g", 2, queue="small")),
            *(pod(name, cpu, group="g") for name, cpu in (("p", "4"), ("b", "16"), ("c", "4"))),
        ],
        ["the request is 8 cpu"],
        ["RaiseCapability", "Resize"],
    ),
    "gated, and over the capability of its queue": Row(
        [
            N1,
            queue("small", capability={"cpu": "2"}),
            pod("p", "4", annotations={QUEUE: "small"}, schedulingGates=[{"name": "example.com/wait"}]),
        ],
        ["blocked by scheduling gates", "uses 0 of the 2 cpu of its capability"],
        ["RemoveGates"],
    ),
    "gated, and cpu without its unit over the capability of its queue": Row(
        [
            node("n1", cpu="64"),
            queue("small", capability={"cpu": "4"}),
            pod(
                "p", "2k", annotations={QUEUE: "small"}, schedulingGates=[{"name": "example.com/wait"}]
            ),
        ],
        ["did you mean 2000m cpu?"],
        ["RemoveGates"],
    ),
    "gang with a gated member, over the capability of its queue": Row(
        [
            N1,
            queue("small", capability={"cpu": "4"}),
            in_default(pod_group("g", 2, queue="small")),
            pod("p", "3", group="g"),
            pod("b", "3", group="g", schedulingGates=[{"name": "example.com/wait"}]),
        ],
        ["the request is 6 cpu", "scheduling gates of default/b to remove: example.com/wait"],
        ["RemoveGates"],
    ),
    "pods over the capability of its queue": Row(
        [
            N1,
            queue("small", capability={"pods": "1"}),
            full("a", "1", "n1", annotations={QUEUE: "small"}),
            pod("p", annotations={QUEUE: "small"}),
        ],
        ["uses 1 of the 1 pods of its capability, and the request is 1 pod"],
        ["RaiseCapability"],
    ),
    "queue with a pod that is overdue": Row(
        [
            N1,
            queue("small", capability={"cpu": "2"}),
            full(
                "a",
                "2",
                "n1",
                metadata={
                    "annotations": {QUEUE: "small"},
                    "deletionTimestamp": "2025-12-31T00:00:00Z",
                    "deletionGracePeriodSeconds": 30,
                },
            ),
            pod("p", "2", annotations={QUEUE: "small"}),
        ],
        ["default/a of it is being deleted and should have ended 24h ago: check the kubelet of n1"],
        ["RaiseCapability", "EndOverduePods"],
    ),
    "limit without its unit": Row(
        [node("n1", cpu="8", annotations={LIMIT: '{"cpu": 100}'}), limited("p", "500m", "500")],
        ["and its limit is 500; did you mean 500m?"],
        ["CorrectUnit"],
    ),
    "gang lacks pods": Row(
        [N1, in_default(pod_group("g", 3)), pod("p", group="g")],
        ["1 of the 3 pods it needs", "2 more must be created"],
        ["CreatePods", "LowerMinMember"],
    ),
    "limits of the node": Row(
        [
            node("n1", cpu="8", annotations={LIMIT: '{"cpu": 100}'}),
            limited("a", "1", "6"),
            limited("p", "1", "4"),
        ],
        ["limits add up to 6 of 8 cpu allowed (100% of allocatable), and its limit is 4"],
        ["Resize", "RaiseLimitRatio"],
    ),
    "limits of the node, annotation invalid": Row(
        [node("n1", annotations={LIMIT: "nonsense"}), pod("p")],
        ["invalid annotation limit-to-allocatable"],
        ["RemoveAnnotation"],
    ),
    "assigned to a node that does not exist": Row(
        [node("node-1", cpu="8"), pod("p", "1", nodeName="node-l")],
        ["assigned to node-l, which does not exist", "delete the pod", "did you mean node-1?"],
        [],
        node="node-l",
    ),
    "scheduler name nearly right": Row(
        [N1, pod("p", schedulerName="holdfst-scheduler")],
        ["did you mean holdfast-scheduler?"],
        ["SetScheduler"],
    ),
    "resource nearly right": Row(
        [
            node("n1", cpu="8", allocatable={"nvidia.com/gpu": "2"}),
            pod("p", requests={"nvidia.com/gpus": "1"}),
        ],
        ["no node has the resource nvidia.com/gpus; did you mean nvidia.com/gpu?"],
        ["CorrectResource"],
    ),
    "init container is too big": Row(
        [N1, with_init(pod("p", "1"), "fetch", "40")],
        ["it requests 40 cpu (its init container fetch does)"],
        ["CorrectUnit"],
    ),
    "never preempts": Row(
        [N1, full("low", "8", "n1"), pod("p", "4", priority=10, preemptionPolicy="Never")],
        ["its preemptionPolicy is Never"],
        ["AllowPreemption"],
    ),
    "exclusive CPUs are not whole": Row(
        [N1, pod("p", "1500m", priority=9500, labels={"koordinator.sh/qosClass": "LSR"})],
        [
            "qosClass=LSR asks for exclusive CPUs, which are whole ones, and it requests 1500m",
            "with whole CPUs it has no node either: 0/1 nodes are available",
        ],
        ["RemoveLabel"],
    ),
    "planned reservation": Row(
        [N1, planned("nightly", "6"), pod("p", "4")],
        [
            "planned for reservations that start later (1)",
            "reservation nightly takes 6 cpu on n1 from 2026-01-01T02:00:00Z (in 2h) until "
            "2026-01-01T06:00:00Z, for pods with app=night",
            "it has no run-time estimate",
        ],
        ["EstimateRunTime", "Resize", "DeleteReservation"],
    ),
    "estimate ends after a planned reservation starts": Row(
        [N1, planned("nightly", "6"), pod("p", "4", metadata=annotated(**{ESTIMATE: "3h"}))],
        ["by its run-time estimate it would end at 2026-01-01T03:00:00Z"],
        ["EstimateRunTime", "Resize", "DeleteReservation"],
    ),
    "two planned reservations on the node": Row(
        [N1, planned("a", "4", app="a"), planned("b", "4", app="b"), pod("p", "6")],
        ["reservation a takes 4 cpu", "reservation b takes 4 cpu"],
        ["EstimateRunTime", "DeleteReservation"],
    ),
    "planned reservation that evicts at its end": Row(
        [N1, planned("nightly", "4", at_end="Evict"), pod("p", "8")],
        ["reservation nightly takes 4 cpu"],
        ["EstimateRunTime", "Wait", "Resize", "DeleteReservation"],
    ),
    "planned reservation of its own": Row(
        [N1, planned("nightly", "6"), pod("p", "4", app="night")],
        ["it may use the reservation nightly, which starts at 2026-01-01T02:00:00Z on n1"],
        ["EstimateRunTime", "Wait", "Resize"],
    ),
    "planned reservation that drains its node": Row(
        [N1, planned("nightly", "6", before_start="Drain", lead="3h"), pod("p", "4")],
        ["reservation nightly takes 6 cpu"],
        ["EstimateRunTime", "Resize", "DeleteReservation"],
    ),
    "planned reservation of a schedule": Row(
        [N1, schedule("nightly"), made_by("nightly"), pod("p", "4")],
        ["reservation nightly-1 takes 6 cpu"],
        ["EstimateRunTime", "Resize", "SuspendSchedule"],
    ),
    "pod of a Deployment beside a planned reservation": Row(
        [
            N1,
            planned("nightly", "6"),
            pod(
                "p",
                "4",
                metadata={
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
                    ]
                },
            ),
        ],
        ["reservation nightly takes 6 cpu"],
        ["Resize", "DeleteReservation"],
    ),
    "waits for a pod and ends before a planned reservation starts": Row(
        [
            N1,
            full("a", "6", "n1", metadata=annotated(**{ESTIMATE: "30m"})),
            planned("nightly", "6"),
            pod("p", "4", metadata=annotated(**{ESTIMATE: "90m"})),
        ],
        ["closest: n1, short of 2 cpu"],
        ["Wait", "Resize"],
    ),
    "would wait for a pod for too long before a planned reservation starts": Row(
        [
            N1,
            full("a", "6", "n1", metadata=annotated(**{ESTIMATE: "1h"})),
            planned("nightly", "6"),
            pod("p", "4", metadata=annotated(**{ESTIMATE: "90m"})),
        ],
        ["closest: n1, short of 2 cpu"],
        ["Resize"],
    ),
    "gang larger than the nodes": Row(
        [N1, in_default(pod_group("g", 2)), *(pod(name, "5", group="g") for name in ("p", "q"))],
        ["it can never start on these nodes: 2 members request 10 cpu, and all nodes together have 8"],
        ["Resize"],
    ),
    "misspelt group": Row(
        [N1, in_default(pod_group("train", 1)), pod("p", "1", group="trian")],
        ["there is no PodGroup default/trian; did you mean train?"],
        ["JoinGroup"],
    ),
    "gang beside planned reservations": Row(
        [
            N1,
            node("n2", cpu="8"),
            planned("a", "6"),
            planned("b", "6"),
            in_default(pod_group("g", 2)),
            pod("p", "4", group="g"),
            pod("q", "4", group="g"),
        ],
        ["reservation a takes 6 cpu on n1", "reservation b takes 6 cpu on n2"],
        ["EstimateRunTime", "Resize", "DeleteReservation"],
    ),
    "too many pods": Row(
        [node("n1", allocatable={"pods": "1"}), full("a", "1", "n1"), pod("p")],
        ["short of 1 pod slot"],
        ["EndPods"],
    ),
}


def world_of(objects: list[Raw], provisioner: str = "builtin") -> World:
    world = World(provisioner=provisioner)
    world.shrinking = True
    world.put(*copy.deepcopy(objects))
    return world


def snapshot_of(world: World) -> ClusterSnapshot:
    return snapshot_with(list(world.objects.values()), world.now)


def snapshot_with(
    objects: list[Raw], now: float, factory: SchedulerFactory = FACTORY
) -> ClusterSnapshot:
    snapshot = ClusterSnapshot(factory.scheduler(), now)
    for watched in WATCHED:
        if not watched.ended:
            kinds = (watched.info.api_version, watched.info.kind)
            found = [r for r in objects if (r["apiVersion"], r["kind"]) == kinds]
            snapshot.add(watched, copy.deepcopy(found))
    return snapshot


def as_they_are(kind: str, name: str, *objects: Raw, factory: SchedulerFactory = FACTORY) -> Report:
    """The report on an object of a cluster in which no scheduler has run."""
    known = [
        {**raw, "metadata": {"uid": raw["metadata"]["name"], **raw["metadata"]}} for raw in objects
    ]
    for raw in known:
        if raw["kind"] in ("Pod", "PodGroup"):
            raw["metadata"].setdefault("namespace", "default")
    (wanted,) = [r for r in known if (r["kind"], r["metadata"]["name"]) == (kind, name)]
    return explain(snapshot_with(known, World().now, factory), wanted)


def explained(world: World, row: Row) -> Report:
    snapshot = snapshot_of(world)
    found = explain(snapshot, world.objects[row.kind, row.name])
    again = explain(snapshot, world.objects[row.kind, row.name])
    assert found.data() == again.data(), "asking changed the snapshot"
    return found


def merged(raw: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(raw) if isinstance(raw, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def changed(objects: list[Raw], change: Raw) -> list[Raw]:
    by_name = {(r["kind"], r["metadata"]["name"]): copy.deepcopy(r) for r in objects}
    for each in [*change["objects"], *change.get("then", ())]:
        key = each["kind"], each["name"]
        match each["operation"]:
            case "create":
                by_name[key] = each["object"]
            case "delete" | "end":
                del by_name[key]
            case "patch" if key in by_name:  # the world has no Deployments and Jobs
                before, by_name[key] = by_name[key], merged(by_name[key], each["patch"])
                if key[0] == "Pod" and is_replaced(before["spec"], by_name[key]["spec"]):
                    by_name[key] = created_now(by_name.pop(key))
    return list(by_name.values())


def is_replaced(before: Raw, after: Raw) -> bool:
    """Whether an API server refuses this change of a pod that has no node: another one is created."""
    changeable = ("schedulingGates", "tolerations", "nodeName")
    fixed = [{key: spec[key] for key in spec if key not in changeable} for spec in (before, after)]
    return fixed[0] != fixed[1]


def created_now(raw: Raw) -> Raw:
    metadata = {key: value for key, value in raw["metadata"].items() if key != "resourceVersion"}
    return {**raw, "metadata": {**metadata, "creationTimestamp": format_time(START)}}


def check(row: Row) -> Report:
    """The scheduler does with the objects what the row says, and so does the explanation."""
    report = check_applied(row)
    told = [(each.change["actions"][0], each.text) for each in report.advice]
    assert [action for action, _ in told] == row.advises, told
    return report


def check_applied(row: Row) -> Report:
    """As `check`, whatever is advised: with each advice the pod is bound."""
    world = world_of(row.objects, row.provisioner)
    assert world.node_of("p") == row.node
    report = explained(world, row)
    said = "\n".join([report.summary, *report.details])
    for text in row.says:
        assert text in said
    for advice in report.advice:
        after = world_of(changed(list(world.objects.values()), advice.change), row.provisioner)
        assert after.node_of("p"), f"{advice.text}: {after.message('p')}"
    return report


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def test_there_are_at_least_forty() -> None:
    assert len(SITUATIONS) >= 40


def test_a_deployment_is_explained_by_its_pods() -> None:
    def owned(kind: str, name: str) -> list[Raw]:
        return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}]

    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "web"},
    }
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "uid": "web-1",
            "ownerReferences": owned("Deployment", "web"),
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    pods = [
        pod(f"web-1-{i}", "5", metadata={"ownerReferences": owned("ReplicaSet", "web-1")})
        for i in range(3)
    ]
    world = world_of([N1, replica_set, *pods])
    report = explain(snapshot_of(world), deployment)
    assert report.summary.startswith(
        "1 of 3 pods have a node. 2 pending: No suitable node among 1 node"
    )
    assert [(each.count, each.state) for each in report.pods] == [(2, "Pending"), (1, "Placed")]
    assert [each.change["actions"] for each in report.advice] == [["Resize"]]


def test_a_reservation_behind_one_for_the_same_owners() -> None:
    world = world_of([N1, HELD, reservation("second", "6", app="web")])
    report = explained(world, Row([], [], [], name="second", kind="Reservation"))
    (holder,) = report.holders
    assert (holder.name, holder.same_owners) == ("peak", True)
    text = "reservation peak keeps 6 cpu on n1 for the same owners, pods with app=web"
    assert any(each.startswith(text) for each in report.details), report.details
