"""Sums of resource limits per row, counted for a resource once a plugin asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resources import NON_ZERO
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pod_limits import CountedLimit

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster

Sums = NDArray[np.int64]

UNLIMITED = 2**62


class LimitSums:
    """The sums of limits of a cluster, and their maxima."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ceilings: list[Callable[[str, int], int]] = []
        """Each returns the maximum sum of limits for a resource and a row."""
        self.columns: list[Callable[[str], Sums | None]] = []
        """The same for all rows of a resource; None if it has no maximum."""

    def count(self, resource: str) -> CountedLimit:
        """Counts the limits of a resource from now on; returns the slots of the sums."""
        cluster = self._cluster
        counted = cluster.classes.counted
        if resource not in counted:
            table = cluster.nodes
            slot = table.derived_slot("limits", resource)
            scored = table.derived_slot("scored limits", resource) if resource in NON_ZERO else slot
            counted[resource] = CountedLimit(table.pinned_slot(resource), slot, scored)
            cluster.classes.count_limits()
            cluster.ledger.count(frozenset((slot, scored)))
            cluster.reservations.count_limits()
        return counted[resource]

    def allowed(self, slot: int, row: int) -> tuple[str, int]:
        """The name of the sum in a slot, and its maximum on a row; the name is empty if it has none."""
        for resource, counted in self._cluster.classes.counted.items():
            if slot == counted.slot and self.ceilings:
                return f"{resource} limit", min(most(resource, row) for most in self.ceilings)
        return "", 0

    def ceiling(self, slot: int) -> Sums:
        """The maximum of the sum in a slot, for every row; not to be written to."""
        most = np.full(self._cluster.nodes.size, UNLIMITED, dtype=np.int64)
        for resource, counted in self._cluster.classes.counted.items():
            if slot == counted.slot:
                for column in self.columns:
                    cells = column(resource)
                    if cells is not None:
                        np.minimum(most, cells[: len(most)], out=most)
        return most

    def of(self, resource: str) -> Sums:
        """The sum of limits of pods and reservations, by row, whether or not they are counted."""
        counted = self._cluster.classes.counted.get(resource)
        if counted is not None:
            return self._cluster.nodes.claimed[counted.slot, : self._cluster.nodes.size]
        return self.recomputed(resource)

    def recomputed(self, resource: str, scored: bool = False) -> Sums:
        """The same, computed from the pods and reservations on the rows."""
        cluster = self._cluster
        sums = np.zeros(cluster.nodes.size, dtype=np.int64)
        offered, counted = cluster.nodes.pinned_slot(resource), cluster.classes.counted.get(resource)

        def limit(cls: PodClass) -> int:
            return cls.limits.scored(resource) if scored else cls.limits.of(resource)

        for cls in cluster.classes:
            if cls.placed and cls.owner_spec_id < 0 and (each := limit(cls)):
                rows = np.fromiter(cls.placed.keys(), dtype=np.intp)
                sums[rows] += each * np.fromiter(cls.placed.values(), dtype=np.int64)
        for hold in cluster.ledger.holds:
            reservation = hold.pod.reservation
            if counted is not None:
                held = hold.amounts.get(counted.slot, 0)
            else:
                held = max(hold.pod.cls.limits.of(resource), hold.amounts.get(offered, 0))
            allocated_pods = (
                cluster.reservations.allocated_pods(reservation) if reservation is not None else ()
            )
            sums[hold.row] += max(0, held - sum(limit(pod.cls) for pod in allocated_pods))
        return sums

    def ratios(self, more: Iterable[str] = ()) -> dict[str, dict[str, float]]:
        """By node and resource, the sum of limits divided by allocatable: for cpu, memory, all counted
        resources, and those in `more`."""
        nodes = self._cluster.nodes
        found: dict[str, dict[str, float]] = {
            name: {} for name, row in nodes.names() if nodes.alive[row]
        }
        for resource in dict.fromkeys((*NON_ZERO, *self._cluster.classes.counted, *more)):
            sums, offered = self.of(resource).tolist(), nodes.allocatable[nodes.slot(resource)].tolist()
            for name, ratios in found.items():
                row = nodes.row(name)
                if row is not None and offered[row] > 0:
                    ratios[resource] = sums[row] / offered[row]
        return found
