"""CPUs, and amounts by NUMA node: what a node has, what somebody has of it, what is left."""

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
        """Without what the other has; with `most`, amounts never below nothing."""
        zones = {numa: dict(amounts) for numa, amounts in self.zones.items()}
        for numa, amounts in other.zones.items():
            for name, value in amounts.items():
                if numa in zones and name in zones[numa]:
                    zones[numa][name] -= min(value, zones[numa][name]) if most else value
        return NumaCapacity(self.cpus - other.cpus, zones)

    def within(self, other: NumaCapacity) -> NumaCapacity:
        """What of it the other has."""
        zones = {
            numa: {
                name: min(value, max(0, other.zones.get(numa, {}).get(name, 0)))
                for name, value in amounts.items()
            }
            for numa, amounts in self.zones.items()
        }
        return NumaCapacity(self.cpus & other.cpus, zones)

    def more(self, other: NumaCapacity) -> NumaCapacity:
        zones = {numa: dict(amounts) for numa, amounts in self.zones.items()}
        for numa, amounts in other.zones.items():
            for name, value in amounts.items():
                if numa in zones and name in zones[numa]:
                    zones[numa][name] += value
        return NumaCapacity(self.cpus | other.cpus, zones)


def everything(topology: NodeTopology | None) -> NumaCapacity:
    """What a node has, and claims to have."""
    if topology is None:
        return NumaCapacity()
    return NumaCapacity(
        topology.open, {numa: dict(offered) for numa, offered in topology.amplified.items()}
    )


def room_of(topology: NodeTopology | None, has: Holding) -> NumaCapacity:
    """What somebody has, by NUMA node; where that is not said, by the CPUs."""
    zones = {numa: dict(amounts) for numa, amounts in has.zones}
    if not zones and topology is not None and has.cpus:
        for numa, cpus in cpus_of_numa(topology, has.cpus).items():
            zones[numa] = {names.CPU: 1000 * len(cpus)}
    if topology is not None and topology.cpu_ratio > 1 and has.cpus:
        for amounts in zones.values():
            amounts[names.CPU] = amplified(amounts.get(names.CPU, 0), topology.cpu_ratio)
    return NumaCapacity(has.cpus, zones)


def without_shared(
    topology: NodeTopology | None, room: NumaCapacity, shared: Mapping[int, int]
) -> NumaCapacity:
    """What can be somebody's own: not the CPUs those need who have `shared` amounts of NUMA nodes."""
    if topology is None or not shared:
        return room
    real = {numa: int(amount / topology.cpu_ratio) for numa, amount in shared.items()}
    return room._replace(cpus=unshared(topology, room.cpus, real))


# What a pod, or a reservation, has of CPUs and NUMA nodes, as it is written on it.
#
# {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "8Gi"}}]}


Amounts = tuple[tuple[str, int], ...]


class Holding(NamedTuple):
    cpus: frozenset[int] = frozenset()
    zones: tuple[tuple[int, Amounts], ...] = ()
    """By NUMA node, what of it."""

    @property
    def shared(self) -> dict[int, int]:
        """What of cpu it has by NUMA node, if it has no CPUs of its own."""
        if self.cpus:
            return {}
        return {numa: value for numa, amounts in self.zones for name, value in amounts if name == CPU}

    def __bool__(self) -> bool:
        return bool(self.cpus or self.zones)


def read_holding(text: str) -> Holding | None:
    try:
        said = decode_json(text, ResourceStatus)
        zones = tuple(
            (
                zone.node,
                tuple(sorted((name, _amount(name, value)) for name, value in zone.resources.items())),
            )
            for zone in said.numa_node_resources
        )
        return Holding(parse_cpus(said.cpuset), zones)
    except (InvalidObject, QuantityError, ValueError):
        return None


def _amount(name: str, value: Quantity) -> int:
    return min(max(0, amount(name, value)), MOST_OF_ZONE)


def write_holding(holding: Holding) -> str:
    written: dict[str, Any] = {}
    if holding.cpus:
        written["cpuset"] = format_cpus(holding.cpus)
    if holding.zones:
        written["numaNodeResources"] = [
            {"node": node, "resources": {name: format_amount(name, value) for name, value in amounts}}
            for node, amounts in holding.zones
        ]
    return msgspec.json.encode(written).decode()


# How many CPUs are free, and how much of NUMA nodes, as arrays: of every node, and of every
# reservation as its owners see its node.
#
# Places along the last axis are NUMA nodes.


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_FIRST_WIDTH = 2
_SIZED = ("_free", "_whole", "_cores", "_listed", "_single", "_several", "_room", "_offers")


class Counts:
    free: Ints = cells_of("_free")
    """CPUs nobody has."""
    whole: Ints = cells_of("_whole")
    """Those of them on cores of which nobody has any."""
    cores: Ints = cells_of("_cores")
    """Cores with a CPU nobody has."""
    listed: Bools = cells_of("_listed")
    """Whether there is such a NUMA node."""
    single: Bools = cells_of("_single")
    """Whether somebody has CPUs of this NUMA node alone, and nobody of this and others."""
    several: Bools = cells_of("_several")
    """Whether somebody has CPUs of this NUMA node and of others."""
    room: Ints = cells_of("_room")
    """By resource, what is free of NUMA nodes."""
    offers: Bools = cells_of("_offers")
    """By resource, which NUMA nodes have any at all."""

    def __init__(self, columns: RowColumns) -> None:
        """Of the rows whose columns these are; `RowColumns(0)` where it is not about rows."""
        wide = (_FIRST_WIDTH,)
        self._free = columns.new(np.int64, trail=wide)
        self._whole = columns.new(np.int64, trail=wide)
        self._cores = columns.new(np.int64, trail=wide)
        self._listed = columns.new(np.bool_, trail=wide)
        self._single = columns.new(np.bool_, trail=wide)
        self._several = columns.new(np.bool_, trail=wide)
        self._room = columns.new(np.int64, lead=(0,), trail=wide)
        self._offers = columns.new(np.bool_, lead=(0,), trail=wide)

    @property
    def width(self) -> int:
        return int(self.free.shape[1])

    def fit(self, resources: int, width: int, length: int = 0) -> None:
        """Makes room for so many resources and NUMA nodes, and, where it is not about rows, for so many
        of what it is about."""
        if width <= self.width and length <= len(self.free) and resources <= len(self.room):
            return
        for name in _SIZED:
            column: RowColumn[Any] = getattr(self, name)
            column.grow(length)
            column.grow(width, axis=-1)
        for column in (self._room, self._offers):
            column.grow(resources, axis=0)

    def clear(self, at: int) -> None:
        for name in _SIZED:
            getattr(self, name).cells[..., at, :] = 0

    def tell(
        self, at: int, topology: NodeTopology | None, room: NumaCapacity, resources: list[str]
    ) -> None:
        """This is free there, of these resources."""
        self.clear(at)
        if topology is None:
            return
        for core in topology.cores.values():
            free = [cpu for cpu in core if cpu in room.cpus]
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
                self.room[place, at, numa] = room.zones.get(numa, {}).get(name, 0)
