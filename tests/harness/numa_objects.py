"""Nodes whose CPUs are known, and pods that want some of their own."""

from typing import Any

import msgspec

from harness.objects import Raw, node, pod, reservation
from harness.world import World

STATUS = "scheduling.koordinator.sh/resource-status"
SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
QOS = "koordinator.sh/qosClass"


def topology(
    name: str = "n1", cpus: int = 16, numa: int = 2, threads: int = 2, memory: int = 16, **more: Any
) -> Raw:
    """CPUs are numbered core by core, cores NUMA node by NUMA node; each has its socket."""
    each = cpus // numa
    detail = [
        {"id": i, "core": i // threads, "socket": i // each, "node": i // each} for i in range(cpus)
    ]
    annotations = {"node.koordinator.sh/cpu-topology": msgspec.json.encode({"detail": detail}).decode()}
    zones = [
        {
            "name": f"node-{i}",
            "type": "Node",
            "resources": [
                {
                    "name": "cpu",
                    "capacity": str(each),
                    "allocatable": str(each),
                    "available": str(each),
                },
                {
                    "name": "memory",
                    "capacity": f"{memory}Gi",
                    "allocatable": f"{memory}Gi",
                    "available": f"{memory}Gi",
                },
            ],
        }
        for i in range(numa)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "uid": f"nrt-{name}",
            "annotations": {**annotations, **more.pop("annotations", {})},
        },
        "topologyPolicies": more.pop("policies", ["None"]),
        "zones": zones if more.pop("zones", True) else [],
    }


def world(labels: dict[str, str] | None = None, **more: Any) -> World:
    it = node("n1", cpu=str(more.get("cpus", 16)), memory="64Gi", labels=labels or {})
    it["metadata"]["annotations"] = more.pop("node_annotations", {})
    return World(it, topology(**more))


def lsr(name: str, cpus: str, app: str = "", spec: str = "", numa: str = "", **more: Any) -> Raw:
    labels = {QOS: more.pop("qos", "LSR"), **({"app": app} if app else {})}
    annotations = {}
    if spec:
        annotations[SPEC] = spec
    if numa:
        annotations[NUMA_SPEC] = numa
    memory = more.pop("memory", "1Gi")
    return pod(
        name,
        metadata={"labels": labels, "annotations": annotations},
        requests={"cpu": cpus, "memory": memory},
        **more,
    )


def plain(name: str, cpu: str, memory: str = "1Gi", numa: str = "", **more: Any) -> Raw:
    annotations = {NUMA_SPEC: numa} if numa else {}
    return pod(
        name, metadata={"annotations": annotations}, requests={"cpu": cpu, "memory": memory}, **more
    )


def reserved(name: str, cpus: str, app: str = "own", **more: Any) -> Raw:
    template = {
        "metadata": {"labels": {QOS: "LSR"}, "annotations": more.pop("annotations", {})},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpus}}}]},
    }
    return reservation(name, app=app, template=template, **more)


def status(it: World, name: str, kind: str = "Pod") -> Raw:
    text = (it.objects[kind, name]["metadata"].get("annotations") or {}).get(STATUS)
    found: Raw = msgspec.json.decode(text) if text else {}
    return found


def cpus(it: World, name: str, kind: str = "Pod") -> set[int]:
    found: set[int] = set()
    for part in filter(None, str(status(it, name, kind).get("cpuset", "")).split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def zones(it: World, name: str, kind: str = "Pod") -> dict[int, dict[str, str]]:
    return {
        each["node"]: each["resources"] for each in status(it, name, kind).get("numaNodeResources", ())
    }
