"""Rows that would do for a class, were they not being cleared for pods that come first.

A pod for which a node is being cleared counts as there already, for pods of the same or lower priority:
they must fit with it as well as without it. Which rows are out of the question for that reason is kept
per class, and looked at again only where something changed.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cluster import Cluster
from holdfast.core.pods import PodRecord
from holdfast.framework.column import Column
from holdfast.framework.diagnosis import Blame


def rivals(cluster: Cluster, row: int, priority: int, but: PodRecord | None = None) -> list[PodRecord]:
    """Pods the row is being cleared for that a pod of this priority must not get in the way of."""
    nominated = cluster.nominations.get(cluster.nodes.name(row))
    if nominated is None:
        return []
    return [pod for pod in nominated.values() if pod is not but and pod.cls.priority >= priority]


def blame_with(cluster: Cluster, column: Column, row: int, others: list[PodRecord]) -> Blame | None:
    """What stands against a row that would do otherwise, once these pods are there too."""
    if not others:
        return None
    ledger, needs = cluster.ledger, column.needs
    if needs is not None:
        spare = ledger.spare(row, needs, (), others)
        lacking = tuple(need.text for need in needs if spare[need.slot] < 0)
        return Blame(column.needing, lacking, True) if lacking else None
    with ledger.transaction():
        for other in others:
            ledger.place(other, row)
        column.refresh()
        blame = None if column.fits_row(row) else column.diagnosis.blame(row)
    column.refresh()
    return blame


class Contested:
    """Of one column, which must be local: what holds for a row must not depend on other rows."""

    __slots__ = ("_blames", "_compiled", "_counts", "_nodes", "_usage")

    def __init__(self) -> None:
        self._blames: dict[int, Blame] = {}
        self._counts: Counter[Blame] = Counter()
        self._usage = self._nodes = self._compiled = -1

    def __contains__(self, row: int) -> bool:
        return row in self._blames

    def __len__(self) -> int:
        return len(self._blames)

    def rows(self) -> NDArray[np.intp]:
        return np.fromiter(self._blames, dtype=np.intp, count=len(self._blames))

    def blame(self, row: int) -> Blame:
        """Why a row that is contested is out of the question."""
        return self._blames[row]

    def counts(self) -> Counter[Blame]:
        """How many rows are out of the question for which reason."""
        return self._counts.copy()

    def catch_up(self, cluster: Cluster, column: Column) -> None:
        """Looks again where something changed. The column must be up to date."""
        usage, nodes = cluster.ledger.changed, cluster.nodes_changed
        if (usage.end, nodes.end, column.compiled) == (self._usage, self._nodes, self._compiled):
            return
        for row in self._stale(cluster, column):
            before = self._blames.pop(row, None)
            if before is not None:
                self._counts[before] -= 1
            if column.fits_row(row):
                others = rivals(cluster, row, column.cls.priority)
                blame = blame_with(cluster, column, row, others)
                if blame is not None:
                    self._blames[row] = blame
                    self._counts[blame] += 1
        self._usage, self._nodes, self._compiled = usage.end, nodes.end, column.compiled

    def _stale(self, cluster: Cluster, column: Column) -> Iterable[int]:
        table, nominations = cluster.nodes, cluster.nominations
        known = self._compiled == column.compiled
        used = cluster.ledger.changed.since(self._usage) if known else None
        moved = cluster.nodes_changed.since(self._nodes) if known else None
        few = len(nominations) + len(self._blames)
        if used is None or moved is None or len(used) + len(moved) > 2 * few:
            named = (table.row(name) for name in nominations)
            return {row for row in named if row is not None} | self._blames.keys()
        return set(used.tolist()).union(moved.tolist())
