"""Rows of the node table as a plugin sees them: all of them, some, or one.

A plugin writes its arithmetic once. Over `All` and `Some` it works on arrays; over `One` the same
expressions work on plain ints and bools, which for a single row is ten times faster than numpy.
So formulas use operators (`+ - * // < & |`) or numpy functions, and never `if` on what a view gave.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.core.nodes import NodeTable

Cells = Any
"""What a view gives: an int or bool for one row, an array for several."""


class View(Protocol):
    """Each method answers for the rows of the view, in their order."""

    @property
    def rows(self) -> Cells:
        """The numbers of the view's rows."""

    def allocatable(self, slot: int) -> Cells: ...
    def claimed(self, slot: int) -> Cells: ...
    def take(self, column: NDArray[Any]) -> Cells:
        """The view's rows of any column over all rows."""

    def full(self, value: bool) -> Cells:
        """The same answer for every row."""


class All:
    __slots__ = ("_size", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._size = table.size

    @property
    def rows(self) -> Cells:
        return np.arange(self._size)

    def allocatable(self, slot: int) -> Cells:
        return self._table.allocatable[slot, : self._size]

    def claimed(self, slot: int) -> Cells:
        return self._table.claimed[slot, : self._size]

    def take(self, column: NDArray[Any]) -> Cells:
        return column[: self._size]

    def full(self, value: bool) -> Cells:
        return np.full(self._size, value)


class Some:
    __slots__ = ("_table", "rows")

    def __init__(self, table: NodeTable, rows: NDArray[np.intp]) -> None:
        self._table = table
        self.rows: Cells = rows

    def allocatable(self, slot: int) -> Cells:
        return self._table.allocatable[slot].take(self.rows)

    def claimed(self, slot: int) -> Cells:
        return self._table.claimed[slot].take(self.rows)

    def take(self, column: NDArray[Any]) -> Cells:
        return column.take(self.rows)

    def full(self, value: bool) -> Cells:
        return np.full(len(self.rows), value)


class One:
    __slots__ = ("_allocatable", "_claimed", "rows")

    def __init__(self, table: NodeTable, row: int) -> None:
        self._allocatable = table.allocatable
        self._claimed = table.claimed
        self.rows: Cells = row

    def allocatable(self, slot: int) -> Cells:
        return self._allocatable.item(slot, self.rows)

    def claimed(self, slot: int) -> Cells:
        return self._claimed.item(slot, self.rows)

    def take(self, column: NDArray[Any]) -> Cells:
        return column.item(self.rows)

    def full(self, value: bool) -> Cells:
        return value
