"""Rows of the node table as a plugin sees them: all of them, some, or one.

A plugin writes its arithmetic once. Over `All` and `Some` it works on arrays; over `One` the same
expressions work on plain ints and bools, which for a single row is ten times faster than numpy.
So formulas use operators (`+ - * // < & |`) and what a view offers where Python and numpy differ
(`negate`, `where`, `divide`, `minimum`, `maximum`, `clip`, `whole`), and never `if` on what it gave.
Arrays that are not copies are read-only, so that `x += 1` cannot write to the table.

For some hundred rows it is the number of numpy operations that costs, not the number of cells. So
formulas worked out for every pod ask for several slots at once, where the view is not `single`,
and compute on a matrix with a line per slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.node_table import NodeTable

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.pod_classes import PodClass

Cells = Any
"""What a view gives: an int or bool for one row, an array for several."""

Pick = int | slice | NDArray[np.intp]
"""A slot; for several rows also several slots at once, whose cells come as the lines of a matrix."""


def several(slots: Sequence[int]) -> slice | NDArray[np.intp]:
    """Picks these slots at once; neighbours without copying anything."""
    first = slots[0]
    if list(slots) == list(range(first, first + len(slots))):
        return slice(first, first + len(slots))
    return np.array(slots, dtype=np.intp)


def upright(values: Sequence[int]) -> NDArray[np.int64]:
    """A value for each line of a matrix."""
    return np.array(values, dtype=np.int64).reshape(-1, 1)


def read_only(cells: Cells) -> Cells:
    """The same array, which nobody writes to by this name."""
    cells.flags.writeable = False
    return cells


class RowValues(Protocol):
    """A value for every row: an array, or a column that is kept up to date."""

    def __getitem__(self, rows: Any, /) -> Any: ...
    def take(self, indices: Any, /) -> Any: ...
    def item(self, row: int, /) -> Any: ...


class Facet(Protocol):
    """A small number each row has, kept up to date."""

    @property
    def cells(self) -> NDArray[Any]:
        """Over all rows."""

    def refresh(self) -> list[int] | None:
        """Catches up; the rows whose number changed since the last call, None if any may have."""

    def counts(self, cls: PodClass) -> bool:
        """Whether pods of the class make a difference to it, or to what is made of it."""


class View(Protocol):
    """Each method answers for the rows of the view, in their order."""

    single: ClassVar[bool]
    """Whether it is of one row, whose cells are plain numbers."""

    @property
    def rows(self) -> Cells:
        """The numbers of the view's rows."""

    @property
    def holds(self) -> Cells:
        """The reservation that may be drawn on on each row, by the index of its hold; None if the rows
        are looked at without."""

    def __len__(self) -> int:
        """How many rows it has."""

    def allocatable(self, slot: Pick) -> Cells: ...
    def claimed(self, slot: Pick) -> Cells: ...
    def free(self, slot: Pick) -> Cells:
        """What is allocatable and not claimed; negative where a row is oversold."""

    def take(self, column: RowValues) -> Cells:
        """The view's rows of any column over all rows."""

    def facet(self, facet: Facet) -> Cells: ...
    def full(self, value: Any) -> Cells:
        """The same answer for every row."""

    def negate(self, cells: Cells) -> Cells:
        """Where the cells are not true."""

    def where(self, condition: Cells, yes: Cells, no: Cells) -> Cells:
        """`yes` where the condition holds, `no` elsewhere. Both are worked out for every row."""

    def divide(self, dividend: Cells, divisor: Cells, otherwise: Any = 0) -> Cells:
        """The quotient rounded down, as `//` has it; `otherwise` where the divisor is 0."""

    def minimum(self, cells: Cells, others: Cells) -> Cells:
        """The lesser of two, row by row."""

    def maximum(self, cells: Cells, others: Cells) -> Cells:
        """The greater of two, row by row."""

    def clip(self, cells: Cells, low: Cells, high: Cells) -> Cells:
        """The cells, but at least `low` and at most `high`."""

    def whole(self, cells: Cells) -> Cells:
        """The cells without what is behind the point."""


class Many:
    """Arithmetic on the cells of several rows."""

    __slots__ = ()
    single: ClassVar[bool] = False
    holds: ClassVar[Cells] = None

    def negate(self, cells: Cells) -> Cells:
        return np.logical_not(cells)

    def where(self, condition: Cells, yes: Cells, no: Cells) -> Cells:
        return np.where(condition, yes, no)

    def divide(self, dividend: Cells, divisor: Cells, otherwise: Any = 0) -> Cells:
        nothing = np.equal(divisor, 0)
        return np.where(nothing, otherwise, np.floor_divide(dividend, np.where(nothing, 1, divisor)))

    def minimum(self, cells: Cells, others: Cells) -> Cells:
        return np.minimum(cells, others)

    def maximum(self, cells: Cells, others: Cells) -> Cells:
        return np.maximum(cells, others)

    def clip(self, cells: Cells, low: Cells, high: Cells) -> Cells:
        return np.minimum(np.maximum(cells, low), high)

    def whole(self, cells: Cells) -> Cells:
        return np.asarray(cells).astype(np.int64)


class All(Many):
    __slots__ = ("_size", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._size = table.size
        self._table = table

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> Cells:
        return np.arange(self._size)

    def allocatable(self, slot: Pick) -> Cells:
        return read_only(self._table.allocatable[slot, : self._size])

    def claimed(self, slot: Pick) -> Cells:
        return read_only(self._table.claimed[slot, : self._size])

    def free(self, slot: Pick) -> Cells:
        table, size = self._table, self._size
        return table.allocatable[slot, :size] - table.claimed[slot, :size]

    def take(self, column: RowValues) -> Cells:
        return read_only(column[: self._size])

    def facet(self, facet: Facet) -> Cells:
        return read_only(facet.cells[: self._size])

    def full(self, value: Any) -> Cells:
        return np.full(self._size, value)


class Some(Many):
    """Rows whose amounts of all slots were gathered, which costs less at once than slot by slot."""

    __slots__ = ("_allocatable", "_claimed", "_free", "rows")

    @property
    def holds(self) -> Cells:
        return None

    def __init__(self, table: NodeTable, rows: NDArray[np.intp]) -> None:
        used = len(table.slots)
        self._allocatable = read_only(table.allocatable[:used].take(rows, axis=1))
        self._claimed = read_only(table.claimed[:used].take(rows, axis=1))
        self._free: Cells = None
        self.rows: Cells = read_only(rows[:])

    def __len__(self) -> int:
        return len(self.rows)

    def allocatable(self, slot: Pick) -> Cells:
        return self._allocatable[slot]

    def claimed(self, slot: Pick) -> Cells:
        return self._claimed[slot]

    def free(self, slot: Pick) -> Cells:
        if self._free is None:
            self._free = read_only(self._allocatable - self._claimed)
        return self._free[slot]

    def take(self, column: RowValues) -> Cells:
        return column.take(self.rows)

    def facet(self, facet: Facet) -> Cells:
        return facet.cells.take(self.rows)

    def full(self, value: Any) -> Cells:
        return np.full(len(self.rows), value)


class One:
    __slots__ = ("_allocatable", "claims", "rows")
    single: ClassVar[bool] = True

    @property
    def holds(self) -> Cells:
        return None

    def __init__(self, table: NodeTable, row: int) -> None:
        self._allocatable: list[int] = table.allocatable[:, row].tolist()
        self.claims: list[int] = table.claimed[:, row].tolist()
        """By slot; a look at it costs less than `claimed`."""
        self.rows: Cells = row

    def __len__(self) -> int:
        return 1

    def allocatable(self, slot: Any) -> Cells:
        return self._allocatable[slot]

    def claimed(self, slot: Any) -> Cells:
        return self.claims[slot]

    def free(self, slot: Any) -> Cells:
        return self._allocatable[slot] - self.claims[slot]

    def take(self, column: RowValues) -> Cells:
        return column.item(self.rows)

    def facet(self, facet: Facet) -> Cells:
        return facet.cells.item(self.rows)

    def full(self, value: Any) -> Cells:
        return value

    def negate(self, cells: Cells) -> Cells:
        return not cells

    def where(self, condition: Cells, yes: Cells, no: Cells) -> Cells:
        return yes if condition else no

    def divide(self, dividend: Cells, divisor: Cells, otherwise: Any = 0) -> Cells:
        return dividend // divisor if divisor != 0 else otherwise

    def minimum(self, cells: Cells, others: Cells) -> Cells:
        return cells if cells < others else others

    def maximum(self, cells: Cells, others: Cells) -> Cells:
        return cells if cells > others else others

    def clip(self, cells: Cells, low: Cells, high: Cells) -> Cells:
        raised = cells if cells > low else low
        return raised if raised < high else high

    def whole(self, cells: Cells) -> Cells:
        return int(cells)


class OneOfMany(Many):
    """One row, or one as an owner sees it, as if it were one of several: all its cells are arrays."""

    __slots__ = ("_one", "rows")

    def __init__(self, one: One) -> None:
        self._one = one
        self.rows: Cells = np.array([one.rows])

    def __len__(self) -> int:
        return 1

    @property
    def holds(self) -> Cells:
        return None if self._one.holds is None else np.array([self._one.holds])

    def allocatable(self, slot: Any) -> Cells:
        return _lines(slot, self._one.allocatable)

    def claimed(self, slot: Any) -> Cells:
        return _lines(slot, self._one.claimed)

    def free(self, slot: Any) -> Cells:
        return _lines(slot, self._one.free)

    def take(self, column: RowValues) -> Cells:
        return column.take(self.rows)

    def facet(self, facet: Facet) -> Cells:
        return facet.cells.take(self.rows)

    def full(self, value: Any) -> Cells:
        return np.full(1, value)


def _lines(slot: Any, of: Any) -> Cells:
    """A cell, or one for each of several slots."""
    if isinstance(slot, slice):
        slot = range(*slot.indices(slot.stop))
    if isinstance(slot, int | np.integer):
        return read_only(np.array([of(slot)]))
    return read_only(np.array([[of(each)] for each in slot]))
