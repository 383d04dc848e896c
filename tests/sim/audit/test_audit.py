"""The capacity audit reports every kind of wrong write of the scheduler, and no write of others.

Each row is a state, a write of the scheduler, and the problems it is to report."""

import copy
import json
from typing import Any

import pytest

from harness.objects import pod
from holdfast.sim.audit import Audit

Raw = dict[str, Any]
KOORD = "scheduling.koordinator.sh/"
START = 1767225600.0
"""2026-01-01T00:00:00Z"""


def node(name: str = "n1", annotations: Raw | None = None, **allocatable: str) -> Raw:
    metadata = {"name": name, "labels": {"host": name}, "annotations": annotations or {}}
    return {
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": allocatable or {"cpu": "4"}},
    }


def stored_pod(name: str, on: str = "", cpu: str = "1", **more: Any) -> Raw:
    """A pod as the API server has it: bound if `on` a node, allocated from a reservation if `through`
    one; `container` is added to its container."""
    annotations = more.pop("annotations", {})
    if through := more.pop("through", None):
        value = {"name": through, "uid": f"{through}-uid"}
        annotations = {**annotations, KOORD + "reservation-allocated": json.dumps(value)}
    metadata = {"namespace": "default", "uid": f"{name}-uid", **more.pop("metadata", {})}
    labels, container = more.pop("labels", {"app": "web"}), more.pop("container", {})
    if on:
        more["nodeName"] = on
    more = {"schedulerName": "s", **more}
    raw = pod(name, cpu, annotations=annotations, labels=labels, metadata=metadata, **more)
    raw["spec"]["containers"][0] |= container
    return {**raw, "status": {"phase": "Pending"}}


def reservation(name: str, phase: str = "Pending", cpu: str = "2", **more: Any) -> Raw:
    status: Raw = {"phase": phase}
    if phase in ("Available", "Waiting"):
        status |= {"nodeName": "n1", "allocatable": {"cpu": cpu}}
        ready = "True" if phase == "Available" else "False"
        status["conditions"] = [
            {"type": "Scheduled", "status": "True", "reason": "Scheduled"},
            {"type": "Ready", "status": ready, "reason": phase},
        ]
    status |= more.pop("status", {})
    metadata = {
        "name": name,
        "uid": f"{name}-uid",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": more.pop("annotations", {}),
        "labels": more.pop("labels", {}),
    }
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": cpu}},
        **more.pop("container", {}),
    }
    spec = {
        "template": {"spec": {"schedulerName": "s", "containers": [container], **more.pop("pod", {})}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}],
        "allocateOnce": False,
        **more,
    }
    return {"kind": "Reservation", "metadata": metadata, "spec": spec, "status": status}


def port(number: int, ip: str = "", protocol: str = "TCP") -> Raw:
    return {"ports": [{"hostPort": number, "hostIP": ip, "protocol": protocol}]}


def devices(*healthy: bool) -> Raw:
    listed = [
        {"type": "gpu", "minor": i, "health": health, "resources": {"koordinator.sh/gpu-core": "100"}}
        for i, health in enumerate(healthy)
    ]
    return {"kind": "Device", "metadata": {"name": "n1"}, "spec": {"devices": listed}}


def gpu(minor: int, share: int = 100, function: int | None = None) -> Raw:
    given: Raw = {"minor": minor, "resources": {"koordinator.sh/gpu-core": str(share)}}
    if function is not None:
        given["extension"] = {"vfs": [{"minor": function, "busID": "b"}]}
    return {KOORD + "device-allocated": json.dumps({"gpu": [given]})}


def gpus(*minors: int, share: int = 100) -> Raw:
    given = [{"minor": each, "resources": {"koordinator.sh/gpu-core": str(share)}} for each in minors]
    return {KOORD + "device-allocated": json.dumps({"gpu": given})}


def partitioned(policy: str = "Honor") -> Raw:
    """Four GPUs, in pairs."""
    made = devices(True, True, True, True)
    table = {"2": [{"minors": [0, 1]}, {"minors": [2, 3]}]}
    made["metadata"]["labels"] = {"node.koordinator.sh/gpu-partition-policy": policy}
    made["metadata"]["annotations"] = {KOORD + "gpu-partitions": json.dumps(table)}
    return made


def cpus(text: str, **numa: int) -> Raw:
    shares = [{"node": int(zone[1:]), "resources": {"cpu": str(n)}} for zone, n in numa.items()]
    value = {"cpuset": text, "numaNodeResources": shares}
    return {KOORD + "resource-status": json.dumps(value)}


def topology(count: int = 4) -> Raw:
    detail = [{"id": i} for i in range(count)]
    zone = {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "2"}]}
    value = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    metadata = {"name": "n1", "annotations": value}
    return {"kind": "NodeResourceTopology", "metadata": metadata, "zones": [zone]}


def claim(name: str, volume: str = "", mode: str = "ReadWriteOnce") -> Raw:
    metadata = {"name": name, "namespace": "default", "uid": f"{name}-uid"}
    spec = {"volumeName": volume, "accessModes": [mode]}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def volume(name: str, host: str = "n1") -> Raw:
    selector = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]}]
    spec = {
        "csi": {"driver": "d", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": selector}},
    }
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def csi_node(count: int) -> Raw:
    driver = {"name": "d", "allocatable": {"count": count}}
    return {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": [driver]}}


def using(*claims: str) -> list[Raw]:
    return [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]


def group(needs: int) -> Raw:
    metadata = {"name": "g", "namespace": "default"}
    return {"kind": "PodGroup", "metadata": metadata, "spec": {"minMember": needs}}


def queue(name: str = "q", cpu: str = "", parent: str = "") -> Raw:
    spec: Raw = {"capability": {"cpu": cpu}} if cpu else {}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": {**spec, "parent": parent}}


IN_QUEUE = {"scheduling.volcano.sh/queue-name": "q"}
IN_GROUP = {"scheduling.k8s.io/group-name": "g"}
LIMITED = {"node.koordinator.sh/limit-to-allocatable": '{"cpu": "100%"}'}
OWNER = {"app": "owner"}


def _always(scheduler: str, resource: str) -> bool:
    return True


class Cluster:
    """Objects by kind and name, and an audit that hears of every change."""

    def __init__(self, bounds_limits: bool = False) -> None:
        every = frozenset(
            "NodeResourcesFit NodePorts DeviceShare NodeNUMAResource LimitAware NodeVolumeLimits "
            "VolumeBinding VolumeRestrictions Reservation Coscheduling NodeAffinity TaintToleration "
            "NodeUnschedulable InterPodAffinity PodTopologySpread".split()
        )
        self.audit = Audit(
            lambda scheduler: every,
            _always,
            _always,
            lambda scheduler: every,
            lambda scheduler: bounds_limits,
        )
        self.objects: dict[tuple[str, str], Raw] = {}

    def put(self, raw: Raw) -> None:
        key = (raw["kind"], raw["metadata"]["name"])
        before = self.objects.get(key)
        self.objects[key] = raw = copy.deepcopy(raw)
        namespace = raw["metadata"].get("namespace", "")
        self.audit.changed(raw["kind"], namespace, raw["metadata"]["name"], before, raw)

    def write(self, *objects: Raw) -> list[str]:
        """As the scheduler."""
        self.audit.begin()
        for each in objects:
            self.put(each)
        return self.audit.end()


def played(state: list[Raw], write: list[Raw], now: float = START) -> list[str]:
    cluster = Cluster()
    for each in state:
        cluster.put(each)
    settled = cluster.audit.at_rest(START)
    assert settled == []
    return cluster.write(*write) + cluster.audit.at_rest(now)


HOST_TAINT = {"key": "kept", "value": "yes", "effect": "NoSchedule"}
WEB = {"matchLabels": {"app": "web"}}
NO_OTHER_WEB = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "host", "labelSelector": WEB}
        ]
    }
}
EVEN: Raw = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "host",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": WEB,
        }
    ]
}
ON_DISK = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    }
}

RULES = {
    "node selector": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", nodeSelector={"host": "n2"})],
        "node selector does not match: Pod/default/a on Node/n1",
    ),
    "node affinity": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", affinity=ON_DISK)],
        "node selector does not match: Pod/default/a on Node/n1",
    ),
    "taints": (
        [node() | {"spec": {"taints": [HOST_TAINT]}}, stored_pod("a")],
        [stored_pod("a", "n1", tolerations=[{"key": "kept", "value": "no"}])],
        "taint is not tolerated: Pod/default/a on Node/n1: kept",
    ),
    "cordoned": (
        [node() | {"spec": {"unschedulable": True}}, stored_pod("a")],
        [stored_pod("a", "n1")],
        "node is cordoned: Pod/default/a on Node/n1",
    ),
    "anti-affinity": (
        [node(), stored_pod("b", "n1"), stored_pod("a")],
        [stored_pod("a", "n1", affinity=NO_OTHER_WEB)],
        "anti-affinity does not allow two pods: Pod/default/a on Node/n1: Pod/default/b",
    ),
    "anti-affinity of a pod that is there": (
        [node(), stored_pod("b", "n1", affinity=NO_OTHER_WEB), stored_pod("a")],
        [stored_pod("a", "n1")],
        "anti-affinity does not allow two pods: Pod/default/a on Node/n1: Pod/default/b",
    ),
    "spread": (
        [node(), node("n2"), stored_pod("b", "n1"), stored_pod("a")],
        [stored_pod("a", "n1", **EVEN)],
        "spread constraint is not met: Pod/default/a on Node/n1: host has a skew of 2",
    ),
    "requests": (
        [node(), stored_pod("a", "n1", "3"), stored_pod("b", cpu="2")],
        [stored_pod("b", "n1", "2")],
        "pod requests exceed allocatable: Node/n1: cpu: pods 5000, reservations 0, waiting ones 0, "
        "allocatable 4000 (by Pod/default/b)",
    ),
    "init containers": (
        [node(), stored_pod("a", cpu="1")],
        [
            stored_pod(
                "a", "n1", initContainers=[{"name": "i", "resources": {"requests": {"cpu": "5"}}}]
            )
        ],
        "pod requests exceed",
    ),
    "sidecars": (
        [node(), stored_pod("a", cpu="3")],
        [
            stored_pod(
                "a",
                "n1",
                "3",
                initContainers=[
                    {
                        "name": "i",
                        "restartPolicy": "Always",
                        "resources": {"requests": {"cpu": "2"}},
                    }
                ],
            )
        ],
        "pods 5000",
    ),
    "overhead": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", "4", overhead={"cpu": "1m"})],
        "pods 4001",
    ),
    "pod-level requests": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", resources={"requests": {"cpu": "6"}})],
        "pods 6000",
    ),
    "limits in place of requests": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", container={"resources": {"limits": {"cpu": "4100m"}}})],
        "pods 4100",
    ),
    "a resource the node does not have": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", container={"resources": {"requests": {"example.com/x": "1"}}})],
        "example.com/x: pods 1",
    ),
    "a stranger takes what is reserved": (
        [node(), reservation("r", "Available"), stored_pod("a", cpu="3")],
        [stored_pod("a", "n1", "3")],
        "pods and reservations exceed allocatable: Node/n1: cpu: pods 3000, reservations 2000",
    ),
    "a reservation takes what is in use": (
        [node(), stored_pod("a", "n1", "3"), reservation("r")],
        [reservation("r", "Available")],
        "pods and reservations exceed allocatable: Node/n1: cpu: pods 3000, reservations 2000, "
        "waiting ones 0, allocatable 4000 (by Reservation/r)",
    ),
    "a reservation grows beyond the node": (
        [node(), stored_pod("a", "n1", "2"), reservation("r", "Available")],
        [reservation("r", "Available", "3")],
        "pods and reservations exceed",
    ),
    "what a Waiting reservation is owed": (
        [node(), stored_pod("b", "n1", "1"), reservation("r", "Waiting", "3"), stored_pod("a")],
        [stored_pod("a", "n1")],
        "a pod takes capacity owed to a Waiting reservation",
    ),
    "pods": (
        [node(cpu="4", pods="1"), stored_pod("a", "n1"), stored_pod("b")],
        [stored_pod("b", "n1")],
        "pods: 2, allocatable 1",
    ),
    "slot of a reservation": (
        [node(cpu="4", pods="1"), reservation("r", "Available"), stored_pod("b")],
        [stored_pod("b", "n1")],
        "pods: 2, allocatable 1",
    ),
    "host ports": (
        [node(), stored_pod("a", "n1", container=port(80)), stored_pod("b")],
        [stored_pod("b", "n1", container=port(80, "10.0.0.1"))],
        "a host port is in use twice",
    ),
    "reserved host ports": (
        [node(), reservation("r", "Available", container=port(80)), stored_pod("b")],
        [stored_pod("b", "n1", container=port(80))],
        "a reserved host port is not its owner's",
    ),
    "a reservation Available while its port is in use": (
        [node(), stored_pod("b", "n1", container=port(80)), reservation("r", container=port(80))],
        [reservation("r", "Available", container=port(80))],
        "a reserved host port is not its owner's",
    ),
    "devices": (
        [node(), devices(True), stored_pod("a", "n1", annotations=gpu(0, 60)), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpu(0, 50))],
        "a device is allocated beyond its capacity: Node/n1: gpu 0 koordinator.sh/gpu-core: pods 110",
    ),
    "reserved devices": (
        [node(), devices(True), reservation("r", "Available", annotations=gpu(0)), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpu(0, 50))],
        "a reserved device is not its owner's",
    ),
    "unhealthy devices": (
        [node(), devices(True, False), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpu(1))],
        "unhealthy device allocated",
    ),
    "GPUs that are no partition": (
        [node(), partitioned(), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpus(1, 2))],
        "allocated GPUs that are not a partition: Pod/default/b on Node/n1: 1, 2",
    ),
    "GPUs that are no partition for a pod that wants one": (
        [node(), partitioned("Prefer"), stored_pod("b")],
        [stored_pod("b", "n1", annotations={**gpus(1, 2), KOORD + "gpu-partition-spec": "{}"})],
        "allocated GPUs that are not a partition: Pod/default/b on Node/n1: 1, 2",
    ),
    "virtual functions": (
        [
            node(),
            devices(True, True),
            stored_pod("a", "n1", annotations=gpu(0, 10, 3)),
            stored_pod("b"),
        ],
        [stored_pod("b", "n1", annotations=gpu(0, 10, 3))],
        "a virtual function is allocated twice",
    ),
    "exclusive CPUs": (
        [node(), topology(), stored_pod("a", "n1", annotations=cpus("0-1")), stored_pod("b")],
        [stored_pod("b", "n1", annotations=cpus("1"))],
        "an exclusive CPU is allocated twice: Node/n1: cpu 1",
    ),
    "reserved CPUs": (
        [node(), topology(), reservation("r", "Available", annotations=cpus("0-1")), stored_pod("b")],
        [stored_pod("b", "n1", annotations=cpus("1"))],
        "a reserved CPU is not its owner's: Node/n1: cpu 1",
    ),
    "CPUs reserved twice": (
        [
            node(),
            topology(),
            reservation("r", "Available", "1", annotations=cpus("0")),
            reservation("s"),
        ],
        [reservation("s", "Available", "1", annotations=cpus("0"))],
        "a reserved CPU is not its owner's: Node/n1: cpu 0",
    ),
    "CPUs the node does not have": (
        [node(), topology(), stored_pod("b")],
        [stored_pod("b", "n1", annotations=cpus("9"))],
        "a CPU that the node does not have is allocated",
    ),
    "NUMA nodes": (
        [node(), topology(), stored_pod("a", "n1", annotations=cpus("", n0=2)), stored_pod("b")],
        [stored_pod("b", "n1", annotations=cpus("", n0=1))],
        "a NUMA node is allocated beyond its capacity",
    ),
    "limits": (
        [node(annotations=LIMITED), stored_pod("a")],
        [
            stored_pod(
                "a", "n1", container={"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "5"}}}
            )
        ],
        "limits exceed the node's ratio",
    ),
    "limits of a resized reservation": (
        [node(annotations=LIMITED), reservation("r", "Available")],
        [reservation("r", "Available", cpu="5")],
        "limits exceed the node's ratio: Node/n1: cpu: limits 5000, at most 4000",
    ),
    "volume limits": (
        [
            node(),
            csi_node(1),
            volume("v"),
            volume("w"),
            claim("c", "v"),
            claim("d", "w"),
            stored_pod("a"),
        ],
        [stored_pod("a", "n1", volumes=using("c", "d"))],
        "more volumes than the node's driver allows",
    ),
    "volume limits with a reservation": (
        [
            node(),
            csi_node(1),
            volume("v"),
            volume("w"),
            claim("c", "v"),
            claim("d", "w"),
            reservation("r", "Available", pod={"volumes": using("c")}),
            stored_pod("a"),
        ],
        [stored_pod("a", "n1", volumes=using("d"))],
        "volumes of pods and reservations exceed what the node's driver allows",
    ),
    "a reserved claim for one pod": (
        [
            node(),
            claim("c", mode="ReadWriteOncePod"),
            reservation("r", "Available", pod={"volumes": using("c")}),
            stored_pod("a"),
        ],
        [stored_pod("a", "n1", volumes=using("c"))],
        "claim for one pod is reserved: PersistentVolumeClaim/default/c: Pod/default/a is not an owner",
    ),
    "volume out of reach": (
        [node(), volume("v", "n2"), claim("c", "v"), stored_pod("a")],
        [stored_pod("a", "n1", volumes=using("c"))],
        "volume out of reach: Pod/default/a on Node/n1: PersistentVolume/v",
    ),
    "claims for one pod": (
        [
            node(),
            claim("c", mode="ReadWriteOncePod"),
            stored_pod("a", "n1", volumes=using("c")),
            stored_pod("b"),
        ],
        [stored_pod("b", "n1", volumes=using("c"))],
        "claim for one pod used twice",
    ),
    "one volume, two claims": (
        [node(), volume("v"), claim("c", "v"), claim("d")],
        [claim("d", "v")],
        "a volume has two claims",
    ),
    "owners beyond a Restricted reservation": (
        [
            node(),
            reservation("r", "Available", allocatePolicy="Restricted"),
            stored_pod("a", labels=OWNER),
        ],
        [stored_pod("a", "n1", "3", labels=OWNER, through="r")],
        "owners of a Restricted reservation exceed it",
    ),
    "through a reservation of others": (
        [node(), reservation("r", "Available"), stored_pod("a")],
        [stored_pod("a", "n1", through="r")],
        "bound through a reservation it does not own",
    ),
    "through a Waiting reservation": (
        [node(), reservation("r", "Waiting"), stored_pod("a", labels=OWNER)],
        [stored_pod("a", "n1", labels=OWNER, through="r")],
        "bound through a reservation that is not Available: Pod/default/a: Reservation/r is Waiting",
    ),
    "through no reservation": (
        [node(), stored_pod("a", labels=OWNER)],
        [stored_pod("a", "n1", labels=OWNER, through="r")],
        "bound through a reservation that does not exist",
    ),
    "without the reservation it must use": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", annotations={KOORD + "reservation-affinity": "{}"})],
        "bound without the reservation it must use",
    ),
    "allocateOnce": (
        [
            node(),
            reservation(
                "r", "Available", allocateOnce=True, status={"phase": "Pending", "nodeName": ""}
            ),
            stored_pod("a", "n1", labels=OWNER, through="r"),
            stored_pod("b", labels=OWNER),
        ],
        [
            reservation("r", "Available", allocateOnce=True),
            stored_pod("b", "n1", labels=OWNER, through="r"),
        ],
        "allocateOnce used twice: Reservation/r: Pod/default/a and Pod/default/b",
    ),
    "a node that does not exist": (
        [stored_pod("a")],
        [stored_pod("a", "n9")],
        "bound to a node that does not exist",
    ),
    "a pod being deleted": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
        "bound while being deleted",
    ),
    "another node": (
        [node(), node("n2"), stored_pod("a", "n1")],
        [stored_pod("a", "n2")],
        "pod moved: Pod/default/a: from Node/n1 to n2",
    ),
    "Waiting to Succeeded": (
        [node(), reservation("r", "Waiting")],
        [reservation("r", "Succeeded", status={"conditions": []})],
        "phase transition: Reservation/r: from Waiting to Succeeded",
    ),
    "out of Failed": (
        [
            node(),
            reservation(
                "r",
                "Failed",
                status={"conditions": [{"type": "Ready", "status": "False", "reason": "Expired"}]},
            ),
        ],
        [reservation("r", "Available")],
        "phase transition: Reservation/r: from Failed to Available",
    ),
    "a reservation moves": (
        [node(), node("n2"), reservation("r", "Available")],
        [reservation("r", "Available", status={"nodeName": "n2"})],
        "reservation moved",
    ),
    "owners that are not listed": (
        [node(), reservation("r", "Available"), stored_pod("a", labels=OWNER)],
        [stored_pod("a", "n1", labels=OWNER, through="r")],
        "reservation status: Reservation/r: currentOwners [], bound through it are [Pod/default/a]",
    ),
    "owners that are gone": (
        [node(), reservation("r")],
        [reservation("r", "Available", status={"currentOwners": [{"uid": "x-uid", "name": "x"}]})],
        "currentOwners [x], bound through it are []",
    ),
    "allocated": (
        [node(), reservation("r", "Available"), stored_pod("a", labels=OWNER)],
        [
            stored_pod("a", "n1", labels=OWNER, through="r"),
            reservation(
                "r",
                "Available",
                status={"currentOwners": [{"uid": "a-uid", "name": "a"}], "allocated": {"cpu": "2"}},
            ),
        ],
        "allocated cpu 2000, its owners request 1000",
    ),
    "Available without a node": (
        [node(), reservation("r")],
        [reservation("r", "Available", status={"nodeName": ""})],
        "reservation status: Reservation/r: Available with nodeName ''",
    ),
    "a condition that contradicts it": (
        [node(), reservation("r")],
        [reservation("r", "Available", status={"conditions": []})],
        "reservation status: Reservation/r: Available, but Ready is missing",
    ),
    "on a node that is gone": (
        [reservation("r")],
        [reservation("r", "Available")],
        "reservation on a node that does not exist",
    ),
    "a gang in part": (
        [
            node(),
            group(2),
            stored_pod("a", annotations=IN_GROUP),
            stored_pod("b", annotations=IN_GROUP),
        ],
        [stored_pod("a", "n1", annotations=IN_GROUP)],
        "gang placed in part: PodGroup/default/g: 1 placed, 2 needed",
    ),
    "the capability of a queue": (
        [node(), queue(cpu="2"), *(stored_pod(name, annotations=IN_QUEUE) for name in "abc")],
        [stored_pod(name, "n1", annotations=IN_QUEUE) for name in "abc"],
        "queue has more than its capability: Queue/q: cpu: 3000 of 2000 (by Pod/default/a)",
    ),
    "the capability of a queue's ancestor": (
        [node(), queue("top", cpu="1500m"), queue(parent="top"), stored_pod("a", annotations=IN_QUEUE)],
        [stored_pod("a", "n1", "2", annotations=IN_QUEUE)],
        "queue has more than its capability: Queue/top: cpu: 2000 of 1500",
    ),
    "the capability of a gang's queue": (
        [node(), queue(cpu="1"), {**group(1), "spec": {"minMember": 1, "queue": "q"}}],
        [stored_pod("a", "n1", "2", annotations=IN_GROUP)],
        "queue has more than its capability: Queue/q: cpu: 2000 of 1000",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_write_is_noticed(rule: str) -> None:
    state, write, message = RULES[rule]
    assert any(message in each for each in played(state, write)), played(state, write)


def test_an_expired_reservation_is_noticed() -> None:
    held = reservation("r", "Available", ttl="1m")
    found = played([node(), reservation("r", ttl="1m")], [held], START + 120)
    assert found == ["reservation is past its expiry: Reservation/r: Available"]


def test_writes_without_end_are_noticed() -> None:
    cluster = Cluster()
    for _ in range(1000):
        if found := cluster.write(node()):
            assert "no progress" in found[0]
            return
    raise AssertionError("a thousand writes at one moment went unnoticed")


ASKING = {KOORD + "new-reservation-requirement": '{"labels": {}, "resources": {"cpu": "1"}}'}


def _limited(cpu: str) -> Raw:
    return {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": cpu}}}


def _daemon(limit: str) -> Raw:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    return {"metadata": {"ownerReferences": [owner]}, "container": _limited(limit)}


RUN_ESTIMATE = {"holdfast.io/run-estimate": "60s"}
IGNORES = {KOORD + "reservation-ignored": "true"}
RIGHT = {
    "a selector that matches": (
        [node(), stored_pod("a")],
        [stored_pod("a", "n1", nodeSelector={"host": "n1"})],
    ),
    "tolerated taints": (
        [node() | {"spec": {"taints": [HOST_TAINT], "unschedulable": True}}, stored_pod("a")],
        [stored_pod("a", "n1", tolerations=[{"operator": "Exists"}])],
    ),
    "anti-affinity to pods elsewhere and to other pods": (
        [
            node(),
            node("n2"),
            stored_pod("b", "n2"),
            stored_pod("c", "n1", labels={"app": "c"}),
            stored_pod("a"),
        ],
        [stored_pod("a", "n1", affinity=NO_OTHER_WEB)],
    ),
    "even": (
        [node(), node("n2"), stored_pod("b", "n2"), stored_pod("a")],
        [stored_pod("a", "n1", **EVEN)],
    ),
    "GPUs that are a partition": (
        [node(), partitioned(), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpus(2, 3))],
    ),
    "GPUs of a node that does not keep to its partitions": (
        [node(), partitioned("Prefer"), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpus(1, 2))],
    ),
    "a share of a GPU": (
        [node(), partitioned(), stored_pod("b")],
        [stored_pod("b", "n1", annotations=gpus(1, share=50))],
    ),
    "the owner of a reserved claim": (
        [
            node(),
            csi_node(1),
            volume("v"),
            claim("c", "v", mode="ReadWriteOncePod"),
            reservation("r", "Available", pod={"volumes": using("c")}),
            stored_pod("a", labels=OWNER),
        ],
        [stored_pod("a", "n1", labels=OWNER, volumes=using("c"))],
    ),
    "as much as there is": (
        [node(), stored_pod("a", "n1", "3"), stored_pod("b")],
        [stored_pod("b", "n1")],
    ),
    "an owner takes what is reserved for it": (
        [
            node(),
            stored_pod("x", "n1", "2"),
            reservation("r", "Available"),
            stored_pod("a", labels=OWNER),
        ],
        [
            stored_pod("a", "n1", labels=OWNER, through="r"),
            reservation(
                "r",
                "Available",
                status={"currentOwners": [{"uid": "a-uid", "name": "a"}], "allocated": {"cpu": "1"}},
            ),
        ],
    ),
    "one waits for what is in use": (
        [node(), stored_pod("a", "n1", "4"), reservation("r")],
        [reservation("r", "Waiting")],
    ),
    "ports on different addresses": (
        [node(), stored_pod("a", "n1", container=port(80, "10.0.0.1")), stored_pod("b")],
        [stored_pod("b", "n1", container=port(80, "10.0.0.2"))],
    ),
    "ports of different protocols": (
        [node(), stored_pod("a", "n1", container=port(80)), stored_pod("b")],
        [stored_pod("b", "n1", container=port(80, protocol="UDP"))],
    ),
    "init containers run one after another": (
        [node(), stored_pod("a")],
        [
            stored_pod(
                "a",
                "n1",
                initContainers=[
                    {"name": f"i{i}", "resources": {"requests": {"cpu": "4"}}} for i in (1, 2)
                ],
            )
        ],
    ),
    "a whole gang": (
        [
            node(),
            group(2),
            stored_pod("a", annotations=IN_GROUP),
            stored_pod("b", annotations=IN_GROUP),
        ],
        [stored_pod("a", "n1", annotations=IN_GROUP), stored_pod("b", "n1", annotations=IN_GROUP)],
    ),
    "a pod that ends in time is lent the place of a starvation hold": (
        [
            node(cpu="4", pods="1"),
            reservation("r", "Available", labels={"holdfast.io/hold": "amount"}),
            stored_pod("a", annotations=RUN_ESTIMATE),
        ],
        [stored_pod("a", "n1", annotations=RUN_ESTIMATE)],
    ),
    "a pod that ignores reservations uses what was made for its preemption": (
        [
            node(),
            reservation("r", "Available", labels={"holdfast.io/preemptor-uid": "a-uid"}),
            stored_pod("a", labels=OWNER | IGNORES),
        ],
        [
            stored_pod("a", "n1", labels=OWNER | IGNORES, through="r"),
            reservation(
                "r",
                "Available",
                labels={"holdfast.io/preemptor-uid": "a-uid"},
                status={"currentOwners": [{"uid": "a-uid", "name": "a"}], "allocated": {"cpu": "1"}},
            ),
        ],
    ),
    "limits of a pod that waited for its reservation while a daemon pod came": (
        [
            node(annotations=LIMITED),
            stored_pod("daemon", **_daemon("3")),
            stored_pod("a", annotations=ASKING, container=_limited("3")),
        ],
        [
            stored_pod("daemon", "n1", **_daemon("3")),
            stored_pod("a", "n1", annotations=ASKING, container=_limited("3")),
        ],
    ),
    "a queue that others made smaller after a pod was admitted": (
        [node(), queue(cpu="2"), queue(cpu="500m"), stored_pod("a", annotations=IN_QUEUE)],
        [stored_pod("a", "n1", annotations=IN_QUEUE)],
    ),
    "pods of other queues": (
        [node(), queue(cpu="1"), *(stored_pod(name) for name in "ab")],
        [stored_pod("a", "n1"), stored_pod("b", "n1", annotations=IN_QUEUE)],
    ),
    "nothing worse on a node that others oversold": (
        [node(), stored_pod("a", "n1", "6"), stored_pod("b", cpu="0")],
        [stored_pod("b", "n1", "0")],
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_correct_write_is_not_reported(what: str) -> None:
    state, write = RIGHT[what]
    assert played(state, write) == []


@pytest.mark.parametrize("rule", ["requests", "host ports", "devices", "exclusive CPUs", "limits"])
def test_what_others_do_is_nobodys_fault(rule: str) -> None:
    state, write, _ = RULES[rule]
    assert played([*state, *write], []) == []
    assert played([*state, *write, stored_pod("late", cpu="0")], [stored_pod("late", "n1", "0")]) == []


ROOMY = node(cpu="4", pods="10")
TAINT = {"key": "a", "effect": "NoSchedule"}
AWAY = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}
}


WITH_DISK = {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "disk"}}]}
WITH_SCRATCH = {"volumes": [{"name": "v", "emptyDir": {}}]}


def rested(*state: Raw, quiet: float = 60.0, bounds_limits: bool = False) -> list[str]:
    """Problems of a state after so many seconds in which nothing changed."""
    cluster = Cluster(bounds_limits)
    for each in state:
        cluster.put(each)
    assert cluster.audit.at_rest(START) == []
    return cluster.audit.at_rest(START + quiet)


@pytest.mark.parametrize(
    ("what", "state"),
    [
        ("Pod/default/a", [ROOMY, stored_pod("a")]),
        ("Pod/default/a", [ROOMY, stored_pod("b", "n1", cpu="3"), stored_pod("a")]),
        ("Pod/default/a", [ROOMY, reservation("r", "Available"), stored_pod("a", cpu="2")]),
        ("Reservation/r", [ROOMY, reservation("r", "Waiting"), stored_pod("b", "n1", cpu="2")]),
        ("Reservation/r", [ROOMY, reservation("r", "Waiting", pod=WITH_SCRATCH)]),
    ],
)
def test_what_waits_though_it_fits_is_noticed(what: str, state: list[Raw]) -> None:
    [problem] = rested(*state)
    assert problem.startswith(f"pending though it fits: {what}: Node/n1 has")
    assert rested(*state, quiet=10.0) == []


def _cordoned() -> Raw:
    return ROOMY | {"spec": {"unschedulable": True}}


def _nominated() -> Raw:
    return stored_pod("b", cpu="3") | {"status": {"nominatedNodeName": "n1"}}


@pytest.mark.parametrize(
    "state",
    [
        [ROOMY, stored_pod("a", cpu="5")],
        [ROOMY, stored_pod("b", "n1", cpu="3500m"), stored_pod("a")],
        [ROOMY, reservation("r", "Waiting", cpu="4"), stored_pod("b", "n1"), stored_pod("a")],
        [ROOMY, reservation("r", "Waiting"), stored_pod("b", "n1", cpu="3")],
        [node(cpu="4", pods="1"), stored_pod("b", "n1"), stored_pod("a")],
        [_cordoned(), stored_pod("a")],
        [ROOMY, reservation("r", "Available", allocatePolicy="Restricted"), stored_pod("a")],
        [ROOMY | {"spec": {"taints": [TAINT]}}, stored_pod("a")],
        [ROOMY, _nominated() | {"spec": stored_pod("b", cpu="5")["spec"]}, stored_pod("a")],
        [ROOMY, stored_pod("a", nodeSelector={"disk": "ssd"})],
        [ROOMY, stored_pod("a", schedulingGates=[{"name": "x"}])],
        [ROOMY, stored_pod("b", "n1", affinity=AWAY), stored_pod("a")],
        [ROOMY, reservation("r", "Available", pod={"affinity": AWAY}), stored_pod("a")],
        [ROOMY, reservation("r", "Waiting", pod=WITH_DISK), stored_pod("b", "n1", cpu="1")],
        [ROOMY, stored_pod("a", annotations=IN_GROUP)],
        [ROOMY, stored_pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
        [ROOMY, stored_pod("a", container={"ports": [port(80)]})],
        [ROOMY, {"kind": "Queue", "metadata": {"name": "q"}}, stored_pod("a")],
    ],
)
def test_a_pod_that_may_have_to_wait_is_not_reported(state: list[Raw]) -> None:
    assert rested(*state) == []


def test_a_pod_whose_limits_the_configuration_bounds_may_have_to_wait() -> None:
    assert rested(ROOMY, stored_pod("a"), bounds_limits=True) == []
