"""Situations with holds and reservations of the pod itself, devices, NUMA nodes, and pods not tried."""

from __future__ import annotations

import json
from typing import Any

import pytest

from explanation.test_situations import (
    ESTIMATE,
    HELD,
    LIMIT,
    N1,
    Row,
    affinity_to,
    as_they_are,
    check,
    claim,
    explained,
    full,
    in_default,
    limited,
    on_n1,
    snapshot_of,
    using,
    volume,
    world_of,
)
from harness.claim_objects import device_class, resource_slice
from harness.device_objects import CORE, RATIO, card, device, gpu
from harness.numa_objects import lsr, plain, topology
from harness.objects import Raw, node, pod, pod_group, queue, requesting, required, reservation
from holdfast.explanation.explainer import explain

AMPLIFIED = "node.koordinator.sh/resource-amplification-ratio"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
PROVISION_ERROR = "scheduling.koordinator.sh/reservation-provision-error"
NUMA_LABEL = "node.koordinator.sh/numa-topology-policy"
SINGLE = {NUMA_LABEL: "SingleNUMANode"}
SINGLE_SPEC = '{"numaTopologyPolicy": "SingleNUMANode"}'
STOPS = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}


TEAM_A = {"key": "team", "value": "a", "effect": "NoSchedule"}


def hold(name: str, on: str, labels: Raw, owner: str = "p", cpu: str = "6") -> Raw:
    """A hold for one pod, as the scheduler makes it."""
    named = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": owner}
    return reservation(
        name,
        cpu,
        owners=[{"object": {**named, "uid": f"pod-{owner}"}}],
        ttl="0s",
        preAllocation=True,
        allocateOnce=True,
        pod={"nodeName": on},
        metadata={"labels": labels},
    )


def starvation_hold(name: str, on: str, owner: str = "p") -> Raw:
    return hold(name, on, {"holdfast.io/hold": "starvation", "holdfast.io/job": owner}, owner)


def with_metadata(raw: Raw, **metadata: object) -> Raw:
    raw["metadata"] |= metadata
    return raw


def with_annotation(raw: Raw, key: str, value: str) -> Raw:
    raw["metadata"].setdefault("annotations", {})[key] = value
    return raw


def stopping(name: str, cpu: str, on: str) -> Raw:
    return with_metadata(full(name, cpu, on), **STOPS)


def nominated(raw: Raw, on: str) -> Raw:
    return raw | {"status": {"phase": "Pending", "nominatedNodeName": on}}


def owned_by(raw: Raw, kind: str, name: str) -> Raw:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}
    return with_metadata(raw, ownerReferences=[owner])


def only_on(name: str) -> Raw:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def share(name: str, percent: int, **more: Any) -> Raw:
    return pod(name, requests={"cpu": "1", CORE: percent, RATIO: percent}, **more)


def csi_volume(name: str, of: str) -> Raw:
    raw = volume(name, of)
    raw["spec"]["csi"] = {"driver": "disk.example.com", "volumeHandle": name}
    return raw


def csi_node(name: str, limit: int) -> Raw:
    driver = {"name": "disk.example.com", "nodeID": name, "allocatable": {"count": limit}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "uid": f"csi-{name}"},
        "spec": {"drivers": [driver]},
    }


MINE = reservation("mine", "6", app="web", preAllocation=True)
NUMA_NODE = node("n1", cpu="16", memory="64Gi", labels=SINGLE)
BIG = node("n1", cpu="16", memory="64Gi")
NVIDIA = "nvidia.com/gpu"
A100 = json.dumps({"gpu": {"selector": {"matchLabels": {"model": "A100"}}}})
TWO_GPUS = device("n1", gpu(0), gpu(1))

SITUATIONS: dict[str, Row] = {
    "own reservation waits": Row(
        [N1, full("a", "6", "n1"), MINE, pod("p", "6", app="web")],
        ["It waits for its own reservation mine on n1, which is short of 4 cpu", "is unknown"],
        ["EndPods"],
    ),
    "own reservation waits, end is known": Row(
        [N1, full("a", "6", "n1", annotations={ESTIMATE: "10m"}), MINE, pod("p", "6", app="web")],
        ["its own reservation mine on n1, which is short of 4 cpu"],
        ["Wait"],
    ),
    "own preemption hold": Row(
        [
            N1,
            stopping("a", "6", "n1"),
            hold("h", "n1", {"holdfast.io/preemptor-uid": "pod-p"}),
            nominated(pod("p", "6", priority=100), "n1"),
        ],
        ["n1 is nominated for it", "terminating on n1: default/a, grace period ends in 30s"],
        ["Wait"],
    ),
    "nominated, victims are stopping": Row(
        [N1, stopping("a", "6", "n1"), nominated(pod("p", "6", priority=100), "n1")],
        ["n1 is nominated for it", "terminating on n1: default/a, grace period ends in 30s"],
        ["Wait"],
    ),
    "own starvation hold": Row(
        [N1, full("a", "7", "n1"), pod("p", "6"), starvation_hold("h", "n1")],
        ["It waits for its own starvation hold h on n1, which is short of 5 cpu"],
        ["EndPods"],
    ),
    "own starvation hold, and a smaller pod would fit": Row(
        [N1, full("a", "6", "n1"), pod("p", "6"), starvation_hold("h", "n1")],
        ["It waits for its own starvation hold h on n1, which is short of 4 cpu"],
        ["Resize"],
    ),
    "gang with holds, and smaller pods would fit": Row(
        [
            N1,
            node("n2", cpu="8"),
            full("a", "4", "n1"),
            full("b", "4", "n2"),
            in_default(pod_group("g", 2)),
            pod("p", "6", group="g"),
            pod("p2", "6", group="g"),
            starvation_hold("h1", "n1"),
            starvation_hold("h2", "n2", "p2"),
        ],
        ["of its job, p2's starvation hold h2 waits on n2, short of cpu"],
        ["Resize"],
    ),
    "gang with holds": Row(
        [
            N1,
            node("n2", cpu="8"),
            full("a", "7", "n1"),
            full("b", "7", "n2"),
            in_default(pod_group("g", 2)),
            pod("p", "6", group="g"),
            pod("p2", "6", group="g"),
            starvation_hold("h1", "n1"),
            starvation_hold("h2", "n2", "p2"),
        ],
        [
            "its own starvation hold h1 on n1, which is short of 5 cpu",
            "of its job, p2's starvation hold h2 waits on n2, short of cpu",
        ],
        ["EndPods"],
    ),
    "gang over the capability of its queue": Row(
        [
            N1,
            queue("q", capability={"cpu": "4"}),
            in_default(pod_group("g", 3, queue="q")),
            *(pod(name, "2", group="g") for name in ("p", "p2", "p3")),
        ],
        [
            "Its queue does not admit the whole of PodGroup default/g",
            "queue q uses 0 of the 4 cpu of its capability, and the request is 6 cpu",
        ],
        ["RaiseCapability", "Resize"],
    ),
    "pod of a DaemonSet": Row(
        [
            N1,
            node("n2"),
            full("a", "6", "n1"),
            owned_by(pod("p", "4", affinity=only_on("n1")), "DaemonSet", "agent"),
        ],
        ["It can only run on n1: too little cpu.", "closest: n1, short of 2 cpu"],
        ["Resize"],
    ),
    "pod of a DaemonSet, node is gone": Row(
        [node("n2"), owned_by(pod("p", "4", affinity=only_on("n1")), "DaemonSet", "agent")],
        ["It can only run on n1: that node does not exist."],
        [],
    ),
    "static pod": Row(
        [
            N1,
            owned_by(
                full("p", "1", "n1", annotations={"kubernetes.io/config.mirror": "x"}), "Node", "n1"
            ),
        ],
        ["It is on n1.", "static pod: the kubelet of n1 runs it"],
        [],
        node="n1",
    ),
    "reservation of others that waits": Row(
        [
            N1,
            full("a", "6", "n1"),
            reservation("peak", "8", app="web", ttl="1h", preAllocation=True),
            pod("p", "2"),
        ],
        [
            "closest: n1, short of 2 cpu",
            "reservation peak keeps 2 cpu idle on n1 for pods with app=web",
        ],
        ["Wait", "DeleteReservation"],
    ),
    "reservations that wait beside one that does not": Row(
        [
            N1,
            full("a", "4", "n1"),
            reservation("day", "1", app="api", allocateOnce=False),
            reservation("first", "5", app="web", preAllocation=True, allocateOnce=False),
            reservation("second", "6", app="job", preAllocation=True, allocateOnce=False),
            pod("p", "2"),
        ],
        [
            "reservation day keeps 1 cpu on n1 for pods with app=api",
            "reservation first keeps 3 cpu idle on n1 for pods with app=web",
        ],
        ["Wait"],
    ),
    "being deleted": Row([N1, with_metadata(pod("p", "20"), **STOPS)], ["It is being deleted"], []),
    "ended": Row(
        [N1, pod("p", nodeName="n1") | {"status": {"phase": "Succeeded"}}],
        ["It has ended (Succeeded), on n1."],
        [],
        node="n1",
    ),
    "waits for its provisioner": Row(
        [N1, requesting("p", "1", requirement=required("abc", cpu="2"))],
        ["It waits until its provisioner creates the reservation abc (cpu: 2)."],
        [],
        provisioner="external",
    ),
    "provisioner failed": Row(
        [
            N1,
            with_annotation(
                requesting("p", "1", requirement=required("abc", cpu="2")), PROVISION_ERROR, "no quota"
            ),
        ],
        ["The reservation requested for it, abc, was not created: no quota"],
        [],
        provisioner="external",
    ),
    "too many volumes attached": Row(
        [
            N1,
            csi_node("n1", 1),
            *(claim(name, volume=f"v-{name}") for name in ("c", "d")),
            *(csi_volume(f"v-{name}", name) for name in ("c", "d")),
            full("a", "1", "n1", volumes=using("c")),
            pod("p", volumes=using("d")),
        ],
        ["n1 can attach 1 volume of CSI driver disk.example.com, and it is in use"],
        ["EndPods"],
    ),
    "larger than a NUMA node": Row(
        [NUMA_NODE, topology(), plain("p", "10")],
        [
            "does not fit the NUMA nodes by their policy (1)",
            "NUMA policy SingleNUMANode; free by NUMA node: (0: 8 cpu, 16Gi memory), (1: 8 cpu",
        ],
        ["Resize"],
    ),
    "NUMA nodes are full": Row(
        [NUMA_NODE, topology(), plain("a", "6"), plain("b", "6"), plain("p", "4")],
        ["(0: 2 cpu, 15Gi memory), (1: 2 cpu, 15Gi memory)"],
        ["Resize"],
    ),
    "larger than any NUMA node, by its own policy": Row(
        [BIG, topology(), plain("p", "10", numa=SINGLE_SPEC)],
        [
            "no NUMA node is large enough: it requests 10 cpu of one NUMA node (SingleNUMANode), the "
            "most one has is 8"
        ],
        ["Annotate", "Resize"],
    ),
    "NUMA policy of the pod is misspelt": Row(
        [NUMA_NODE, topology(), plain("p", "10", numa='{"numaTopologyPolicy": "SingleNumaNode"}')],
        [
            "its numaTopologyPolicy SingleNumaNode (scheduling.koordinator.sh/numa-topology-spec) is "
            "ignored; did you mean SingleNUMANode?"
        ],
        ["Resize"],
    ),
    "field of the NUMA policy is misspelt": Row(
        [NUMA_NODE, topology(), plain("p", "10", numa='{"numaTopologyPolcy": "SingleNUMANode"}')],
        ["is ignored in part: numaTopologyPolcy: unknown field; did you mean numaTopologyPolicy?"],
        ["Resize"],
    ),
    "NUMA policy of the node is misspelt": Row(
        [
            node("n1", cpu="16", memory="64Gi", labels={NUMA_LABEL: "SingleNode"}),
            topology(),
            plain("p", "10", numa=SINGLE_SPEC),
        ],
        [f"n1: its label {NUMA_LABEL}=SingleNode is ignored; did you mean SingleNUMANode?"],
        ["Annotate", "Resize"],
    ),
    "NUMA policy of the node is another one": Row(
        [
            node("n1", cpu="16", memory="64Gi", labels={NUMA_LABEL: "Restricted"}),
            topology(),
            plain("p", "10", numa=SINGLE_SPEC),
        ],
        ["n1 has the NUMA policy Restricted, and the pod SingleNUMANode; they must be equal"],
        ["Annotate"],
    ),
    "NUMA policy is not JSON": Row(
        [NUMA_NODE, topology(), plain("p", "4", numa="SingleNUMANode")],
        ["not JSON"],
        ["RemoveAnnotation"],
    ),
    "policy of a pod that runs is misspelt": Row(
        [BIG, topology(), lsr("p", "4", spec='{"requiredCPUBindPolicy": "FullPCPU"}', nodeName="n1")],
        ["its requiredCPUBindPolicy FullPCPU", "is ignored; did you mean FullPCPUs?"],
        [],
        node="n1",
    ),
    "exclusive CPUs, one of them in part": Row(
        [BIG, topology(), lsr("p", "2500m")],
        ["for exclusive CPUs, which are whole ones, and it requests 2500m"],
        ["Resize", "Resize"],
    ),
    "too few exclusive CPUs": Row(
        [BIG, topology(cpus=8), lsr("a", "4"), lsr("p", "8")],
        ["too few CPUs for exclusive use", "4 CPUs are free for exclusive use, it requests 8"],
        ["Resize"],
    ),
    "exclusive CPUs that are no whole cores": Row(
        [BIG, topology(), lsr("p", "3", spec='{"requiredCPUBindPolicy": "FullPCPUs"}')],
        ["it requests 3 exclusive CPUs, and cores there have 2 CPUs"],
        ["Annotate", "Resize", "Resize"],
    ),
    "free CPUs on several cores": Row(
        [
            BIG,
            topology(cpus=4, numa=1),
            with_annotation(lsr("a", "2", nodeName="n1"), RESOURCE_STATUS, '{"cpuset": "0,2"}'),
            lsr("p", "2", spec='{"requiredCPUBindPolicy": "FullPCPUs"}'),
        ],
        ["its CPU bind policy is FullPCPUs, and none of these CPUs are on cores that are free"],
        ["Annotate"],
    ),
    "devices that are not close to one another": Row(
        [
            node("n1"),
            device("n1", gpu(0, pcie="a"), card("rdma", 0, pcie="b")),
            pod(
                "p",
                requests={"cpu": "1", CORE: 100, RATIO: 100, "koordinator.sh/rdma": 100},
                annotations={JOINT: '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}'},
            ),
        ],
        ["Device Joint-Allocate rules violation"],
        ["RemoveAnnotation"],
    ),
    "limits that no node allows": Row(
        [
            node("n1", cpu="8", annotations={LIMIT: '{"cpu": 100, "memory": "150%"}'}),
            limited("a", "1", "8"),
            limited("p", "1", "4"),
        ],
        ["limits add up to 8 of 8 cpu allowed (100% of allocatable), and its limit is 4"],
        ["RaiseLimitRatio"],
    ),
    "limits of a share that is no whole number of bytes": Row(
        [
            node("n1", memory="32Gi", annotations={LIMIT: '{"memory": "120%"}'}),
            limited("p", "1", "1", memory="50Gi"),
        ],
        ["of 39321Mi memory allowed (120% of allocatable), and its limit is 50Gi"],
        ["Resize"],
    ),
    "limits that a node allows to the pod before it": Row(
        [
            node("n1", cpu="8", annotations={LIMIT: '{"cpu": 188}'}),
            limited("a", "1", "15"),
            limited("e", "1", "1"),
            limited("p", "1", "1"),
        ],
        ["limits add up to 15 of 15040m cpu allowed (188% of allocatable), and its limit is 1"],
        ["RaiseLimitRatio"],
    ),
    "mistaken unit, and a taint": Row(
        [node("n1", cpu="8", taints=[TEAM_A]), pod("p", "2k")],
        ["taint team=a:NoSchedule is not tolerated"],
        ["Tolerate"],
    ),
    "gate of Kueue": Row(
        [N1, pod("p", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])],
        ["scheduling gates to remove: kueue.x-k8s.io/admission (removed by Kueue on admission)"],
        ["RemoveGates"],
    ),
    "required reservation on a cordoned node": Row(
        [
            node("n1", cpu="8", unschedulable=True),
            on_n1(HELD),
            pod("p", "4", app="web", annotations=affinity_to({"name": "peak"})),
        ],
        [
            "its reservation cannot be used, since the node is cordoned: n1",
            "reservation peak on n1 cannot be used: its node is cordoned",
        ],
        ["Uncordon"],
    ),
    "half a core": Row(
        [BIG, topology(), lsr("p", "1", spec='{"requiredCPUBindPolicy": "FullPCPUs"}')],
        ["it requests 1 exclusive CPU, and cores there have 2 CPUs"],
        ["Annotate", "Resize"],
    ),
    "share of a GPU, all are half used": Row(
        [node("n1"), TWO_GPUS, share("a", 60), share("b", 60), share("p", 50)],
        ["no GPU has enough left", "free on its gpu devices: 40, 40; it requests 50 on one"],
        ["Resize"],
    ),
    "whole GPU, all are half used": Row(
        [node("n1"), TWO_GPUS, share("a", 60), share("b", 60), share("p", 100)],
        ["free on its gpu devices: 40, 40; it requests 100 on one"],
        ["Resize"],
    ),
    "GPU of another type": Row(
        [
            node(
                "n1",
                labels={"nvidia.com/gpu.product": "T4"},
                allocatable={"nvidia.com/gpu": "4"},
            ),
            node("n2"),
            pod(
                "p",
                requests={"cpu": "1", "nvidia.com/gpu": "1"},
                nodeSelector={"nvidia.com/gpu.product": "A100"},
            ),
        ],
        ["nvidia.com/gpu.product=A100 is not met by any node", "T4 on 1"],
        ["AddNode"],
    ),
    "hint for another type of GPU": Row(
        [
            node("n1"),
            device("n1", gpu(0, labels={"model": "T4"})),
            share(
                "p",
                100,
                annotations={
                    HINT: json.dumps({"gpu": {"selector": {"matchLabels": {"model": "A100"}}}})
                },
            ),
        ],
        [
            "No suitable node among 1 node: no GPU matches its device-allocate-hint (1).",
            "device-allocate-hint restricts which devices it may use",
        ],
        ["RemoveAnnotation"],
    ),
    "the GPU that a hint selects is used, and another one is free": Row(
        [
            node("n1"),
            device("n1", gpu(0, labels={"model": "T4"}), gpu(1, labels={"model": "A100"})),
            with_annotation(share("a", 100), HINT, A100),
            with_annotation(share("p", 100), HINT, A100),
        ],
        ["among 1 node: no GPU that its device-allocate-hint selects has enough left (1)."],
        ["RemoveAnnotation"],
    ),
    "no GPU is healthy on one node, and all are used on another": Row(
        [
            node("n1", allocatable={NVIDIA: 2}),
            device("n1", gpu(0, health=False), gpu(1, health=False)),
            node("n2", allocatable={NVIDIA: 2}),
            device("n2", gpu(0)),
            pod("a", requests={NVIDIA: 1}),
            pod("p", requests={NVIDIA: 1}),
        ],
        [
            "among 2 nodes: no GPU is healthy (1), no GPU has enough left (1).",
            "n1: 2 of 2 gpu devices are not healthy",
        ],
        ["EndPods"],
    ),
    "two GPUs, of which one is left": Row(
        [
            node("n1", allocatable={NVIDIA: 4}),
            TWO_GPUS,
            pod("a", requests={NVIDIA: 1}),
            pod("p", requests={NVIDIA: 2}),
        ],
        ["among 1 node: too few GPUs have enough left (1)."],
        ["Resize"],
    ),
    "GPU is not healthy": Row(
        [node("n1"), device("n1", gpu(0, health=False)), share("p", 100)],
        ["n1: 1 of 1 gpu device is not healthy"],
        ["AddNode"],
    ),
    "over-committed node": Row(
        [node("n1", cpu="4"), full("a", "3", "n1"), full("b", "3", "n1"), pod("p", "1")],
        ["closest: n1, short of 3 cpu", "n1 is over-committed by 2 cpu"],
        ["EndPods"],
    ),
    "nodes without GPUs are not the closest": Row(
        [
            node("c1", cpu="7"),
            node("g1", cpu="8", allocatable={"nvidia.com/gpu": "4"}),
            full("a", "8", "g1"),
            pod("p", requests={"cpu": "8", "nvidia.com/gpu": "4"}),
        ],
        ["closest: g1, short of 8 cpu"],
        ["EndPods"],
    ),
    "many nodes without GPUs": Row(
        [
            *(node(f"c{i}", cpu="16") for i in range(6)),
            node("g1", cpu="8", allocatable={"nvidia.com/gpu": "4"}),
            full("a", "8", "g1"),
            pod("p", requests={"cpu": "8", "nvidia.com/gpu": "4"}),
        ],
        ["closest: g1, short of 8 cpu", "is unknown"],
        ["EndPods"],
    ),
    "GPU of a reservation by another name": Row(
        [
            node("n1"),
            device("n1", gpu(0)),
            reservation("gr", requests={"koordinator.sh/gpu": "100"}, app="web", ttl="0s"),
            pod("p", requests={"nvidia.com/gpu": "1"}),
        ],
        ["reservation gr keeps 100 koordinator.sh/gpu on n1 for pods with app=web"],
        ["DeleteReservation"],
    ),
    "too few devices for a resource that a class serves": Row(
        [
            node("n1"),
            resource_slice("n1", 3),
            device_class(extendedResourceName="example.com/gpu"),
            pod("p", requests={"cpu": "1", "example.com/gpu": "5"}),
        ],
        ["5 devices are requested, and 3 are published for it"],
        ["Resize"],
    ),
    "memory of a GPU is short": Row(
        [
            node("n1"),
            TWO_GPUS,
            pod("p", requests={CORE: "50", "koordinator.sh/gpu-memory": "24Gi"}),
        ],
        ["koordinator.sh/gpu-memory free on its gpu devices: 16Gi, 16Gi; it requests 24Gi on one"],
        ["Resize"],
    ),
    "NUMA node that a pod on several uses": Row(
        [
            node("n1", cpu="16", memory="64Gi"),
            topology(),
            lsr("a", "12"),
            plain("p", "4", numa=SINGLE_SPEC),
        ],
        ["singleNUMANodeExclusive, Required unless it is given, it shares no NUMA node"],
        ["Annotate"],
    ),
    "no node has both resources": Row(
        [
            node("n1", allocatable={"example.com/a": "1"}),
            node("n2", allocatable={"example.com/b": "1"}),
            pod("p", requests={"example.com/a": "1", "example.com/b": "1"}),
        ],
        ["none of these nodes has all the resources that it requests: example.com/a, example.com/b"],
        [],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def test_pods_of_a_daemon_set_are_grouped_by_what_their_nodes_lack() -> None:
    nodes = [node(f"n{i}", cpu="8") for i in (1, 2, 3)]
    running = [full(f"a{i}", "6", f"n{i}") for i in (1, 2)]
    pods = [
        owned_by(pod(f"agent-{i}", "4", affinity=only_on(f"n{i}")), "DaemonSet", "agent")
        for i in (1, 2, 3, 4)
    ]
    world = world_of([*nodes, *running, *pods])
    metadata = {"name": "agent", "namespace": "default", "uid": "agent"}
    daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    report = explain(snapshot_of(world), daemon_set)
    assert report.summary == (
        "1 of 4 pods have a node. 3 pending, for different reasons; 2 of them: Each can only run on "
        "its own node: too little cpu."
    )
    assert [(each.state, each.reason, each.pods) for each in report.pods] == [
        (
            "Pending",
            "Each can only run on its own node: too little cpu.",
            ["agent-1", "agent-2"],
        ),
        ("Pending", "It can only run on n4: that node does not exist.", ["agent-4"]),
        ("Placed", "", ["agent-3"]),
    ]
    assert report.details[:2] == ["what follows is about agent-1", "closest: n1, short of 2 cpu"]


def test_a_preemptor_whose_hold_has_its_capacity_fits() -> None:
    held = hold("h", "n1", {"holdfast.io/preemptor-uid": "pod-p"})
    held["status"] = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "6"}}
    waiting = nominated(pod("p", "6", priority=100), "n1")
    waiting["metadata"] |= {"namespace": "default", "uid": "pod-p"}
    world = world_of([N1])
    for raw in (held, waiting):
        raw["metadata"].setdefault("uid", "h")
        world.objects[raw["kind"], raw["metadata"]["name"]] = raw
    report = explained(world, Row([], [], []))
    assert report.summary.startswith("It fits now: n1.")
    assert report.nodes == []


@pytest.mark.parametrize(
    "name", [each for each in SITUATIONS if each.startswith(("own", "gang with", "nominated"))]
)
def test_what_is_kept_for_the_pod_is_not_held_against_it(name: str) -> None:
    row = SITUATIONS[name]
    report = explained(world_of(row.objects), row)
    assert report.holders == []
    assert not any("keeps" in each for each in report.details)


def test_no_node_lacks_a_resource_that_a_class_serves() -> None:
    served = device_class(extendedResourceName="example.com/gpu")
    wanted = pod("p", requests={"cpu": "99", "example.com/gpu": "1"})
    world = world_of([node("n1", cpu="8"), resource_slice("n1", 1), served, wanted])
    report = explain(snapshot_of(world), world.objects["Pod", "p"])
    assert not [each for each in report.details if "example.com/gpu" in each]
    assert any("99 cpu" in each for each in report.details)


def test_limits_are_requests_of_a_resource_that_a_class_serves() -> None:
    wanted = pod("p", requests={"cpu": "1"})
    wanted["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "2"}
    served = device_class(extendedResourceName="example.com/gpu")
    check(Row([node("n1"), resource_slice("n1", 1), served, wanted], ["2 devices"], ["Resize"]))


def test_a_node_with_partly_used_devices_is_closer_than_one_with_none() -> None:
    """n2 has enough in sum, but not on whole devices."""
    objects = [
        node("n1", cpu="8", allocatable={"nvidia.com/gpu": "2"}),
        device("n1", gpu(0), gpu(1)),
        node("n2", cpu="8", allocatable={"nvidia.com/gpu": "3"}),
        device("n2", gpu(0), gpu(1), gpu(2)),
        share("c", 50, nodeSelector={"kubernetes.io/hostname": "n2"}),
        pod("p", requests={"cpu": "1", "nvidia.com/gpu": "3"}),
    ]
    report = explained(world_of(objects), Row([], [], []))
    assert "closest: n2, short of 1 gpu device" in report.details, report.details


PERCENT = "koordinator.sh/gpu"


def gpus(name: str, *used: int) -> list[Raw]:
    """A node with GPUs, of each of which a pod uses so much."""
    sums = {CORE: 100 * len(used), RATIO: 100 * len(used), PERCENT: 100 * len(used)}
    allocatable = {key: str(value) for key, value in sums.items()}
    on: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": name}}
    return [
        node(name, cpu="16", allocatable={**allocatable, "koordinator.sh/gpu-memory": "256Gi"}),
        device(name, *(gpu(minor) for minor in range(len(used)))),
        *(pod(f"{name}-{at}", requests={PERCENT: str(each)}, **on) for at, each in enumerate(used)),
    ]


@pytest.mark.parametrize(
    ("objects", "asked", "short", "advised"),
    [
        (gpus("n1", 60, 60), "100", "n1, short of 60 koordinator.sh/gpu", "at most 40 "),
        (
            gpus("n1", 60, 60) + gpus("n2", 51),
            "100",
            "n2, short of 51 koordinator.sh/gpu",
            "at most 49 ",
        ),
        (gpus("n1", 60, 60, 60, 60), "200", "n1, short of 2 gpu devices", "end 2 pods"),
        (gpus("n1", 50) + gpus("n2", 30, 80), "200", "n1, short of 2 gpu devices", "at most 70 "),
    ],
    ids=["two shared ones", "the sum is no measure", "several whole ones", "one instead of two"],
)
def test_what_is_short_of_a_gpu_is_short_on_one_device(
    objects: list[Raw], asked: str, short: str, advised: str
) -> None:
    world = world_of([*objects, pod("p", requests={PERCENT: asked})])
    report = explained(world, Row([], [], []))
    assert f"closest: {short}" in report.details, report.details
    assert advised in report.advice[0].text, report.advice[0].text


def test_exclusive_cpus_on_an_amplified_node_count_for_more() -> None:
    amplified = node("n1", cpu="16", annotations={AMPLIFIED: '{"cpu": 2}'})
    world = world_of([amplified, topology("n1", cpus=8), lsr("own", "4"), plain("p", "9")])
    report = explained(world, Row([], [], []))
    assert report.details[0] == (
        "n1: cpu is amplified by 2, and exclusive CPUs there count 2 times, 4 cpu more than they are; "
        "it is short of 1 cpu"
    )
    assert any("request at most 8 cpu instead of 9" in each.text for each in report.advice)


def test_capacity_of_a_virtual_reservation_is_named_and_not_taken_for_free() -> None:
    """Which node has it is known to the scheduler alone."""
    first = requesting("first", "1", requirement=required("abc", cpu="8"))
    message = "0/1 nodes are available: 1 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    second = pod("second", "1") | {"status": {"conditions": [{**condition, "message": message}]}}
    n1 = node("n1", cpu="8")
    report = as_they_are("Pod", "second", n1, first, second)
    assert report.summary == (
        "It would fit now: n1, but default/first waits for a reservation that it requested."
    )
    said = "the scheduler holds cpu: 8 for pod default/first until its provisioner creates"
    assert [each[: len(said)] for each in report.details] == [said]
    assert [each[: len(said)] for each in as_they_are("Node", "n1", n1, first).details] == [said]
