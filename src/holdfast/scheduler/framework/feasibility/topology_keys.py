"""Rows told apart by their facets only.

Topology plugins see of a row no more than its facets: its zone, how many pods of a kind are in its
rack. Rows with equal facets share a *key*. A cluster of thousands of nodes has a handful of keys, so a
question about domains is put to keys, and a row costs one look-up of its key.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.view import Cells, Facet, Many, Pick, RowValues

_MANY = 256


class KeyView(Many):
    """Distinct keys in the place of rows."""

    __slots__ = ("_all", "_none", "_values", "feasible", "rows")

    def __init__(self, values: dict[int, NDArray[np.int64]], keys: int) -> None:
        self._values = values
        self.rows: Cells = np.arange(keys)
        self.feasible: NDArray[np.int64] = np.zeros(keys, dtype=np.int64)
        """How many nodes of each key passed all filters."""
        self._all, self._none = np.ones(keys, dtype=np.bool_), np.zeros(keys, dtype=np.bool_)
        for shared in (self._all, self._none):
            shared.flags.writeable = False

    def __len__(self) -> int:
        return len(self.rows)

    def facet(self, facet: Facet) -> Cells:
        return self._values[id(facet)]

    def full(self, value: Any) -> Cells:
        if value is True or value is False:
            return self._all if value else self._none
        return np.full(len(self.rows), value)

    def allocatable(self, slot: Pick) -> Cells:
        raise TypeError("a topology plugin sees facets, not quantities")

    claimed = free = allocatable

    def take(self, column: RowValues) -> Cells:
        raise TypeError("a topology plugin sees facets, not columns")


class TopologyKeys:
    """The key of every row, and how many rows that fit have each key."""

    def __init__(self, table: NodeTable, facets: Sequence[Facet]) -> None:
        self._table = table
        self._facets = list({id(facet): facet for facet in facets}.values())
        self._id: dict[tuple[int, ...], int] = {}
        self._tuples: list[tuple[int, ...]] = []
        self._view: KeyView | None = None
        self.of: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        """The key of each row."""
        self.fitting: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """How many rows of each key fit, as far as the column told."""

    def rebuild(self, fits: NDArray[np.bool_]) -> None:
        """Works out every row's key. `fits` is over all rows of the table."""
        size = self._table.size
        for facet in self._facets:
            facet.refresh()
        cells = np.stack([facet.cells[:size] for facet in self._facets])
        distinct, inverse = np.unique(cells, axis=1, return_inverse=True)
        self._tuples = [tuple(column) for column in distinct.T.tolist()]
        self._id = {values: key for key, values in enumerate(self._tuples)}
        self.of = np.zeros(self._table.capacity, dtype=np.intp)
        self.of[:size] = inverse.reshape(-1)
        self.fitting = np.bincount(self.of[:size][fits[:size]], minlength=len(self._tuples))
        self._view = None

    def stale_rows(self) -> list[int] | None:
        """Rows whose facets changed since the last call; None if any may have."""
        rows: list[int] = []
        everything = False
        for facet in self._facets:
            changed = facet.refresh()
            if changed is None:
                everything = True
            else:
                rows += changed
        return None if everything else rows

    def rekey(self, rows: list[int], fits: NDArray[np.bool_]) -> None:
        """Works out the keys of some rows anew."""
        for row in rows:
            values = tuple([int(facet.cells[row]) for facet in self._facets])
            key = self._id.get(values)
            if key is None:
                key = self._id[values] = len(self._tuples)
                self._tuples.append(values)
                if key >= len(self.fitting):
                    self.fitting = np.pad(self.fitting, (0, max(16, len(self.fitting))))
                self._view = None
            before = int(self.of[row])
            if key != before:
                self.of[row] = key
                if fits[row]:
                    self.fitting[before] -= 1
                    self.fitting[key] += 1

    def refit(self, row: int, change: int) -> None:
        """A row came to fit (1) or ceased to (-1)."""
        self.fitting[self.of[row]] += change

    @property
    def crowded(self) -> bool:
        """Whether most keys belong to no row any more and a rebuild is worth it."""
        return len(self._tuples) > _MANY and len(self._tuples) > 2 * self._table.size

    def view(self) -> KeyView:
        if self._view is None:
            columns = np.array(self._tuples, dtype=np.int64).reshape(-1, len(self._facets)).T
            values = {id(f): columns[i].copy() for i, f in enumerate(self._facets)}
            self._view = KeyView(values, len(self._tuples))
        return self._view

    def counts(self) -> NDArray[np.int64]:
        return self.fitting[: len(self._tuples)]
