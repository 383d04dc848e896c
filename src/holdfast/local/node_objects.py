"""The Node and Device objects that `holdfast up` creates, for `--nodes` and for `--node-file`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api import names
from holdfast.api.documents import Document
from holdfast.api.errors import QuantityError
from holdfast.api.quantity import EXPECTED_QUANTITY, parse, whole
from holdfast.api.selectors import as_integer
from holdfast.machinery.objects import checked_object
from holdfast.machinery.schema.catalogue import holdfast_catalogue
from holdfast.machinery.schema.types import ResourceType

Raw = dict[str, Any]

DEFAULT_CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
"""The allocatable of a node without any."""
GPU_MEMORY = "80Gi"
MOST_GPUS = 64
MOST_NODES = 100_000
"""Nodes of one document with a count."""
EXPECTED_COUNT = f"expected a number from 0 to {MOST_NODES}, as a string"
_ZONES = ("zone-a", "zone-b", "zone-c")
_NUMA_NODES = 2
_GPU_PRESENT = "nvidia.com/gpu.present"


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The size of the nodes of `--nodes`."""

    cpu: str = DEFAULT_CAPACITY["cpu"]
    memory: str = DEFAULT_CAPACITY["memory"]
    gpus: int = 0

    def problems(self) -> list[str]:
        """What is wrong with it, by flag."""
        found = []
        for flag, value in (("--node-cpu", self.cpu), ("--node-memory", self.memory)):
            try:
                if parse(value) <= 0:
                    found.append(f"{flag}: {value!r} is not more than 0")
            except QuantityError:
                found.append(f"{flag}: {EXPECTED_QUANTITY}, got {value!r}")
        return found

    @property
    def capacity(self) -> dict[str, str]:
        sizes = {**DEFAULT_CAPACITY, "cpu": self.cpu, "memory": self.memory}
        return {**sizes, names.NVIDIA_GPU: str(self.gpus)} if self.gpus else sizes


DEFAULT_SHAPE = NodeShape()


def new_node(number: int, shape: NodeShape = DEFAULT_SHAPE) -> Raw:
    """The nodes that `--nodes` creates, numbered from 1, in three zones."""
    raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}"},
        "spec": {},
        "status": {"capacity": shape.capacity, "allocatable": shape.capacity},
    }
    return _labelled(raw, number)


def _labelled(raw: Raw, number: int) -> Raw:
    """With the labels that nodes of a cloud have; those that it has are kept."""
    name = raw["metadata"]["name"]
    labels = {
        names.HOSTNAME_LABEL: name,
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
        names.INSTANCE_TYPE_LABEL: "simulated",
        names.REGION_LABEL: "local",
        names.ZONE_LABEL: _ZONES[(number - 1) % len(_ZONES)],
    }
    if gpus_of(raw):
        labels[_GPU_PRESENT] = "true"
    given = raw["metadata"].get("labels") or {}
    return {**raw, "metadata": {**raw["metadata"], "labels": {**labels, **given}}}


def gpus_of(node: Raw) -> int:
    status = node.get("status") or {}
    amounts = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    return whole(amounts.get(names.NVIDIA_GPU, 0))


def numa_node_of(gpu: int, count: int) -> int:
    """The NUMA node of a GPU of so many."""
    return gpu * _NUMA_NODES // max(count, _NUMA_NODES)


def device_of(node: Raw) -> Raw | None:
    """The Device of a node with GPUs, by which shares of them can be requested; it belongs to the node.
    The GPUs are divided between two NUMA nodes, each with a PCIe switch."""
    name, count = node["metadata"]["name"], gpus_of(node)
    if not count:
        return None
    gpus = []
    for minor in range(count):
        numa = numa_node_of(minor, count)
        gpus.append(
            {
                "type": "gpu",
                "id": f"GPU-{name}-{minor}",
                "minor": minor,
                "health": True,
                "resources": {
                    names.GPU_CORE: "100",
                    names.GPU_MEMORY_RATIO: "100",
                    names.GPU_MEMORY: GPU_MEMORY,
                },
                "topology": {
                    "socketID": numa,
                    "nodeID": numa,
                    "pcieID": f"0000:{numa:02x}",
                    "busID": f"0000:{numa:02x}:{minor:02x}.0",
                },
            }
        )
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": node["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": names.RESERVATION_API,
        "kind": "Device",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"devices": gpus},
    }


# Node files


@dataclass(slots=True)
class NodeFile:
    """The nodes of `--node-file`, and what is wrong with it: one line each, naming the document."""

    nodes: list[Raw] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_nodes(documents: Sequence[Document], taken: Sequence[str] = ()) -> NodeFile:
    """The nodes of manifests. One with the annotation `sim.holdfast.io/count` stands for that many,
    with numbered names. `taken` are names that other options use."""
    result = NodeFile()
    type = holdfast_catalogue().kind("", "v1", "Node")
    assert type is not None
    given_by = dict.fromkeys(taken, "--nodes")
    for document in documents:
        problems = [*_problems(type, document.data)]
        made = [] if problems else copies(document.data) or []
        nodes = [_labelled(raw, number) for number, raw in enumerate(made, len(result.nodes) + 1)]
        for node in nodes:
            name = node["metadata"]["name"]
            if name in given_by:
                problems.append(f"Node/{name}: metadata.name: is also given by {given_by[name]}")
                break
            given_by[name] = str(document)
        result.problems += [f"{document}: {problem}" for problem in problems]
        result.nodes += nodes
    return result


def _problems(type: ResourceType, raw: Any) -> Iterator[str]:
    if not isinstance(raw, dict):
        yield "expected a Node"
        return
    api_version, kind = raw.get("apiVersion"), raw.get("kind")
    if (api_version, kind) != ("v1", "Node"):
        yield f"expected a Node of v1, not {kind} of {api_version}; other objects are for --apply"
        return
    _, errors = checked_object(type, raw)
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    about = f"Node/{name}" if name else "Node"
    amounts = dict(_bad_amounts(raw.get("status")))
    for where, value in amounts.items():
        yield f"{about}: {where}: {EXPECTED_QUANTITY}, got {value!r}"
    for error in errors:
        if error.field not in amounts:
            yield (
                f"{about}: {error.field}: {error.message}" if error.field else f"{about}: {error.text}"
            )
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if name and isinstance(annotations, dict) and copies(raw) is None:
        yield f"{about}: metadata.annotations[{names.SIM_COUNT}]: {EXPECTED_COUNT}"
    if errors:
        return
    if gpus_of(raw) > MOST_GPUS:
        yield f"{about}: status.capacity.{names.NVIDIA_GPU}: at most {MOST_GPUS}, not {gpus_of(raw)}"


def _bad_amounts(status: Any) -> Iterator[tuple[str, Any]]:
    """The fields of all amounts that cannot be read, where decoding ends at the first."""
    for part in ("capacity", "allocatable"):
        amounts = status.get(part) if isinstance(status, dict) else None
        for name, value in amounts.items() if isinstance(amounts, dict) else ():
            try:
                parse(value if value is not None else 0)
            except QuantityError:
                yield f"status.{part}[{name}]", value


def copies(node: Raw) -> list[Raw] | None:
    """The nodes that one with a count stands for; None if the count is invalid."""
    annotations = dict(node["metadata"].get("annotations") or {})
    text = annotations.pop(names.SIM_COUNT, None)
    if text is None:
        return [node]
    count = as_integer(text) if isinstance(text, str) else None
    if count is None or not 0 <= count <= MOST_NODES:
        return None
    name, rest = node["metadata"]["name"], {**node["metadata"], "annotations": annotations}
    return [
        {**node, "metadata": {**rest, "name": f"{name}-{number}"}} for number in range(1, count + 1)
    ]
