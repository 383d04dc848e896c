"""The simulated DRA driver of GPUs: slices of the nodes that `up` creates, and their class.

Slices of a node go with it, also those of other drivers: in a cluster the drivers do that.
"""

from __future__ import annotations

from holdfast.api import names
from holdfast.api.raw_objects import Key, Raw
from holdfast.local.claim_references import SLICE
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.node_objects import GPU_MEMORY, gpus_of, numa_node_of
from holdfast.local.store.objects import NODE, StoreChange

DRIVER = "gpu.holdfast.io"
MODEL = "Holdfast Simulated GPU"
_DRIVER_VERSION = "1.0.0"
_PER_SLICE = 128
_PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


def device_class() -> Raw:
    """The class of all simulated GPUs."""
    return {
        "apiVersion": names.RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }


def slices_of(node: Raw) -> list[Raw]:
    """The slices of a node's GPUs, which belong to it; none if it has no GPUs."""
    name, count = node["metadata"]["name"], gpus_of(node)
    starts = range(0, count, _PER_SLICE)
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": node["metadata"]["uid"],
        "controller": True,
    }
    return [
        {
            "apiVersion": names.RESOURCE_API,
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{name}-{DRIVER}" if number == 0 else f"{name}-{DRIVER}-{number}",
                "ownerReferences": [owner],
                "generation": 1,
            },
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": len(starts)},
                "devices": [
                    _gpu(name, index, count) for index in range(start, min(start + _PER_SLICE, count))
                ],
            },
        }
        for number, start in enumerate(starts)
    ]


def _gpu(node: str, index: int, count: int) -> Raw:
    numa = numa_node_of(index, count)
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": MODEL},
            "uuid": {"string": f"GPU-{node}-{index}"[:64]},
            "index": {"int": index},
            "numaNode": {"int": numa},
            "driverVersion": {"version": _DRIVER_VERSION},
            _PCIE_ROOT: {"string": f"pci0000:{numa:02x}"},
        },
        "capacity": {"memory": {"value": GPU_MEMORY}},
    }


class NodeSlices:
    """Deletes the slices of deleted nodes."""

    def __init__(self, objects: ObjectWriter) -> None:
        self._objects = objects
        self._by_node: dict[str, dict[Key, str]] = {}
        """The slices of each node, and their UIDs."""
        self._left: dict[Key, str] = {}
        """Those of deleted nodes. A node of the same name that comes at once has others."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == SLICE:
            raw = after if after is not None else before
            node = raw["spec"].get("nodeName") if raw is not None else None
            if not node:
                return
            slices = self._by_node.setdefault(node, {})
            if after is not None:
                slices[key] = after["metadata"]["uid"]
            else:
                slices.pop(key, None)
                if not slices:
                    del self._by_node[node]
        elif key[:2] == NODE and after is None:
            self._left.update(self._by_node.get(key.name, {}))

    def settle(self) -> Steps:
        left, self._left = self._left, {}
        for key, uid in left.items():
            raw = self._objects.get(key)
            if raw is not None and raw["metadata"]["uid"] == uid:
                self._objects.end(key)
                yield None
