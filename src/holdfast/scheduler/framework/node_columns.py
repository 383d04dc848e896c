"""Columns of values per row for plugins: `view.take(column)` gives the values of a view.

`holdfast.scheduler.framework.handle` makes them. They are as long as the node table at any time, and
read-only but for a plugin's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.columns import RowColumn
from holdfast.scheduler.cluster.domain_counts import PodCounter
from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_labels import LabelColumn
from holdfast.scheduler.cluster.node_table import Image, NodeInfo, NodeTable, TaintSet
from holdfast.scheduler.cluster.plugin_errors import RAISED, words_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import read_only
from holdfast.scheduler.framework.read_only_records import real
from holdfast.scheduler.reservations import ReservationCache
from holdfast.scheduler.reservations.reserved_ports import ReservedPorts

_VALUES_HELD = 1000
"""How many values of a label keep their codes for a plugin."""


class Unreadable(HoldfastError):
    """A node has an invalid annotation, which is not an error of the plugin."""


class NodeColumn:
    """A value per row: `view.take(column)` for a view, `column[row]` for one row."""

    __slots__ = ("__weakref__", "_column")

    def __init__(self, column: RowColumn[Any]) -> None:
        self._column = column

    @property
    def cells(self) -> NDArray[Any]:
        """The values of all rows. Do not keep the array: it is replaced when the table grows."""
        cells: NDArray[Any] = read_only(self._column.cells[:])
        return cells

    def __getitem__(self, rows: Any) -> Any:
        return read_only(self._column.cells[:])[rows]

    def take(self, rows: Any) -> Any:
        return self._column.cells.take(rows)

    def item(self, row: int) -> Any:
        return self._column.cells.item(row)


class OwnColumn(NodeColumn):
    """A column that its plugin writes to: `column[row] = value`. Answers about the row under
    `Scope.USAGE` are then computed again. When a row is reused for another node it gets the initial
    value."""

    __slots__ = ("_changed",)

    def __init__(self, column: RowColumn[Any], changed: RowLog) -> None:
        super().__init__(column)
        self._changed = changed

    def __setitem__(self, row: int, value: Any) -> None:
        if not 0 <= (row := index(row)) < len(self._column.cells):
            raise IndexError(f"there is no row {row}")
        self._column.cells[row] = value
        self._changed.add(row)


class DerivedColumn(NodeColumn):
    """A column computed from node objects."""

    __slots__ = ("_missing", "_of", "_what")

    def __init__(
        self, column: RowColumn[Any], of: Callable[[NodeInfo], Any], missing: Any, what: str
    ) -> None:
        super().__init__(column)
        self._of = of
        self._missing = missing
        self._what = what

    def follow(self, row: int, info: NodeInfo | None) -> BaseException | None:
        """Computes the value of a row; returns the error if that fails, and the value is missing
        then."""
        cells = self._column.cells
        try:
            value = self._missing if info is None else self._of(info)
            cells[row] = value if value is self._missing else _cell(value, cells.dtype)
        except RAISED as error:
            cells[row] = self._missing
            return error if not self._what else Unreadable(f"{self._what}: {words_of(error)}")
        return None


def _cell(value: Any, dtype: "np.dtype[Any]") -> Any:
    """The value converted to the column's type; raises if that loses information, or it is not
    finite."""
    if dtype == np.object_:
        return value
    found = np.asarray(value)
    if found.ndim == 0 and found.dtype.kind == "f" and not np.isfinite(found):
        raise ValueError(f"{value!r} is not a finite number")
    if found.ndim == 0 and (
        np.can_cast(found.dtype, dtype, "same_kind")
        or (found.dtype.kind == "f" and found == found // 1)
    ):
        return value
    raise ValueError(f"{value!r} is not a value of the type {dtype}")


class NodeLabel(NodeColumn):
    """The values of a label as codes: `view.take(label) == label.code("a value")`; -1 for a row without
    the label. A value keeps its code once `code` was called, whether or not a node has it."""

    __slots__ = ("_held", "_label")

    def __init__(self, label: LabelColumn) -> None:
        super().__init__(label.column)
        self._label = label
        self._held: dict[str, int] = {}

    @property
    def codes(self) -> NDArray[np.int32]:
        return self.cells

    def code(self, value: str) -> int:
        code = self._held.get(value)
        if code is None:
            if len(self._held) >= _VALUES_HELD:
                return self._label.code(value)  # right for now
            code = self._held[value] = self._label.hold(value)
        return code


class NodeImage(NodeColumn):
    """Whether each row has an image."""

    __slots__ = ("_image",)

    def __init__(self, image: Image) -> None:
        super().__init__(image.column)
        self._image = image

    @property
    def size(self) -> int:
        """The size in bytes that the first node with the image reported."""
        return self._image.size

    @property
    def nodes(self) -> int:
        """The number of nodes with the image."""
        return self._image.nodes


class PodCounts(NodeColumn):
    """How many pods of certain classes are on each row, assumed ones included; `view.take(counts)`."""

    __slots__ = ("_counter", "_reservations")

    def __init__(self, counter: PodCounter, reservations: ReservationCache) -> None:
        super().__init__(counter.column)
        self._counter = counter
        self._reservations = reservations

    def as_seen_by(self, cls: PodClass) -> "PodCountsOfOwner":
        """The same less the reserve pods of reservations that pods of the class may allocate from."""
        return PodCountsOfOwner(self._counter, self._reservations, real(cls))

    @property
    def total(self) -> int:
        """The number on all rows, rows without a node included."""
        return int(self._counter.rows.sum())


class ComputedColumn(ABC):
    """A value per row that is computed each time it is read, like a `NodeColumn` to its reader."""

    __slots__ = ()

    @property
    @abstractmethod
    def cells(self) -> NDArray[np.int64]:
        """The values of all rows."""

    @abstractmethod
    def item(self, row: int) -> int:
        """The value of one row, which does not need the others."""

    def __getitem__(self, rows: Any) -> Any:
        return self.cells[rows]

    def take(self, rows: Any) -> Any:
        return self.cells.take(rows)


class PodCountsOfOwner(ComputedColumn):
    """How many pods of certain classes are on each row, less the reserve pods of reservations that
    pods of one class may allocate from."""

    __slots__ = ("_cls", "_counter", "_reservations")

    def __init__(self, counter: PodCounter, reservations: ReservationCache, cls: PodClass) -> None:
        self._counter = counter
        self._reservations = reservations
        self._cls = cls

    @property
    def cells(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._counter.rows.copy()
        for placed in self._reserved():
            for row, pods in placed.items():
                found[row] -= pods
        return found

    def item(self, row: int) -> int:
        reserved = sum(placed.get(row, 0) for placed in self._reserved())
        return self._counter.rows.item(row) - reserved

    def _reserved(self) -> list[dict[int, int]]:
        """How many of these reserve pods are on each row, by class."""
        return [
            reserving.placed
            for reserving in self._reservations.reserving_for(self._cls)
            if self._counter.counts(reserving)
        ]


class TaintColumn(ComputedColumn):
    """A number per row computed from the node's taints, once for each distinct set of taints rather
    than for each node."""

    __slots__ = ("_nodes", "_of", "_reused", "_values")

    def __init__(self, nodes: NodeTable, of: Callable[[TaintSet], int]) -> None:
        self._nodes = nodes
        self._of = of
        self._reused = nodes.taints.reused
        self._values: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The numbers, by the code of the set of taints."""

    @property
    def cells(self) -> NDArray[np.int64]:
        return self._by_set()[self._nodes.taint_set]

    def __getitem__(self, rows: Any) -> Any:
        return self._by_set()[self._nodes.taint_set[rows]]

    def take(self, rows: Any) -> Any:
        return self._by_set().take(self._nodes.taint_set.take(rows))

    def item(self, row: int) -> int:
        return self._by_set().item(self._nodes.taint_set.item(row))

    def _by_set(self) -> NDArray[np.int64]:
        sets = self._nodes.taints
        if self._reused != sets.reused:
            self._reused = sets.reused
            self._values = self._values[:0]
        known = len(self._values)
        if known < len(sets):
            more = [int(self._of(sets[code])) for code in range(known, len(sets))]
            self._values = np.concatenate([self._values, np.array(more, dtype=np.int64)])
        return self._values


class TakenPorts(ComputedColumn):
    """How often the host ports of a class are in use on each row: by pods, and by reservations that its
    pods cannot be allocated from (`ReservedPorts`)."""

    __slots__ = ("_cls", "_nodes", "_ports", "_reserved")

    def __init__(self, nodes: NodeTable, reservations: ReservationCache, cls: PodClass) -> None:
        self._nodes = nodes
        self._ports = nodes.ports
        self._reserved = ReservedPorts(reservations, cls)
        self._cls = cls

    @property
    def cells(self) -> NDArray[np.int64]:
        taken = np.zeros(self._nodes.capacity, dtype=np.int64)
        for port in self._cls.ports:
            for counts in self._ports.conflicts(port):
                taken += counts
        for row, times in self._reserved.everywhere():
            taken[row] -= times
        return taken

    def item(self, row: int) -> int:
        taken = 0
        for port in self._cls.ports:
            for counts in self._ports.conflicts(port):
                taken += counts.item(row)
        return taken - self._reserved.on(row) if taken else 0
