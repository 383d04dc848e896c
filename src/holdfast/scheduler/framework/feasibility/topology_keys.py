"""Topology keys: rows grouped by the facets that topology plugins read.

InterPodAffinity and PodTopologySpread read only facets of a row: its zone, how many matching pods are
in its rack. Rows with equal facets share a *key*. Thousands of nodes have a handful of keys, so
topology filters and scores are computed per key, and a row costs one look-up.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.view import Cells, Facet, Many, Pick, RowValues

_MANY = 256
"""With fewer keys, those that no row has any more are not worth a rebuild."""


class KeyView(Many):
    """A view whose rows are the distinct keys."""

    __slots__ = ("_all", "_none", "_values", "feasible", "rows")

    def __init__(self, values: dict[int, NDArray[np.int64]], keys: int) -> None:
        self._values = values
        self.rows: Cells = np.arange(keys)
        self.feasible: NDArray[np.int64] = np.zeros(keys, dtype=np.int64)
        """How many feasible nodes each key has."""
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
    """The key of every row, and how many rows of each key pass the node and usage filters."""

    def __init__(self, table: NodeTable, facets: Sequence[Facet]) -> None:
        self._table = table
        self._facets = list({id(facet): facet for facet in facets}.values())
        self._id: dict[tuple[int, ...], int] = {}
        self._tuples: list[tuple[int, ...]] = []
        self._view: KeyView | None = None
        self.of: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        """The key of each row."""
        self.fitting: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """How many rows of each key pass the node and usage filters; kept by the column."""

    def rebuild(self, fits: NDArray[np.bool_]) -> None:
        """Computes every row's key. `fits` is over all rows of the table."""
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
        """Rows whose facets changed since the last call; None if all rows have to be looked at."""
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
        """Computes the keys of some rows again."""
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
        """A row began (1) or ceased (-1) to pass the node and usage filters."""
        self.fitting[self.of[row]] += change

    @property
    def crowded(self) -> bool:
        """Whether most keys belong to no row any more, so that a rebuild saves memory."""
        return len(self._tuples) > _MANY and len(self._tuples) > 2 * self._table.size

    def view(self) -> KeyView:
        if self._view is None:
            columns = np.array(self._tuples, dtype=np.int64).reshape(-1, len(self._facets)).T
            values = {id(f): columns[i].copy() for i, f in enumerate(self._facets)}
            self._view = KeyView(values, len(self._tuples))
        return self._view

    def counts(self) -> NDArray[np.int64]:
        return self.fitting[: len(self._tuples)]


class TopologyDependencies:
    """The pod classes that can affect a class's inter-pod affinity or topology spread constraints."""

    def __init__(self, classes: PodClasses, facets: Collection[Facet]) -> None:
        """`facets` are those that the class's filters read."""
        self._classes = classes
        self._facets = facets
        self._known: dict[int, bool] = {}
        self._all: tuple[int, list[PodClass]] = (-1, [])

    def includes(self, cls: PodClass) -> bool:
        known = self._known.get(cls.id)
        if known is None:
            known = self._known[cls.id] = any(facet.counts(cls) for facet in self._facets)
        return known

    def all(self, version: int) -> list[PodClass]:
        """Those classes. `version` is `Epoch.objects`, which moves when a class appears or
        disappears."""
        then, found = self._all
        if then != version:
            found = [cls for cls in self._classes if self.includes(cls)]
            self._all = version, found
        return found
