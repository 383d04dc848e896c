"""Values kept per row of the node table.

Rows are opened by nodes, and by pods and reservations that are seen before their node. Whoever keeps a
value per row keeps it in a `RowColumn`, which the table makes longer before it hands out a row beyond
its length. So a column always has a cell for every row there is, whatever opened the row.
"""

from operator import attrgetter
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class RowColumn(Generic[Scalar]):
    """A value, or an array of values, for every row.

    `cells` is replaced when the table grows: it is read anew each time, never kept.
    """

    __slots__ = ("__weakref__", "_axis", "_fill", "cells", "starts_over")

    def __init__(
        self, cells: NDArray[Scalar], fill: Any, axis: int = 0, starts_over: bool = False
    ) -> None:
        self.cells = cells
        self._fill = fill
        self._axis = axis
        self.starts_over = starts_over
        """Whether a row that comes to be another node's has the first value again."""

    def start_over(self, row: int) -> None:
        self.cells[row] = self._fill

    def grow(self, capacity: int, axis: int | None = None) -> None:
        """Makes it at least so long along its rows, or along another axis."""
        along = self._axis if axis is None else axis
        more = capacity - self.cells.shape[along]
        if more > 0:
            pads = [(0, 0)] * self.cells.ndim
            pads[along] = (0, more)
            self.cells = np.pad(self.cells, pads, constant_values=self._fill)


def cells_of(name: str) -> Any:
    """The cells of the column that an object keeps under this name, as an attribute of it."""
    return property(attrgetter(f"{name}.cells"))


class RowColumns:
    """The columns over the rows of one table, for as long as somebody keeps them."""

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
        `starts_over` is for columns without such axes that nobody else clears."""
        cells: NDArray[Scalar] = np.full((*lead, self._capacity, *trail), fill, dtype=dtype)
        column = RowColumn(cells, fill, len(lead), starts_over)
        self._kept.add(column)
        return column

    def row_reopened(self, row: int) -> None:
        """A row that was another node's before is handed out again."""
        for column in list(self._kept):
            if column.starts_over:
                column.start_over(row)

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for column in list(self._kept):
            column.grow(capacity)


def distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each row once, the lowest first. For the few there mostly are this is ten times as fast as
    `np.unique`, which also loads a good deal of numpy that nobody needs."""
    if len(rows) < 2:
        return rows
    ordered = np.sort(rows)
    first = np.empty(len(ordered), dtype=np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
