"""How many CPUs are free, and how much of NUMA nodes, as arrays: of every node, and of every
reservation as its owners see its node.

Places along the last axis are NUMA nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cpus.room import Room
from holdfast.core.cpus.topology import Topology

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_FIRST_WIDTH = 2
_SIZED = ("free", "whole", "cores", "listed", "single", "several", "room", "offers")


class Counts:
    def __init__(self, capacity: int) -> None:
        shape = (capacity, _FIRST_WIDTH)
        self.free: Ints = np.zeros(shape, dtype=np.int64)
        """CPUs nobody has."""
        self.whole: Ints = np.zeros(shape, dtype=np.int64)
        """Those of them on cores of which nobody has any."""
        self.cores: Ints = np.zeros(shape, dtype=np.int64)
        """Cores with a CPU nobody has."""
        self.listed: Bools = np.zeros(shape, dtype=np.bool_)
        """Whether there is such a NUMA node."""
        self.single: Bools = np.zeros(shape, dtype=np.bool_)
        """Whether somebody has CPUs of this NUMA node alone, and nobody of this and others."""
        self.several: Bools = np.zeros(shape, dtype=np.bool_)
        """Whether somebody has CPUs of this NUMA node and of others."""
        self.room: Ints = np.zeros((0, *shape), dtype=np.int64)
        """By resource, what is free of NUMA nodes."""
        self.offers: Bools = np.zeros((0, *shape), dtype=np.bool_)
        """By resource, which NUMA nodes have any at all."""

    @property
    def width(self) -> int:
        return int(self.free.shape[1])

    def fit(self, resources: int, capacity: int, width: int) -> None:
        """Makes room for as much."""
        more = max(0, capacity - len(self.free)), max(0, width - self.width)
        layers = max(0, resources - len(self.room))
        if not any(more) and not layers:
            return
        for name in _SIZED:
            array = getattr(self, name)
            pad = [(0, more[0]), (0, more[1])]
            setattr(self, name, np.pad(array, [(0, layers), *pad] if array.ndim == 3 else pad))

    def clear(self, at: int) -> None:
        for name in _SIZED:
            getattr(self, name)[..., at, :] = 0

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
