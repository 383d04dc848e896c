"""The node table: a row per node, a column per quantity.

A row belongs to a node's *name*. It exists while the node object does, or while pods are known to be
on a node of that name: pods may be seen before their node, and outlive it. A row without a node
object is not `alive` and offers nothing. Rows are handed out lowest first, so nodes that came
earlier stand earlier, which is how ties between nodes are broken.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.affinity import Taint
from holdfast.core.images import Images
from holdfast.core.labels import LabelColumns
from holdfast.core.ports import PortUse
from holdfast.core.row_columns import RowColumns
from holdfast.core.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, Slots
from holdfast.core.taints import EMPTY, TaintSets

Matrix = NDArray[np.int64]

NO_PODS = 2**62
"""The lowest priority where there are no pods."""

_FIRST_CAPACITY = 64
_FIRST_SLOTS = 8
_MORE_SLOTS = 4
"""Few at a time, since every pod that comes or goes costs a look at each."""


@dataclass(slots=True, frozen=True)
class NodeInfo:
    """What the scheduler reads of a node object, quantities in base amounts."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: list[Taint]
    unschedulable: bool
    allocatable: dict[str, int]
    images: dict[str, int]
    derived: frozenset[str] = frozenset()
    """What of `allocatable` the node does not say itself: it follows from its devices."""


class Held(NamedTuple):
    """What a reservation holds, by slot."""

    now: Mapping[int, int]
    in_the_end: Mapping[int, int]
    """When the pods have ended that do not stay as long as the node."""


class NodeTable:
    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self.size = 0
        """One past the highest row ever in use: vectors are computed over `[:size]`."""
        self.count = 0
        """Nodes that exist: the N of `0/N nodes are available`."""
        self.slots = Slots()
        self.allocatable = _matrix(_FIRST_SLOTS, self.capacity)
        self.claimed = _matrix(_FIRST_SLOTS, self.capacity)
        """Requests of pods, plus what reservations there still hold."""
        self._held = _matrix(_FIRST_SLOTS, self.capacity)
        self._reserved = _matrix(_FIRST_SLOTS, self.capacity)
        self.held_outdated: dict[int, None] = {}
        """Rows on which reservations hold more or less than was last written down."""
        self.held_on: Callable[[int], Collection[Held]] | None = None
        """What each reservation on a row holds; said by the table's first ledger. Others only count
        something again."""
        self.permanent = _matrix(_FIRST_SLOTS, self.capacity)
        """The part of `claimed` that pods claim which stay as long as the node."""
        self.lowest: NDArray[np.int64] = np.full(self.capacity, NO_PODS, dtype=np.int64)
        """The lowest priority of the pods on a row."""
        self.lowest_held: NDArray[np.int64] = np.full(self.capacity, NO_PODS, dtype=np.int64)
        """The lowest priority of the reservations on a row."""
        self.alive: NDArray[np.bool_] = np.zeros(self.capacity, dtype=np.bool_)
        self.taint_set: NDArray[np.int32] = np.zeros(self.capacity, dtype=np.int32)
        self.taints = TaintSets()
        self.columns = RowColumns(self.capacity)
        """What others keep per row."""
        self.labels = LabelColumns(self.columns)
        self.ports = PortUse(self.columns)
        self.images = Images(self.columns)
        self.info: dict[int, NodeInfo] = {}
        self.sparse: frozenset[int] = frozenset()
        """The slots of which some node has nothing."""
        self._having: NDArray[np.int64] = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        """How many nodes have something of a slot."""
        self._row: dict[str, int] = {}
        self._name: list[str] = []
        self._free: list[int] = []

    def row(self, name: str) -> int | None:
        return self._row.get(name)

    def name(self, row: int) -> str:
        return self._name[row]

    def names(self) -> Iterator[tuple[str, int]]:
        return iter(self._row.items())

    def slot(self, resource: str) -> int:
        """The slot of a resource, with room for it in every matrix. It is the resource's for as long as
        a node, a pod class or a reservation has something of it; see `Cluster.release_slots`."""
        return self._fitted(self.slots.of(resource))

    def pinned_slot(self, resource: str) -> int:
        """The same, for good: for those who keep the number without any of these."""
        slot = self.slot(resource)
        self.slots.pin(slot)
        return slot

    def derived_slot(self, sum_of: str, resource: str) -> int:
        return self._fitted(self.slots.derived(sum_of, resource))

    def _fitted(self, slot: int) -> int:
        if slot >= len(self.allocatable):
            self._resize(len(self.allocatable) + _MORE_SLOTS, self.capacity)
        return slot

    def open_row(self, name: str) -> int:
        """The row of a name, a new one if it has none."""
        row = self._row.get(name)
        if row is not None:
            return row
        if self._free:
            row = heapq.heappop(self._free)
            self._name[row] = name
            self.columns.row_reopened(row)
        else:
            row = self.size
            if row == self.capacity:
                self._grow(self.capacity * 2)
            self.size += 1
            self._name.append(name)
        self._row[name] = row
        return row

    @property
    def held(self) -> Matrix:
        """The part of `claimed` that reservations hold. Few ask for it, and it changes all the time: so
        it is written down when asked for."""
        self._write_held()
        return self._held

    @property
    def reserved(self) -> Matrix:
        """What reservations hold once every pod has ended that does not stay as long as the node:
        reusable ones have then back what such pods use of them. With `permanent` this is what of a node
        is never free while its reservations live."""
        self._write_held()
        return self._reserved

    def _write_held(self) -> None:
        if not self.held_outdated or self.held_on is None:
            return
        outdated, self.held_outdated = self.held_outdated, {}
        held, reserved = self._held, self._reserved
        for row in outdated:
            held[:, row] = 0
            holds = self.held_on(row)
            for now, _ in holds:
                for slot, amount in now.items():
                    held[slot, row] += amount
            reserved[:, row] = held[:, row]
            for now, in_the_end in holds:
                if in_the_end is not now:
                    for slot in now.keys() | in_the_end.keys():
                        reserved[slot, row] += in_the_end.get(slot, 0) - now.get(slot, 0)

    def close_row(self, row: int) -> None:
        """Gives a row back. It must be neither alive nor claimed."""
        del self._row[self._name[row]]
        self._name[row] = ""
        heapq.heappush(self._free, row)

    def put(self, row: int, info: NodeInfo) -> None:
        """Writes a node object into its row."""
        if not self.alive[row]:
            self.alive[row] = True
            self.count += 1
        slots = {self.slot(name): amount for name, amount in info.allocatable.items()}
        column = np.zeros(len(self.allocatable), dtype=np.int64)
        for slot, amount in slots.items():
            column[slot] = amount
        column[NONZERO_CPU], column[NONZERO_MEMORY] = column[CPU], column[MEMORY]
        self._offer(row, column)
        self._taint(row, info.taints)
        self.labels.set(row, info.labels)
        self.images.set(row, info.images)
        self.info[row] = info

    def drop(self, row: int) -> None:
        """Takes the node object out of its row; what is claimed there stays."""
        self.alive[row] = False
        self.count -= 1
        self._offer(row, np.zeros(len(self.allocatable), dtype=np.int64))
        self._taint(row, [])
        self.labels.clear(row)
        self.images.set(row, {})
        del self.info[row]

    def _taint(self, row: int, taints: list[Taint]) -> None:
        before = self.taint_set.item(row)
        self.taint_set[row] = self.taints.hold(taints)
        if before != EMPTY:
            self.taints.let_go(before)

    def _offer(self, row: int, column: NDArray[np.int64]) -> None:
        before = self.allocatable[:, row] > 0
        self._having -= before
        self._having += column > 0
        self.slots.left(np.flatnonzero(before & (self._having == 0)).tolist())
        self.allocatable[:, row] = column
        self.sparse = frozenset(np.flatnonzero(self._having < self.count).tolist())

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity
        self._resize(len(self.allocatable), capacity)
        self.lowest = np.pad(self.lowest, (0, more), constant_values=NO_PODS)
        self.lowest_held = np.pad(self.lowest_held, (0, more), constant_values=NO_PODS)
        self.alive = np.pad(self.alive, (0, more))
        self.taint_set = np.pad(self.taint_set, (0, more))
        self.columns.grow(capacity)
        self.capacity = capacity

    def _resize(self, slots: int, capacity: int) -> None:
        self._having = np.pad(self._having, (0, slots - len(self._having)))
        self.sparse |= frozenset(range(len(self.allocatable), slots) if self.count else ())
        for name in ("allocatable", "claimed", "_held", "_reserved", "permanent"):
            before: Matrix = getattr(self, name)
            after = _matrix(slots, capacity)
            after[: before.shape[0], : before.shape[1]] = before
            setattr(self, name, after)


def _matrix(slots: int, capacity: int) -> Matrix:
    return np.zeros((slots, capacity), dtype=np.int64)
