"""How many CPUs are free, and how much of NUMA nodes, as arrays: of every node, and of every
reservation as its owners see its node.

Places along the last axis are NUMA nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cpus.room import Room
from holdfast.core.cpus.topology import Topology
from holdfast.core.row_columns import RowColumn, RowColumns, cells_of

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

    def tell(self, at: int, topology: Topology | None, room: Room, resources: list[str]) -> None:
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
