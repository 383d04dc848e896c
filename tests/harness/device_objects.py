"""Nodes with devices, and pods with device allocations."""

from typing import Any

import msgspec

from harness.objects import Raw, node
from harness.world import World

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
CORE, MEMORY, RATIO = (
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
)
GIB = 2**30


def gpu(minor: int, health: bool = True, numa: int | None = 0, pcie: str = "", **more: Any) -> Raw:
    it: Raw = {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": health,
        "resources": {CORE: 100, RATIO: 100, MEMORY: "16Gi"},
        **more,
    }
    if numa is not None:
        pcie_id = pcie or f"switch-{numa}"
        it["topology"] = {"socketID": numa, "nodeID": numa, "pcieID": pcie_id, "busID": str(minor)}
    return it


def card(kind: str, minor: int, numa: int = 0, pcie: str = "", **more: Any) -> Raw:
    it = gpu(minor, numa=numa, pcie=pcie, **more)
    return {**it, "type": kind, "id": f"{kind}-{minor}", "resources": {f"koordinator.sh/{kind}": 100}}


def device(name: str, *devices: Raw, **meta: Any) -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name, "uid": f"device-{name}", **meta},
        "spec": {"devices": list(devices)},
    }


def with_gpus(count: int, name: str = "n1", **more: Any) -> World:
    """A node whose GPUs are on two switches of two NUMA nodes, as they are on most."""
    gpus = [gpu(minor, numa=minor * 2 // max(count, 2)) for minor in range(count)]
    return World(node(name, **more), device(name, *gpus))


def allocated(world: World, name: str, kind: str = "Pod") -> dict[str, list[Raw]]:
    """What is written on a pod, or reservation."""
    text = (world.objects[kind, name]["metadata"].get("annotations") or {}).get(ALLOCATED)
    found: dict[str, list[Raw]] = msgspec.json.decode(text) if text else {}
    return found


def minors(world: World, name: str, kind: str = "Pod", of: str = "gpu") -> list[int]:
    return [each["minor"] for each in allocated(world, name, kind).get(of, ())]
