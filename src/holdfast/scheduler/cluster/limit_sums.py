"""Sums of resource limits per row, counted for a resource once a plugin asks for it."""

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resources import NON_ZERO
from holdfast.scheduler.cluster.ledger import Ledger
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.pod_limits import CountedLimit

Sums = NDArray[np.int64]

UNLIMITED = 2**62


class LimitSums:
    """The sums of limits of a cluster, and their maxima."""

    def __init__(self, nodes: NodeTable, classes: PodClasses, ledger: Ledger) -> None:
        self._nodes = nodes
        self._classes = classes
        self._ledger = ledger
        self.on_counted: list[Callable[[], None]] = []
        """Called when the limits of another resource are counted from now on."""
        self.ceilings: list[Callable[[str, int], int]] = []
        """Each returns the maximum sum of limits for a resource and a row."""
        self.columns: list[Callable[[str], Sums | None]] = []
        """The same for all rows of a resource; None if it has no maximum."""
        self.valid: list[Callable[[], NDArray[np.bool_]]] = []
        """Each returns the rows of nodes whose maxima can be read."""

    def count(self, resource: str) -> CountedLimit:
        """Counts the limits of a resource from now on; returns the slots of the sums."""
        counted = self._classes.counted
        if resource not in counted:
            table = self._nodes
            slot = table.derived_slot("limits", resource)
            scored = table.derived_slot("scored limits", resource) if resource in NON_ZERO else slot
            counted[resource] = CountedLimit(table.pinned_slot(resource), slot, scored)
            self._classes.count_limits()
            self._ledger.count(frozenset((slot, scored)))
            for notify in self.on_counted:
                notify()
        return counted[resource]

    def allowed(self, slot: int, row: int) -> tuple[str, int]:
        """The name of the sum in a slot, and its maximum on a row; the name is empty if it has none."""
        for resource, counted in self._classes.counted.items():
            if slot == counted.slot and self.ceilings:
                return f"{resource} limit", min(most(resource, row) for most in self.ceilings)
        return "", 0

    def ceiling(self, slot: int) -> Sums:
        """The maximum of the sum in a slot, for every row; not to be written to."""
        most = np.full(self._nodes.size, UNLIMITED, dtype=np.int64)
        for resource, counted in self._classes.counted.items():
            if slot == counted.slot:
                for column in self.columns:
                    cells = column(resource)
                    if cells is not None:
                        np.minimum(most, cells[: len(most)], out=most)
        return most

    def is_bounded(self, slot: int) -> bool:
        """Whether a slot has a capacity: that of a resource, or the maximum of a sum of limits."""
        if self._nodes.slots.name(slot):
            return True
        return any(slot == each.slot for each in self._classes.counted.values())

    def capacity(self, slot: int) -> Sums:
        """The capacity of every row for the amounts in a slot: what is allocatable of a resource, or
        the maximum of a sum of limits; not to be written to."""
        if self._nodes.slots.name(slot):
            return self._nodes.allocatable[slot, : self._nodes.size]
        return self.ceiling(slot)

    def capacity_on(self, slot: int, row: int) -> int:
        """The same for one row."""
        if self._nodes.slots.name(slot):
            return int(self._nodes.allocatable.item(slot, row))
        name, most = self.allowed(slot, row)
        return most if name else UNLIMITED

    def free(self, slot: int) -> Sums:
        """What is free of a slot on every row."""
        free: Sums = self.capacity(slot) - self._nodes.claimed[slot, : self._nodes.size]
        return free

    def free_on(self, slot: int, row: int) -> int:
        """What is free of a slot on a row; negative where it is over-claimed."""
        return self.capacity_on(slot, row) - int(self._nodes.claimed.item(slot, row))

    def name(self, slot: int) -> str:
        """The name of a slot in messages, such as `cpu` or `cpu limit`; empty if it has none."""
        for resource, counted in self._classes.counted.items():
            if slot == counted.slot:
                return f"{resource} limit"
        return self._nodes.slots.name(slot)

    def of(self, resource: str) -> Sums:
        """The sum of limits of pods and reservations, by row, whether or not they are counted."""
        counted = self._classes.counted.get(resource)
        if counted is not None:
            return self._nodes.claimed[counted.slot, : self._nodes.size]
        return self.recomputed(resource)

    def recomputed(self, resource: str, scored: bool = False) -> Sums:
        """The same, computed from the pods and reservations on the rows."""
        sums = np.zeros(self._nodes.size, dtype=np.int64)
        offered, counted = self._nodes.pinned_slot(resource), self._classes.counted.get(resource)

        def limit(cls: PodClass) -> int:
            return cls.limits.scored(resource) if scored else cls.limits.of(resource)

        for cls in self._classes:
            if cls.placed and cls.owner_spec_id < 0 and (each := limit(cls)):
                rows = np.fromiter(cls.placed.keys(), dtype=np.intp)
                sums[rows] += each * np.fromiter(cls.placed.values(), dtype=np.int64)
        allocated: Counter[str] = Counter()
        for row, pods in self._ledger.pods.items() if len(self._ledger.reservations) else ():
            for pod in pods.values():
                found = (
                    self._ledger.reservations.get(pod.reservation_uid) if pod.reservation_uid else None
                )
                if found is not None and found.row == row:
                    allocated[pod.reservation_uid] += limit(pod.cls)
        for entry in self._ledger.reservations:
            if counted is not None:
                held = entry.amounts.get(counted.slot, 0)
            else:
                held = max(entry.pod.cls.limits.of(resource), entry.amounts.get(offered, 0))
            sums[entry.row] += max(0, held - allocated.get(entry.pod.uid, 0))
        return sums

    def ratios(self, more: Iterable[str] = ()) -> dict[str, dict[str, float]]:
        """By node and resource, the sum of limits divided by allocatable: for cpu, memory, all counted
        resources, and those in `more`."""
        nodes = self._nodes
        found: dict[str, dict[str, float]] = {
            name: {} for name, row in nodes.names() if nodes.alive[row]
        }
        for resource in dict.fromkeys((*NON_ZERO, *self._classes.counted, *more)):
            sums, offered = self.of(resource).tolist(), nodes.allocatable[nodes.slot(resource)].tolist()
            for name, ratios in found.items():
                row = nodes.row(name)
                if row is not None and offered[row] > 0:
                    ratios[resource] = sums[row] / offered[row]
        return found
