"""Whether a pod would fit a row, as the ledger stands at this moment.

Nodes that are being cleared for other pods of the same or higher priority count those pods as there
already; a pod must fit with them and without them.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cluster import Cluster
from holdfast.core.pods import PodRecord
from holdfast.framework.column import Column
from holdfast.framework.diagnosis import Blame


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
        rows = self._column.diagnosis.resolvable()
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

    def victims(self, row: int, pods: list[PodRecord]) -> list[PodRecord] | tuple[str, ...]:
        ledger, needs = self._cluster.ledger, self._column.needs
        if needs is not None and not ledger.holds.any_on(row) and self._column.suits_row(row):
            amounts = [(need.slot, need.amount) for need in needs]
            removed, lacking = ledger.to_remove(row, amounts, pods, self.rivals(row))
            return tuple(n.text for n in needs if n.slot in lacking) if lacking else removed
        with ledger.transaction():
            for pod in pods:
                ledger.remove(pod)
            if not self.fits(row):
                return self.blame(row).texts
            victims = []
            for pod in pods:
                ledger.place(pod, row)
                if not self.fits(row):
                    ledger.remove(pod)
                    victims.append(pod)
        return victims

    def blame(self, row: int) -> Blame:
        """What stands against the row."""
        self._column.refresh()
        if not self._column.fits_row(row):
            return self._column.diagnosis.blame(row)
        blame = self._blame_with_rivals(row)
        assert blame is not None
        return blame

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
