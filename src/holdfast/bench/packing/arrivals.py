"""The nodes of the trace, and pods drawn from it.

Nodes without GPUs are left out. Pods are those of the trace and more of the same, drawn at
random, until together they ask for 130 % of all GPUs; they come in random order, and none leaves.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.api import names
from holdfast.api.meta import Object
from holdfast.bench.errors import BenchError
from holdfast.bench.making import PodMaker, Raw, make_object
from holdfast.bench.trace import (
    Record,
    affinity_to_models,
    model_label,
    models_asked_for,
    node_records,
    pod_records,
)
from holdfast.core.devices.fragmentation import Kind

MOST = 1.3
"""How much is asked for in all, in parts of what there is."""
_MEMORY = 16 * 2**30


class NoGpusError(BenchError):
    """There is nothing to pack."""


@dataclass(frozen=True, slots=True)
class Trace:
    nodes: list[Object]
    """Nodes, each with its Device."""
    gpus: int
    shapes: list[Raw]
    shape_of: list[int]
    """Of each pod of the trace."""
    wants: list[float]
    """GPUs each shape asks for."""
    kinds: list[tuple[Kind, int]]
    """What the pods of the trace ask for, and how many ask for it."""
    models: list[tuple[str, ...]]
    """Of each kind the GPU models it asks for; empty if any will do."""
    model_of: dict[str, str]
    """The GPU model of each node, by its name."""

    def arrivals(self, seed: int) -> list[int]:
        """The shapes of the pods that come, in their order."""
        chance = random.Random(seed)
        drawn = list(self.shape_of)
        asked = sum(self.wants[shape] for shape in drawn)
        while asked < MOST * self.gpus:
            shape = chance.choice(self.shape_of)
            drawn.append(shape)
            asked += self.wants[shape]
        chance.shuffle(drawn)
        return drawn

    def maker(self, order: list[int]) -> PodMaker:
        return PodMaker("openb-pod", self.shapes, order=order)


def read_trace(folder: Path, nodes: str, pods: str) -> Trace:
    machines = [record for record in node_records(folder, nodes) if int(record["gpu"])]
    if not machines:
        raise NoGpusError(f"{folder}: no node of {nodes} has a GPU")
    numbers: dict[tuple[str, ...], int] = {}
    records: list[Record] = []
    shape_of = []
    for record in pod_records(folder, pods):
        key = (
            *(record[column] for column in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")),
            *models_asked_for(record),
        )
        if key not in numbers:
            numbers[key] = len(numbers)
            records.append(record)
        shape_of.append(numbers[key])
    wants = [int(r["num_gpu"]) * int(r["gpu_milli"]) / 1000 for r in records]
    if not any(wants):
        raise NoGpusError(f"{folder}: no pod of {pods} asks for a GPU")
    pods_of = Counter(shape_of)
    kinds = [(_kind(record), pods_of[shape]) for shape, record in enumerate(records)]
    objects = [made for number, record in enumerate(machines) for made in _with_device(record, number)]
    gpus = sum(int(record["gpu"]) for record in machines)
    asked_for = [models_asked_for(record) for record in records]
    model_of = {record["sn"]: record["model"] for record in machines}
    pods_made = [_pod(record) for record in records]
    return Trace(objects, gpus, pods_made, shape_of, wants, kinds, asked_for, model_of)


def _kind(record: Record) -> Kind:
    gpus, each = int(record["num_gpu"]), int(record["gpu_milli"]) // 10
    return Kind(gpus, each, int(record["cpu_milli"]), int(record["memory_mib"]) * 2**20)


def _with_device(record: Record, number: int) -> Iterator[Object]:
    offered = {"cpu": f"{record['cpu_milli']}m", "memory": f"{record['memory_mib']}Mi", "pods": "110"}
    yield make_object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": record["sn"], "labels": model_label(record)},
            "status": {"allocatable": offered, "capacity": offered},
        },
        "",
        number,
    )
    gpu = {
        "type": "gpu",
        "health": True,
        "resources": {names.GPU_CORE: 100, names.GPU_MEMORY_RATIO: 100, names.GPU_MEMORY: _MEMORY},
    }
    yield make_object(
        {
            "apiVersion": names.RESERVATION_API,
            "kind": "Device",
            "metadata": {"name": record["sn"]},
            "spec": {"devices": [{**gpu, "minor": minor} for minor in range(int(record["gpu"]))]},
        },
        "",
        number,
    )


def _pod(record: Record) -> Raw:
    requests = {"cpu": f"{record['cpu_milli']}m", "memory": f"{record['memory_mib']}Mi"}
    percent = int(record["num_gpu"]) * int(record["gpu_milli"]) // 10
    if percent:
        requests[names.GPU_PERCENT] = str(percent)
    main = {"name": "main", "image": "openb", "resources": {"requests": requests}}
    return {"metadata": {}, "spec": {"containers": [main], **affinity_to_models(record)}}
