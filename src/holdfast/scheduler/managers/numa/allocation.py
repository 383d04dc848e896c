"""CPUs and amounts by NUMA node: the capacity of a node, one pod's allocation, and what is free.

`NumaCapacity` is an amount that can be added and subtracted. `Holding` is what one pod or reservation
has, as the resource-status annotation stores it. `Counts` has what is free as arrays, for filters over
all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.annotations import ResourceStatus
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.names import CPU
from holdfast.api.quantity import Quantity, QuantityError, amount, format_amount
from holdfast.scheduler.cluster.columns import RowColumn, RowColumns, cells_of
from holdfast.scheduler.managers.numa.cpu_accumulator import unshared
from holdfast.scheduler.managers.numa.node_topology import (
    MOST_OF_ZONE,
    NodeTopology,
    amplified,
    cpus_of_numa,
    format_cpus,
    parse_cpus,
)

Zones = Mapping[int, Mapping[str, int]]
_NO_ZONES: Zones = MappingProxyType({})


class NumaCapacity(NamedTuple):
    """CPUs, and amounts by NUMA node and resource."""

    cpus: frozenset[int] = frozenset()
    zones: Zones = _NO_ZONES

    def less(self, other: NumaCapacity, most: bool = False) -> NumaCapacity:
        """Subtracts the other; with `most`, no amount drops below 0."""
        zones = {numa: dict(amounts) for numa, amounts in self.zones.items()}
        for numa, amounts in other.zones.items():
            for name, value in amounts.items():
                if numa in zones and name in zones[numa]:
                    zones[numa][name] -= min(value, zones[numa][name]) if most else value
        return NumaCapacity(self.cpus - other.cpus, zones)

    def within(self, other: NumaCapacity) -> NumaCapacity:
        """The part of it that the other covers."""
        zones = {
            numa: {
                name: min(value, max(0, other.zones.get(numa, {}).get(name, 0)))
                for name, value in amounts.items()
            }
            for numa, amounts in self.zones.items()
        }
        return NumaCapacity(self.cpus & other.cpus, zones)

    def more(self, other: NumaCapacity) -> NumaCapacity:
        """Adds the other, as far as it is of NUMA nodes and resources that this one lists."""
        zones = {numa: dict(amounts) for numa, amounts in self.zones.items()}
        for numa, amounts in other.zones.items():
            for name, value in amounts.items():
                if numa in zones and name in zones[numa]:
                    zones[numa][name] += value
        return NumaCapacity(self.cpus | other.cpus, zones)


def everything(topology: NodeTopology | None) -> NumaCapacity:
    """The capacity of a node: its allocatable CPUs, and the amplified amounts of its NUMA nodes."""
    if topology is None:
        return NumaCapacity()
    return NumaCapacity(
        topology.open, {numa: dict(offered) for numa, offered in topology.amplified.items()}
    )


def held_capacity(topology: NodeTopology | None, has: Holding) -> NumaCapacity:
    """The capacity that a pod or reservation has; without amounts by NUMA node, those of its CPUs."""
    zones = {numa: dict(amounts) for numa, amounts in has.zones}
    if not zones and topology is not None and has.cpus:
        for numa, cpus in cpus_of_numa(topology, has.cpus).items():
            zones[numa] = {names.CPU: 1000 * len(cpus)}
    if topology is not None and topology.cpu_ratio > 1 and has.cpus:
        for amounts in zones.values():
            amounts[names.CPU] = amplified(amounts.get(names.CPU, 0), topology.cpu_ratio)
    return NumaCapacity(has.cpus, zones)


def without_shared(
    topology: NodeTopology | None, free: NumaCapacity, shared: Mapping[int, int]
) -> NumaCapacity:
    """`free` without the CPUs that pods with `shared` cpu of NUMA nodes need to run on."""
    if topology is None or not shared:
        return free
    real = {numa: int(amount / topology.cpu_ratio) for numa, amount in shared.items()}
    return free._replace(cpus=unshared(topology, free.cpus, real))


# Allocations of one pod or reservation, as the resource-status annotation stores them:
#
# {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "8Gi"}}]}


Amounts = tuple[tuple[str, int], ...]


class Holding(NamedTuple):
    """The exclusive CPUs and the amounts by NUMA node that one pod or reservation has."""

    cpus: frozenset[int] = frozenset()
    zones: tuple[tuple[int, Amounts], ...] = ()
    """NUMA nodes, each with its amounts."""

    @property
    def shared(self) -> dict[int, int]:
        """Its cpu by NUMA node, if it has no exclusive CPUs."""
        if self.cpus:
            return {}
        return {numa: value for numa, amounts in self.zones for name, value in amounts if name == CPU}

    def __bool__(self) -> bool:
        return bool(self.cpus or self.zones)


def read_holding(text: str) -> Holding | None:
    """Decodes the annotation; None if it is invalid."""
    try:
        status = decode_json(text, ResourceStatus)
        zones = tuple(
            (
                zone.node,
                tuple(sorted((name, _amount(name, value)) for name, value in zone.resources.items())),
            )
            for zone in status.numa_node_resources
        )
        return Holding(parse_cpus(status.cpuset), zones)
    except (InvalidObject, QuantityError, ValueError):
        return None


def _amount(name: str, value: Quantity) -> int:
    return min(max(0, amount(name, value)), MOST_OF_ZONE)


def write_holding(holding: Holding) -> str:
    """Encodes the annotation."""
    written: dict[str, Any] = {}
    if holding.cpus:
        written["cpuset"] = format_cpus(holding.cpus)
    if holding.zones:
        written["numaNodeResources"] = [
            {"node": node, "resources": {name: format_amount(name, value) for name, value in amounts}}
            for node, amounts in holding.zones
        ]
    return msgspec.json.encode(written).decode()


# Free CPUs and amounts as arrays


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_FIRST_WIDTH = 2
_SIZED = ("_free", "_whole", "_cores", "_listed", "_single", "_several", "_amounts", "_offers")


class Counts:
    """What is free on each NUMA node, by row or by entry index. The last axis is the NUMA node."""

    free: Ints = cells_of("_free")
    """Free CPUs."""
    whole: Ints = cells_of("_whole")
    """Free CPUs on cores that are free as a whole."""
    cores: Ints = cells_of("_cores")
    """Cores with a free CPU."""
    listed: Bools = cells_of("_listed")
    """Whether the NUMA node exists."""
    single: Bools = cells_of("_single")
    """Whether pods have CPUs of this NUMA node only, and none has CPUs of this and another."""
    several: Bools = cells_of("_several")
    """Whether a pod has CPUs of this NUMA node and of another."""
    amounts: Ints = cells_of("_amounts")
    """Free amounts, [resource, row, NUMA node]."""
    offers: Bools = cells_of("_offers")
    """Whether the NUMA node has the resource at all, [resource, row, NUMA node]."""

    def __init__(self, columns: RowColumns) -> None:
        """`columns` are those of the node table; `RowColumns(0)` for counts by entry index."""
        wide = (_FIRST_WIDTH,)
        self._free = columns.new(np.int64, trail=wide)
        self._whole = columns.new(np.int64, trail=wide)
        self._cores = columns.new(np.int64, trail=wide)
        self._listed = columns.new(np.bool_, trail=wide)
        self._single = columns.new(np.bool_, trail=wide)
        self._several = columns.new(np.bool_, trail=wide)
        self._amounts = columns.new(np.int64, lead=(0,), trail=wide)
        self._offers = columns.new(np.bool_, lead=(0,), trail=wide)

    @property
    def width(self) -> int:
        return int(self.free.shape[1])

    def fit(self, resources: int, width: int, length: int = 0) -> None:
        """Grows the arrays to so many resources and NUMA nodes, and counts by entry to `length`
        entries."""
        if width <= self.width and length <= len(self.free) and resources <= len(self.amounts):
            return
        for name in _SIZED:
            column: RowColumn[Any] = getattr(self, name)
            column.grow(length)
            column.grow(width, axis=-1)
        for column in (self._amounts, self._offers):
            column.grow(resources, axis=0)

    def clear(self, at: int) -> None:
        for name in _SIZED:
            getattr(self, name).cells[..., at, :] = 0

    def set_free(
        self, at: int, topology: NodeTopology | None, capacity: NumaCapacity, resources: list[str]
    ) -> None:
        """Stores `capacity` as free at a row or entry index; `resources` are those of the first
        axis."""
        self.clear(at)
        if topology is None:
            return
        for core in topology.cores.values():
            free = [cpu for cpu in core if cpu in capacity.cpus]
            if free:
                numa = topology.cpus[free[0]].numa
                self.free[at, numa] += len(free)
                self.cores[at, numa] += 1
                self.whole[at, numa] += len(free) if len(free) == topology.per_core else 0
        for numa, offered in topology.zones.items():
            self.listed[at, numa] = True
            for name in offered:
                place = resources.index(name)
                self.offers[place, at, numa] = True
                self.amounts[place, at, numa] = capacity.zones.get(numa, {}).get(name, 0)
