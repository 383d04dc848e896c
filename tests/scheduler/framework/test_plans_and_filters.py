"""A reservation with a start is planned on nodes where one that starts now could be placed.

Each situation has a node on which one filter alone rejects the reservation, for as long as the objects
stay as they are, and a larger node that is good. A plan prefers the smaller one.
"""

from typing import Any, NamedTuple

import pytest

from harness.claim_objects import (
    allocation,
    claiming_pod,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.device_objects import device, gpu
from harness.numa_objects import topology
from harness.objects import Raw, node, pod, reservation
from harness.scenarios import condition, play

CSI = "csi.example.com"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
POLICY = "node.koordinator.sh/numa-topology-policy"
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
LIMIT = "node.koordinator.sh/limit-to-allocatable"
LSR = {"koordinator.sh/qosClass": "LSR"}
DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DISK = {"volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": "disk"}}]}
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


class Situation(NamedTuple):
    """What is in the cluster, and what the reservation requests."""

    reason: str
    """Why the bad node is rejected, as the plugin says it."""
    template: Raw
    """The spec of the template's pod; `requests` and `labels` are apart."""
    bad: Raw
    """Of the bad node."""
    good: Raw
    """Of the good node."""
    others: list[Raw]


def situation(reason: str, *others: Raw, bad: Any = (), good: Any = (), **template: Any) -> Situation:
    return Situation(reason, template, dict(bad), dict(good), list(others))


def agent(name: str, **more: Any) -> Raw:
    """A pod that stays on the bad node as long as that."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "a", "controller": True}
    labels = {"labels": more.pop("labels")} if "labels" in more else {}
    return pod(name, nodeName="bad", metadata={"ownerReferences": [owner], **labels}, **more)


def required(**side: Any) -> Raw:
    """An affinity of kind `podAffinity` and so on, required during scheduling."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": it} for kind, it in side.items()}


def near(app: str) -> list[Raw]:
    return [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}]


def storage(name: str, kind: str, **more: Any) -> Raw:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **more}


def volume(labels: Raw | None = None, **spec: Any) -> list[Raw]:
    """The claim `data`, which is bound to a volume."""
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disks"}
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "annotations": bound},
        "spec": {**common, "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    }
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v", "labels": labels or {}},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": CSI, "volumeHandle": "v"},
            "claimRef": {"namespace": "default", "name": "data"},
            **spec,
        },
        "status": {"phase": "Bound"},
    }
    return [storage("disks", "StorageClass", provisioner=CSI), claim, made]


def csi_node(name: str, *limits: int) -> Raw:
    """Its CSINode, with the driver installed if a limit is given."""
    drivers = [{"name": CSI, "nodeID": name, "allocatable": {"count": count}} for count in limits]
    return storage(name, "CSINode", spec={"drivers": drivers})


def in_zone(zone: str) -> Raw:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


DEMANDED = storage(CSI, "CSIDriver", spec={"preventPodSchedulingIfMissing": True})
TWO_ZONES: Any = {"bad": {"labels": {ZONE: "a"}}, "good": {"labels": {ZONE: "b"}}}

SITUATIONS = {
    "NodeUnschedulable": situation("node(s) were unschedulable", bad={"unschedulable": True}),
    "NodeName": situation(
        "node(s) didn't match the nodeName specified by reservation", nodeName="good"
    ),
    "TaintToleration": situation(
        "node(s) had untolerated taint(s)", bad={"taints": [{"key": "k", "effect": "NoSchedule"}]}
    ),
    "NodeAffinity": situation(
        "node(s) didn't match Pod's node affinity/selector", nodeSelector={HOST: "good"}
    ),
    "NodePorts": situation(
        "node(s) didn't have free ports for the requested pod ports",
        agent("first", ports=[80]),
        ports=[80],
    ),
    "NodeResourcesFit": situation("Insufficient cpu", agent("first", cpu=6), requests={"cpu": 4}),
    "VolumeRestrictions": situation("node(s) had no available disk", agent("first", **DISK), **DISK),
    "a driver that is not installed": situation(
        f"{CSI} CSI driver is not installed on the node",
        *volume(),
        DEMANDED,
        csi_node("bad"),
        csi_node("good", 8),
        **DATA,
    ),
    "a driver with too low a limit": situation(
        "node(s) exceed max volume count", *volume(), csi_node("bad", 0), csi_node("good", 8), **DATA
    ),
    "VolumeBinding": situation(
        "node(s) didn't match PersistentVolume's node affinity",
        *volume(nodeAffinity=in_zone("b")),
        **TWO_ZONES,
        **DATA,
    ),
    "VolumeZone": situation(
        "node(s) had no available volume zone", *volume(labels={ZONE: "b"}), **TWO_ZONES, **DATA
    ),
    "PodTopologySpread": situation(
        "node(s) didn't match pod topology spread constraints",
        agent("first", labels={"app": "r"}),
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": HOST,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "r"}},
                "minDomains": 2,
            }
        ],
    ),
    "InterPodAffinity": situation(
        "node(s) didn't match pod anti-affinity rules",
        agent("first", labels={"app": "x"}),
        affinity=required(podAntiAffinity=near("x")),
    ),
    "anti-affinity of a pod there": situation(
        "node(s) didn't satisfy existing pods anti-affinity rules",
        agent("first", labels={"app": "x"}, affinity=required(podAntiAffinity=near("r"))),
    ),
    "LimitAware": situation(
        "node(s) had a malformed limit-to-allocatable annotation", bad={"annotations": {LIMIT: "half"}}
    ),
    "no topology for exclusive CPUs": situation(
        "node(s) invalid CPU Topology",
        topology("good", cpus=16, numa=2),
        labels=LSR,
        requests={"cpu": 4},
    ),
    "a policy on a node without NUMA nodes": situation(
        "node(s) missing NUMA resources", bad={"labels": {POLICY: "SingleNUMANode"}}
    ),
    "a policy other than the node's": situation(
        "node(s) NUMA Topology policy not match",
        topology("bad", cpus=8, numa=2, policies=["BestEffort"]),
        topology("good", cpus=16, numa=2),
        annotations={
            "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'
        },
    ),
    "NUMA nodes that are too small": situation(
        "Unaligned NUMA Hint cause",
        topology("bad", cpus=8, numa=2, policies=["SingleNUMANodePodLevel"]),
        topology("good", cpus=16, numa=2, policies=["SingleNUMANodePodLevel"]),
        requests={"cpu": 6},
    ),
    "NUMA nodes with less than the node": situation(
        "Insufficient NUMA memory",
        topology("bad", cpus=8, numa=2, memory=1, policies=["BestEffort"]),
        topology("good", cpus=16, numa=2, policies=["BestEffort"]),
        requests={"cpu": 1, "memory": "4Gi"},
    ),
    "amplified CPUs": situation(
        "Insufficient amplified cpu",
        topology("bad", cpus=8, numa=2),
        topology("good", cpus=16, numa=2),
        bad={"annotations": {AMPLIFICATION: '{"cpu": 2}'}},
        labels=LSR,
        requests={"cpu": 6},
    ),
    "an invalid amplification": situation(
        "node(s) invalid CPU amplification ratio",
        topology("bad", cpus=8, numa=2),
        topology("good", cpus=16, numa=2),
        bad={"annotations": {AMPLIFICATION: "much"}},
    ),
    "DeviceShare": situation(
        "Insufficient GPU Devices",
        device("bad", gpu(0), gpu(1)),
        device("good", gpu(0), gpu(1)),
        agent("first", requests={"koordinator.sh/gpu": 60}),
        agent("second", requests={"koordinator.sh/gpu": 60}),
        requests={"koordinator.sh/gpu": 60},
    ),
    "DynamicResources": situation(
        "cannot allocate all claims",
        device_class(),
        resource_slice("good", 1),
        resource_claim("gpu", request()),
        **CLAIM,
    ),
    "a claim with a device elsewhere": situation(
        "resourceclaim not available on the node",
        device_class(),
        resource_slice("bad", 1),
        resource_slice("good", 1),
        resource_claim("gpu", request(), allocation=allocation("good", "gpu-0"), reserved_for=["user"]),
        {
            **claiming_pod("user", "gpu", nodeName="good"),
            "metadata": {"name": "user", "uid": "pod-user"},
        },
        **CLAIM,
    ),
}


def made(given: Situation, later: bool, cordoned: bool = False) -> list[Raw]:
    """The objects. The good node may be cordoned."""
    nodes = [node("bad", 8, **given.bad), node("good", 16, **given.good, unschedulable=cordoned)]
    spec = dict(given.template)
    requests = spec.pop("requests", {"cpu": 1})
    metadata = {"labels": {"app": "r"}, "annotations": spec.pop("annotations", {})}
    metadata["labels"] |= spec.pop("labels", {})
    annotations = {"holdfast.io/starts-at": "2026-01-01T01:00:00Z"} if later else {}
    it = reservation("r", requests=requests, pod=spec, annotations=annotations, ttl="1h")
    it["spec"]["template"]["metadata"] = metadata
    return [*nodes, *given.others, it]


@pytest.fixture(params=SITUATIONS)
def given(request: pytest.FixtureRequest) -> Situation:
    return SITUATIONS[request.param]


def test_it_goes_to_the_node_that_is_good_now_and_later(given: Situation) -> None:
    now = play(made(given, later=False), until=60).find("Reservation", "r")
    assert now["status"]["nodeName"] == "good"
    planned = play(made(given, later=True), until=60).find("Reservation", "r")
    assert planned["status"].get("nodeName") == "good"
    assert condition(planned, "Feasible")["status"] == "True"
    started = play(made(given, later=True), until=3700).find("Reservation", "r")
    assert (started["status"]["phase"], started["status"]["nodeName"]) == ("Available", "good")


def test_without_that_node_it_goes_nowhere(given: Situation) -> None:
    now = play(made(given, later=False, cordoned=True), until=60).find("Reservation", "r")
    assert given.reason in condition(now, "Scheduled")["message"]
    planned = play(made(given, later=True, cordoned=True), until=60).find("Reservation", "r")
    assert condition(planned, "Feasible")["status"] == "False"
    assert not planned["status"].get("nodeName")
