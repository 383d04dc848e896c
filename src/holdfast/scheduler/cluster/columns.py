"""Columns: values per row of the node table, which grow with it.

A row is opened for a node, or for a pod or reservation that is seen before its node. A value per row is
kept in a `RowColumn`, which the node table grows before it opens a row beyond its length. So a column
has a cell for every row, whatever opened the row.
"""

from operator import attrgetter
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class RowColumn(Generic[Scalar]):
    """A value, or an array of values, for every row.

    `cells` is replaced when the table grows, so it must be read each time and never kept.
    """

    __slots__ = ("__weakref__", "_axis", "_fill", "cells", "starts_over")

    def __init__(
        self, cells: NDArray[Scalar], fill: Any, axis: int = 0, starts_over: bool = False
    ) -> None:
        self.cells = cells
        self._fill = fill
        self._axis = axis
        self.starts_over = starts_over
        """Whether a row's cell is reset to the first value when the row is given to another node."""

    def start_over(self, row: int) -> None:
        """Resets a cell to the first value."""
        self.cells[row] = self._fill

    def grow(self, capacity: int, axis: int | None = None) -> None:
        """Makes it at least this long along its rows, or along another axis."""
        along = self._axis if axis is None else axis
        more = capacity - self.cells.shape[along]
        if more > 0:
            pads = [(0, 0)] * self.cells.ndim
            pads[along] = (0, more)
            self.cells = np.pad(self.cells, pads, constant_values=self._fill)


def cells_of(name: str) -> Any:
    """A property that returns the cells of the column in the attribute of this name."""
    return property(attrgetter(f"{name}.cells"))


class RowColumns:
    """The columns of one node table, weakly referenced."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: WeakSet[RowColumn[Any]] = WeakSet()

    def __len__(self) -> int:
        return len(self._kept)

    def new(
        self,
        dtype: type[Scalar],
        fill: Any = 0,
        *,
        lead: tuple[int, ...] = (),
        trail: tuple[int, ...] = (),
        starts_over: bool = False,
    ) -> RowColumn[Scalar]:
        """A column filled with one value. `lead` and `trail` are the axes before and after the rows;
        `starts_over` is for columns without such axes whose owner does not reset cells itself."""
        cells: NDArray[Scalar] = np.full((*lead, self._capacity, *trail), fill, dtype=dtype)
        column = RowColumn(cells, fill, len(lead), starts_over)
        self._kept.add(column)
        return column

    def row_reopened(self, row: int) -> None:
        """Resets the cells of a row that is given to another node."""
        for column in list(self._kept):
            if column.starts_over:
                column.start_over(row)

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for column in list(self._kept):
            column.grow(capacity)


def distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each row once, in ascending order. For few rows this is ten times as fast as `np.unique`, which
    also imports a large part of numpy."""
    if len(rows) < 2:
        return rows
    ordered = np.sort(rows)
    first = np.empty(len(ordered), dtype=np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
