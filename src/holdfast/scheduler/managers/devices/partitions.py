"""GPU partitions: the sets of GPUs that can be allocated together because of how they are connected.

    scheduling.koordinator.sh/gpu-partitions on a Device
        {"2": [{"minors": [0, 1], "allocationScore": 2, "ringBusBandwidth": "400Gi"}, …], "4": …}

They are required on nodes whose Device has the label `gpu-partition-policy: Honor`, and for pods with
the annotation `gpu-partition-spec`; elsewhere they are preferred. The partition with the highest score
is chosen; of equal ones the one that leaves most large partitions free.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec import field

from holdfast.api import names
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Struct
from holdfast.api.node import Device
from holdfast.api.quantity import Quantity, QuantityError, parse

MISSING = "node(s) missing GPU Partition Table"
ODD_NUMBER = "node(s) Unsupported number of GPU requests"
TOO_FEW = "Insufficient Partitioned GPU Devices"

_WORTH = ((8, 10000), (4, 100), (2, 1))
"""Points for leaving a partition of so many GPUs free."""


class PartitionSpec(Struct):
    """`gpu-partition-spec` on a pod."""

    allocate_policy: str = ""
    ring_bus_bandwidth: Quantity = 0


class _Partition(Struct):
    minors: list[int] = field(default_factory=list)
    allocation_score: int = 0
    ring_bus_bandwidth: Quantity | None = None


class Partition(NamedTuple):
    """A set of GPUs, by minors, with its score and bandwidth."""

    minors: frozenset[int]
    score: int
    bandwidth: int


class Partitions(NamedTuple):
    """The GPU partitions of one node."""

    by_number: Mapping[int, tuple[Partition, ...]]
    """Best first."""
    honoured: bool


class PartitionRequest(NamedTuple):
    """What a pod requires of its GPU partition."""

    best_only: bool
    bandwidth: int


def read_partitions(device: Device) -> Partitions | None:
    """The partitions of a node; None if its Device has none, or the annotation is invalid."""
    text = device.metadata.annotations.get(names.GPU_PARTITIONS)
    if not text:
        return None
    try:
        raw = decode_json(text, dict[str, list[_Partition]])
        table = {int(number): tuple(map(_partition, sets)) for number, sets in raw.items()}
    except (InvalidObject, QuantityError, ValueError):
        return None
    honoured = device.metadata.labels.get(names.GPU_PARTITION_POLICY) == "Honor"
    best_first = {
        number: tuple(sorted(sets, key=lambda each: -each.score)) for number, sets in table.items()
    }
    return Partitions(best_first, honoured)


def _partition(given: _Partition) -> Partition:
    bandwidth = parse(given.ring_bus_bandwidth) if given.ring_bus_bandwidth is not None else -1
    return Partition(frozenset(given.minors), given.allocation_score, bandwidth)


def read_partition_request(text: str) -> PartitionRequest:
    """Raises InvalidObject and QuantityError."""
    spec = decode_json(text, PartitionSpec)
    return PartitionRequest(spec.allocate_policy == "Restricted", parse(spec.ring_bus_bandwidth))


def allowed_partitions(
    partitions: Partitions, number: int, request: PartitionRequest | None
) -> list[Partition]:
    """The partitions of so many GPUs that satisfy the request, free or not; best first."""
    sets = partitions.by_number.get(number, ())
    if request is None:
        return list(sets)
    return [
        each
        for each in sets
        if (not request.best_only or each.score == sets[0].score)
        and (not request.bandwidth or each.bandwidth >= request.bandwidth)
    ]


def choose_partition(
    partitions: Partitions,
    number: int,
    free: Collection[int],
    first: Collection[int],
    request: PartitionRequest | None,
) -> frozenset[int] | None:
    """The partition of so many GPUs to use, of those that are free; those in `first` before others."""
    usable = frozenset(free)
    found = [each for each in allowed_partitions(partitions, number, request) if each.minors <= usable]
    if not found:
        return None

    def quality(each: Partition) -> tuple[int, ...]:
        whole = _left_whole(partitions, number, usable - each.minors)
        return (
            each.score,
            len(each.minors & frozenset(first)),
            whole,
            *(-m for m in sorted(each.minors)),
        )

    return max(found, key=quality).minors


def _left_whole(partitions: Partitions, number: int, left: frozenset[int]) -> int:
    """Points for the partitions that stay free if this one is used."""
    worth = 0
    for size, each_worth in _WORTH:
        sets = partitions.by_number.get(size, ())
        if size >= number and sets:
            best = sets[0].score
            worth += each_worth * sum(s.score for s in sets if s.score == best and s.minors <= left)
    return worth
