"""What a theme needs to be there: nodes and what they have, volumes, queues, classes."""

import json
import zlib

from mixtures.making import KOORD, Making, Raw

TIGHT = ("4", "4", "8")
SIZES = ("4", "8", "8", "12", "16")


def node(making: Making, name: str) -> Raw:
    labels = {"kubernetes.io/hostname": name, "zone": making.pick(("za", "zb"))}
    sizes = TIGHT if making.tight else SIZES
    allocatable: Raw = {"cpu": making.pick(sizes), "memory": making.pick(("8Gi", "16Gi", "32Gi"))}
    if making.chance(0.15):
        allocatable["pods"] = str(making.some(2, 6))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": allocatable},
    }


def nodes(making: Making) -> None:
    for i in range(making.pick((1, 1, 2, 2) if making.tight else (1, 2, 2, 3, 3, 4))):
        made = node(making, f"n{i}")
        making.documents.append(made)
        making.nodes.append(made["metadata"]["name"])
    if making.chance(0.3):
        made = node(making, "late")
        made["metadata"]["annotations"] = {"sim.holdfast.io/at": f"{making.time()}s"}
        making.documents.append(made)
        making.nodes.append("late")


def priority_classes(making: Making) -> None:
    for name, value in (("low", 10), ("mid", 100), ("high", 1000)):
        making.add("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
    making.add("scheduling.k8s.io/v1", "PriorityClass", "meek", value=500, preemptionPolicy="Never")


def devices(making: Making) -> None:
    for name in making.nodes:
        if making.chance(0.85):
            made = device(making, name, making.some(1, 4))
            making.documents.append(made)


def _partitions(making: Making, name: str, count: int) -> Raw:
    """Of some nodes, the sets in which their GPUs are given. No choice is taken from the random numbers
    of a life for it, so that the rest of the life is the same."""
    chosen = zlib.crc32(f"{name} {count} {len(making.documents)}".encode()) % 4
    if count not in (2, 4) or chosen == 3:
        return {"name": name}
    sizes = [size for size in (1, 2, 4) if size <= count]
    table = {
        str(size): [
            {"minors": list(range(first, count, count // size)), "allocationScore": size}
            for first in range(count // size)
        ]
        for size in sizes
    }
    policy = {"node.koordinator.sh/gpu-partition-policy": "Honor" if chosen else "Prefer"}
    annotations = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)}
    return {"name": name, "labels": policy, "annotations": annotations}


def device(making: Making, name: str, count: int, unhealthy: int = -1) -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": _partitions(making, name, count),
        "spec": {
            "devices": [
                {
                    "type": "gpu",
                    "id": f"GPU-{i}",
                    "minor": i,
                    "health": i != unhealthy,
                    "resources": {
                        "koordinator.sh/gpu-core": "100",
                        "koordinator.sh/gpu-memory": "16Gi",
                        "koordinator.sh/gpu-memory-ratio": "100",
                    },
                    "topology": {
                        "socketID": 0,
                        "nodeID": i // 2,
                        "pcieID": str(i // 2),
                        "busID": f"0000:0{i}",
                    },
                }
                for i in range(count)
            ]
        },
    }


def topologies(making: Making) -> None:
    """Of each node as many CPUs as it has, on two NUMA nodes, two to a core."""
    for made in [each for each in making.documents if each["kind"] == "Node"]:
        cpus = int(made["status"]["allocatable"]["cpu"])
        per_numa = cpus // 2
        detail = [
            {"id": i, "core": i // 2, "socket": i // per_numa, "node": i // per_numa}
            for i in range(cpus)
        ]
        memory = {"name": "memory", "capacity": "4Gi", "allocatable": "4Gi", "available": "4Gi"}
        amount = str(per_numa)
        cpu = {"name": "cpu", "capacity": amount, "allocatable": amount, "available": amount}
        making.documents.append(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha1",
                "kind": "NodeResourceTopology",
                "metadata": {
                    "name": made["metadata"]["name"],
                    "annotations": {
                        "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
                        **_at(made),
                    },
                },
                "topologyPolicies": ["None"],
                "zones": [
                    {"name": f"node-{zone}", "type": "Node", "resources": [cpu, memory]}
                    for zone in (0, 1)
                ],
            }
        )
        if making.chance(0.15):
            made["metadata"]["labels"]["node.koordinator.sh/numa-topology-policy"] = making.pick(
                ("SingleNUMANode", "Restricted", "BestEffort")
            )
        if making.chance(0.1):
            made["metadata"]["labels"]["node.koordinator.sh/cpu-bind-policy"] = making.pick(
                ("FullPCPUsOnly", "SpreadByPCPUs")
            )


def _at(made: Raw) -> Raw:
    at = made["metadata"].get("annotations", {}).get("sim.holdfast.io/at")
    return {"sim.holdfast.io/at": at} if at else {}


def limit_ratios(making: Making) -> None:
    for made in [each for each in making.documents if each["kind"] == "Node"]:
        if making.chance(0.7):
            ratio = {"cpu": making.pick(("100%", "150%", "200%", 120))}
            if making.chance(0.4):
                ratio["memory"] = making.pick((100, "150%"))
            annotations = made["metadata"].setdefault("annotations", {})
            annotations["node.koordinator.sh/limit-to-allocatable"] = json.dumps(ratio)


def storage(making: Making) -> None:
    making.add(
        "storage.k8s.io/v1",
        "StorageClass",
        "local",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    making.add(
        "storage.k8s.io/v1",
        "StorageClass",
        "made",
        provisioner="csi.example.com",
        volumeBindingMode=making.pick(("WaitForFirstConsumer", "Immediate")),
    )
    for name in making.nodes:
        if making.chance(0.8):
            driver = {
                "name": "csi.example.com",
                "nodeID": name,
                "allocatable": {"count": making.some(1, 4)},
            }
            making.add("storage.k8s.io/v1", "CSINode", name, spec={"drivers": [driver]})
        for i in range(making.some(0, 2)):
            terms = [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
                    ]
                }
            ]
            making.add(
                "v1",
                "PersistentVolume",
                f"pv-{name}-{i}",
                spec={
                    "capacity": {"storage": making.pick(("1Gi", "2Gi"))},
                    "accessModes": ["ReadWriteOncePod" if i % 2 else "ReadWriteOnce"],
                    "storageClassName": "local",
                    "persistentVolumeReclaimPolicy": making.pick(("Retain", "Delete")),
                    "local": {"path": f"/disks/{i}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            )
    for i in range(making.some(2, 5)):
        name = f"claim-{i}"
        making.add(
            "v1",
            "PersistentVolumeClaim",
            name,
            metadata={"namespace": "default"},
            spec={
                "accessModes": [making.pick(("ReadWriteOnce", "ReadWriteOncePod"))],
                "storageClassName": making.pick(("local", "made")),
                "resources": {"requests": {"storage": "1Gi"}},
            },
        )
        making.claims.append(name)


def queues(making: Making) -> None:
    for i in range(making.some(2, 3)):
        name = f"q{i}"
        spec: Raw = {"weight": making.some(1, 3)}
        if making.chance(0.3):
            spec["capability"] = {"cpu": str(making.some(4, 16))}
        if making.chance(0.3):
            spec["guarantee"] = {"resource": {"cpu": str(making.some(2, 4))}}
        if making.chance(0.2):
            spec["deserved"] = {"cpu": "4"}
        if making.chance(0.2):
            spec["reclaimable"] = False
        making.add("scheduling.volcano.sh/v1beta1", "Queue", name, spec=spec)
        making.queues.append(name)


def budgets(making: Making) -> None:
    spec: Raw = {"selector": {"matchLabels": {"team": making.pick(("a", "b"))}}}
    spec[making.pick(("minAvailable", "maxUnavailable"))] = making.some(0, 2)
    making.add(
        "policy/v1",
        "PodDisruptionBudget",
        making.name("pdb"),
        metadata={"namespace": "default"},
        spec=spec,
    )


RESERVATION_API = KOORD.rstrip("/") + "/v1alpha1"
