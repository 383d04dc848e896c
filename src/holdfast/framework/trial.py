"""Whether a pod would fit a row, as the ledger stands at this moment.

Nodes that are being cleared for other pods of the same or higher priority count those pods as there
already; a pod must fit with them and without them, and what stands against a node with them is said
first.
"""

from collections.abc import Iterable
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cluster import Cluster
from holdfast.core.pods import PodRecord
from holdfast.core.slots import PODS
from holdfast.framework.column import Column
from holdfast.framework.counting import count_reservations
from holdfast.framework.diagnosis import FITS, Blame
from holdfast.framework.interface import Need, Order
from holdfast.framework.owned import OwnedColumn


class PodTrial:
    """One pod's attempt at nodes."""

    __slots__ = ("_cluster", "_column", "_pinned", "_pod")

    def __init__(self, cluster: Cluster, column: Column, pod: PodRecord, pinned: bool) -> None:
        self._cluster = cluster
        self._column = column
        self._pod = pod
        self._pinned = pinned

    def resolvable(self) -> NDArray[np.bool_]:
        nodes, rejected = self._cluster.nodes, self._column.rejected
        if rejected is not None:
            return nodes.alive[: nodes.size] & rejected.resolvable
        corrections = self.corrections()
        self._column.refresh()
        rows = self._column.diagnosis.resolvable()
        if corrections:
            rows = rows.copy()
            for row, blame in corrections.items():
                rows[row] = blame.resolvable
        if self._pinned:
            named = nodes.row(self._pod.pin or "")
            rows = rows & (np.arange(nodes.size) == (-1 if named is None else named))
        return rows

    def fits(self, row: int) -> bool:
        self._column.refresh()
        return self._column.fits_row(row) and self._blame_with_rivals(row) is None

    @property
    def is_local(self) -> bool:
        return self._column.is_local

    @property
    def version(self) -> int:
        return self._column.compiled

    def victims(
        self, row: int, pods: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        ledger, needs = self._cluster.ledger, self._column.needs
        if needs is not None and not ledger.holds.any_on(row) and self._column.suits_row(row):
            spare = ledger.spare(row, needs, pods, self.rivals(row))
            lacking = tuple(need.text for need in needs if spare[need.slot] < 0)
            return lacking or ledger.to_remove(spare, spared_first(pods))
        with ledger.transaction():
            for pod in pods:
                ledger.remove(pod)
            if not self.fits(row):
                return self.blame(row).texts
            victims = []
            for pod in spared_first(pods):
                ledger.place(pod, row)
                if not self.fits(row):
                    ledger.remove(pod)
                    victims.append(pod)
        return victims

    def reservations(self) -> str:
        if not isinstance(self._column, OwnedColumn):
            return ""
        return count_reservations(self._cluster, self._column)

    def blame(self, row: int) -> Blame:
        """What stands against the row."""
        blame = self._blame_with_rivals(row)
        if blame is None:
            self._column.refresh()
            fits = self._column.fits_row(row)
            blame = FITS if fits else self._column.diagnosis.blame(row)
        return blame

    def corrections(self) -> dict[int, Blame]:
        """What stands against rows of which the class's diagnosis does not know it: a pod is no rival
        of its own, and where rows depend on each other each must be tried."""
        nodes = self._cluster.nodes
        names: Iterable[str] = self._cluster.nominations
        if self._column.is_local and self._column.diagnosis.contest is not None:
            names = [self._pod.nominated] if self._pod.nominated else []
        rows = [row for row in map(nodes.row, names) if row is not None and nodes.alive[row]]
        return {row: self.blame(row) for row in rows}

    def rivals(self, row: int) -> list[PodRecord]:
        """Pods the row is being cleared for that this pod must not get in the way of."""
        nominated = self._cluster.nominations.get(self._cluster.nodes.name(row), {})
        pod = self._pod
        return [p for p in nominated.values() if p is not pod and p.cls.priority >= pod.cls.priority]

    def _blame_with_rivals(self, row: int) -> Blame | None:
        rivals = self.rivals(row)
        if not rivals:
            return None
        with self._cluster.ledger.transaction():
            for rival in rivals:
                self._cluster.ledger.place(rival, row)
            self._column.refresh()
            blame = None if self._column.fits_row(row) else self._column.diagnosis.blame(row)
        self._column.refresh()
        return blame


class ClassContest:
    """What stands against the nodes that are being cleared for pods at least as important as a class,
    as long as rows do not depend on each other. Kept by the class's diagnosis."""

    def __init__(self, cluster: Cluster, column: Column) -> None:
        self._cluster = cluster
        self._column: Column = proxy(column)  # it owns this, and should go when it is dropped

    def rows(self) -> list[int]:
        nodes = self._cluster.nodes
        rows = map(nodes.row, self._cluster.nominations)
        return [row for row in rows if row is not None and nodes.alive[row]]

    def blame(self, row: int) -> Blame | None:
        nominated = self._cluster.nominations.get(self._cluster.nodes.name(row))
        if not nominated or not self._column.is_local:
            return None
        priority, ledger = self._column.cls.priority, self._cluster.ledger
        rivals = [pod for pod in nominated.values() if pod.cls.priority >= priority]
        if not rivals:
            return None
        needs = self._column.needs
        if needs is not None and not ledger.holds.any_on(row) and self._column.suits_row(row):
            return self._blame_needs(row, needs, rivals)
        with ledger.peek():
            for rival in rivals:
                ledger.place(rival, row)
            blame = self._column.diagnosis.blame(row)
        return blame if blame.plugin else None

    def _blame_needs(self, row: int, needs: tuple[Need, ...], rivals: list[PodRecord]) -> Blame | None:
        spare = self._cluster.ledger.spare(row, needs, (), rivals)
        lacking = [need for need in needs if spare[need.slot] < 0]
        if not lacking:
            return None
        offered = self._cluster.nodes.allocatable
        hopeful = all(n.slot == PODS or n.amount <= offered.item(n.slot, row) for n in lacking)
        return Blame(self._column.needing, tuple(need.text for need in lacking), hopeful)
