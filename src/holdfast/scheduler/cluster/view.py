"""Rows of the node table as a plugin sees them: all of them, some, or one.

Mostly a plugin writes its arithmetic once. Over `All` and `Some` it works on arrays; over `One` the
same expressions work on plain ints and bools, which for a single row is ten times faster than numpy.
So formulas use operators (`+ - * // < & |`), the view's methods where Python and numpy differ
(`negate`, `where`, `divide`, `minimum`, `maximum`, `clip`, `whole`), and never `if` on a result.
Arrays that are not copies are read-only, so that `x += 1` cannot write to the table.

For a few hundred rows the cost is the number of numpy operations, not the number of cells. So formulas
that are computed for every pod read several slots at once, if the view is not `single`, and compute on
a matrix with a line per slot. They are then written twice, and must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass

Cells = Any
"""A result of a view: an int or bool for one row, an array for several."""

Pick = int | slice | NDArray[np.intp]
"""A slot; for several rows also several slots, whose cells are the lines of a matrix."""


def several(slots: Sequence[int]) -> slice | NDArray[np.intp]:
    """An index of these slots; a slice, which copies nothing, if they are consecutive."""
    first = slots[0]
    if list(slots) == list(range(first, first + len(slots))):
        return slice(first, first + len(slots))
    return np.array(slots, dtype=np.intp)


def upright(values: Sequence[int]) -> NDArray[np.int64]:
    """The values as a column vector: one for each line of a matrix."""
    return np.array(values, dtype=np.int64).reshape(-1, 1)


def read_only(cells: Cells) -> Cells:
    """The array, made read-only."""
    cells.setflags(False)  # `write`: by position it takes a quarter of the time of `flags.writeable`
    return cells


class RowValues(Protocol):
    """A value for every row: an array, or a `RowColumn` that grows with the table."""

    def __getitem__(self, rows: Any, /) -> Any: ...
    def take(self, indices: Any, /) -> Any: ...
    def item(self, row: int, /) -> Any: ...


class Facet(Protocol):
    """A small number per row that topology filters and scores depend on, such as its domain."""

    @property
    def cells(self) -> NDArray[Any]:
        """The numbers of all rows."""

    def refresh(self) -> list[int] | None:
        """Updates the cells; returns the rows whose number changed since the last call, None if any may
        have."""

    def counts(self, cls: PodClass) -> bool:
        """Whether pods of the class can change the facet, or a sum that is looked up by it."""


class View(Protocol):
    """Rows of the node table. Each method returns the cells of the view's rows, in their order."""

    single: ClassVar[bool]
    """Whether it is a view of one row, whose cells are plain numbers."""

    @property
    def rows(self) -> Cells:
        """The numbers of the view's rows."""

    @property
    def entries(self) -> Cells:
        """The reservation the pod would be allocated from on each row, by its index in the reservation
        table; None if the view is without reservations."""

    def __len__(self) -> int:
        """How many rows it has."""

    def allocatable(self, slot: Pick) -> Cells:
        """The allocatable amount of the nodes."""

    def claimed(self, slot: Pick) -> Cells:
        """Requests of pods, plus the remaining amounts of reservations."""

    def free(self, slot: Pick) -> Cells:
        """What is allocatable and not claimed; negative where a row is over-claimed."""

    def take(self, column: RowValues) -> Cells:
        """The cells of a column over all rows."""

    def facet(self, facet: Facet) -> Cells:
        """The cells of a facet."""

    def full(self, value: Any) -> Cells:
        """The same value for every row."""

    def negate(self, cells: Cells) -> Cells:
        """Logical not."""

    def where(self, condition: Cells, yes: Cells, no: Cells) -> Cells:
        """`yes` where the condition holds, `no` elsewhere. Both are computed for every row."""

    def divide(self, dividend: Cells, divisor: Cells, otherwise: Any = 0) -> Cells:
        """The quotient rounded down, like `//`; `otherwise` where the divisor is 0."""

    def minimum(self, cells: Cells, others: Cells) -> Cells:
        """The smaller of two values, per row."""

    def maximum(self, cells: Cells, others: Cells) -> Cells:
        """The larger of two values, per row."""

    def clip(self, cells: Cells, low: Cells, high: Cells) -> Cells:
        """The cells, limited to the range from `low` to `high`."""

    def whole(self, cells: Cells) -> Cells:
        """The cells truncated toward zero."""


class Many:
    """Arithmetic on the cells of several rows."""

    __slots__ = ()
    single: ClassVar[bool] = False
    entries: ClassVar[Cells] = None

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
    """All rows of the table."""

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
    """Some rows. The amounts of all slots are gathered at once, which is faster than slot by slot."""

    __slots__ = ("_allocatable", "_claimed", "_free", "rows")

    @property
    def entries(self) -> Cells:
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
    """One row, whose cells are plain numbers."""

    __slots__ = ("_allocatable", "claims", "rows")
    single: ClassVar[bool] = True

    @property
    def entries(self) -> Cells:
        return None

    def __init__(self, table: NodeTable, row: int) -> None:
        self._allocatable: list[int] = table.allocatable[:, row].tolist()
        self.claims: list[int] = table.claimed[:, row].tolist()
        """By slot; faster to read than `claimed`."""
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
    """One row as an array of length one, for formulas that need arrays."""

    __slots__ = ("_one", "rows")

    def __init__(self, one: One) -> None:
        self._one = one
        self.rows: Cells = np.array([one.rows])

    def __len__(self) -> int:
        return 1

    @property
    def entries(self) -> Cells:
        return None if self._one.entries is None else np.array([self._one.entries])

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
    """The cell of one slot, or a matrix with the cells of several slots."""
    if isinstance(slot, slice):
        slot = range(*slot.indices(slot.stop))
    if isinstance(slot, int | np.integer):
        return read_only(np.array([of(slot)]))
    return read_only(np.array([[of(each)] for each in slot]))
