"""Counts of pods per row and per topology domain, updated as pods are placed and removed.

A counter counts the pods whose class passes a test: those a selector selects, or those that have an
affinity term. The test is evaluated once per class. Domains are the codes of a label column; a row
without the label is in no domain.
"""

from collections.abc import Callable, Hashable, Mapping
from weakref import WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import RowColumns, cells_of
from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_labels import LabelColumn, LabelColumns
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.records import PodRecord

Counts = NDArray[np.int64]


class PodCounter:
    """How many pods of the counted classes are on each row, and in each domain of the topology keys in
    use."""

    __slots__ = ("__weakref__", "_columns", "_domains", "changed", "column", "counts")

    rows: Counts = cells_of("column")

    def __init__(self, counts: Callable[[PodClass], bool], columns: RowColumns) -> None:
        self.counts = counts
        self.column = columns.new(np.int64)
        self.changed = RowLog(keep=4096)
        self._domains: dict[str, Counts] = {}
        self._columns: dict[str, LabelColumn] = {}

    def domains(self, column: LabelColumn) -> Counts:
        """Pods per domain, indexed by the column's codes."""
        totals = self._domains.get(column.key)
        if totals is None:
            self._columns[column.key] = column
            totals = self._domains[column.key] = self._recount(column)
        if len(totals) < len(column.values):
            totals = np.pad(totals, (0, len(column.values) - len(totals)))
            self._domains[column.key] = totals
        return totals

    def add(self, row: int, count: int) -> None:
        """Adds to the count of a row and of its domains."""
        self.column.cells[row] += count
        for column in self._columns.values():
            code = column.codes.item(row)
            if code >= 0:
                self.domains(column)[code] += count
        self.changed.add(row)

    def relabel(self, row: int, key: str, before: int, after: int) -> None:
        """Moves the row's pods to another domain, after its label changed from one code to another."""
        column = self._columns.get(key)
        if column is None or not self.rows[row]:
            return
        totals = self.domains(column)
        if before >= 0:
            totals[before] -= self.rows[row]
        if after >= 0:
            totals[after] += self.rows[row]
        self.changed.add(row)

    def recount(self) -> dict[str, Counts]:
        """The domains' totals computed from the rows, to be compared with those kept."""
        return {key: self._recount(column) for key, column in self._columns.items()}

    def _recount(self, column: LabelColumn) -> Counts:
        present = column.codes >= 0
        return np.bincount(
            column.codes[present], weights=self.rows[present], minlength=len(column.values)
        ).astype(np.int64)


class DomainCounts:
    """The counters in use, and which classes each of them counts.

    Counters are weakly referenced: one exists as long as its users keep it.
    """

    def __init__(self, classes: PodClasses, labels: LabelColumns, columns: RowColumns) -> None:
        self._classes = classes
        self._labels = labels
        self._columns = columns
        self._counters: WeakValueDictionary[Hashable, PodCounter] = WeakValueDictionary()
        self._of_class: dict[int, list[ref[PodCounter]]] = {}
        classes.on_added.append(self._class_added)
        classes.on_dropped.append(self._class_dropped)

    def counter(self, key: Hashable, counts: Callable[[PodClass], bool]) -> PodCounter:
        """The counter of this key; a new one is filled with the pods that are there."""
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = PodCounter(counts, self._columns)
            for cls in self._classes:
                if counts(cls):
                    self._of_class.setdefault(cls.id, []).append(ref(found))
                    for row, count in cls.placed.items():
                        found.rows[row] += count
        return found

    def counters(self) -> Mapping[Hashable, PodCounter]:
        return self._counters

    def pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """Counts a pod that was added to a row (+1) or removed from it (-1)."""
        counters = self._of_class.get(pod.cls.id)
        if counters is None:
            return
        gone = False
        for each in counters:
            counter = each()
            if counter is None:
                gone = True
            else:
                counter.add(row, sign)
        if gone:
            self._of_class[pod.cls.id] = [each for each in counters if each() is not None]

    def row_codes(self, row: int) -> list[tuple[str, int]]:
        """The row's code in every label column, for `relabel` after a change of the node."""
        return [(column.key, int(column.codes[row])) for column in self._labels.known()]

    def relabel(self, row: int, before: list[tuple[str, int]]) -> None:
        """Moves the row's pods to its current domains; `before` is from `row_codes`."""
        for key, old in before:
            column = self._labels.find(key)
            new = int(column.codes[row]) if column is not None else old
            if new != old:
                for counter in self._counters.values():
                    counter.relabel(row, key, old, new)

    def _class_dropped(self, cls: PodClass) -> None:
        self._of_class.pop(cls.id, None)

    def _class_added(self, cls: PodClass) -> None:
        matching = [counter for counter in self._counters.values() if counter.counts(cls)]
        if matching:
            self._of_class[cls.id] = [ref(counter) for counter in matching]
