"""Counts of pods per row and per topology domain, and the facets that give each row its domain's sum.

A counter counts the pods whose class passes a test: those a selector selects, or those that have an
affinity term. The test is evaluated once per class. Domains are the codes of a label column; a row
without the label is in no domain.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import RowColumns, cells_of
from holdfast.scheduler.cluster.epoch import Epoch, RowLog
from holdfast.scheduler.cluster.node_labels import LabelColumn, LabelColumns
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import Cells, View

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


# Facets
#
# A `Tally` is the weighted sum of pod counters per domain of one topology key, over the rows that count
# for a class (for instance those its node affinity selects). It is updated from the counters' row logs.
#
# The facet of a row depends on the number of domains. With few domains (zones) the facet is the domain,
# which hardly ever changes, and the sum is looked up when a key is evaluated (`ByDomain`). With many
# domains (hostnames) the facet is the sum itself, which changes for the few rows of a domain at a time
# (`BySum`).


COARSE = 64
"""Up to this many domains the facet is the domain, beyond it the domain's sum."""
NOWHERE = -(2**40)
"""The sum of a row that is in no domain."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Counted = Callable[[], Bools]
"""Returns which rows count, over all rows of the table."""


class Tally:
    """The weighted sum of pod counters, by domain of one label column."""

    def __init__(
        self,
        nodes: NodeTable,
        epoch: Epoch,
        column: LabelColumn,
        weighted: list[tuple[int, PodCounter]],
        counted: Counted | None = None,
    ) -> None:
        self._nodes = nodes
        self._epoch = epoch
        self.column = column
        self._weighted = weighted
        self._counted = counted
        self._nodes_seen = -1
        self._positions: list[int] = []
        self._rows: list[Ints] = []
        self._mask: Bools = np.zeros(0, dtype=np.bool_)
        self.sums: Ints = np.zeros(1, dtype=np.int64)
        """By domain; the last entry is for rows in no domain and stays 0."""
        self.domains: Bools = np.zeros(0, dtype=np.bool_)
        """Whether a domain has a row that counts."""
        self._by_domain: Ints | None = None
        self._begins: Ints = np.zeros(0, dtype=np.int64)

    def refresh(self) -> set[int] | None:
        """Updates the sums; returns the domains whose sum changed, None if any may have."""
        nodes_end = self._epoch.nodes.end
        if nodes_end != self._nodes_seen or len(self._mask) != self._nodes.capacity:
            self._nodes_seen = nodes_end
            self._start_over()
            return None
        changed: set[int] = set()
        for i, (weight, counter) in enumerate(self._weighted):
            log = counter.changed
            if log.end == self._positions[i]:
                continue
            rows = log.since(self._positions[i])
            self._positions[i] = log.end
            if rows is None:
                self._start_over()
                return None
            seen, codes = self._rows[i], self.column.codes
            for row in set(rows.tolist()):
                count = counter.rows.item(row)
                change = count - seen.item(row)
                seen[row] = count
                code = codes.item(row)
                if change and code >= 0 and self._mask.item(row):
                    self.sums[code] += weight * change
                    changed.add(code)
        return changed

    def counts(self, cls: PodClass) -> bool:
        """Whether pods of the class are counted."""
        return any(counter.counts(cls) for _, counter in self._weighted)

    def minimum(self) -> int:
        """The smallest sum of the domains that have a row that counts; 0 if there are none."""
        sums = self.sums[:-1][self.domains]
        return int(sums.min()) if len(sums) else 0

    def rows_in(self, domain: int) -> NDArray[np.intp]:
        """The rows of a domain, whether they count or not."""
        if self._by_domain is None:
            codes = self.column.codes
            self._by_domain = np.argsort(codes, kind="stable")
            domains = np.arange(len(self.column.values) + 1)
            self._begins = np.searchsorted(codes[self._by_domain], domains)
        return self._by_domain[self._begins.item(domain) : self._begins.item(domain + 1)]

    def _start_over(self) -> None:
        self._by_domain = None
        codes = self.column.codes
        mask = self._nodes.alive & (codes >= 0)
        if self._counted is not None:
            mask = mask & self._counted()
        domains = len(self.column.values)
        self._mask = mask
        self.domains = np.bincount(codes[mask], minlength=domains) > 0
        self.sums = np.zeros(domains + 1, dtype=np.int64)
        self._rows = []
        self._positions = []
        for weight, counter in self._weighted:
            self._rows.append(counter.rows.copy())
            self._positions.append(counter.changed.end)
            counts = np.bincount(codes[mask], weights=counter.rows[mask], minlength=domains)
            self.sums[:-1] += weight * counts.astype(np.int64)


class ByDomain:
    """The facet is the row's domain."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    @property
    def cells(self) -> NDArray[Any]:
        return self.tally.column.codes

    def refresh(self) -> list[int] | None:
        return None if self.tally.refresh() is None else []

    def counts(self, cls: PodClass) -> bool:
        return self.tally.counts(cls)

    def sum(self, view: View) -> Cells:
        return self.tally.sums[view.facet(self)]

    def present(self, view: View) -> Cells:
        return view.facet(self) >= 0


class BySum:
    """The facet is the sum of the row's domain, capped at `most`."""

    def __init__(self, tally: Tally, most: int | None = None) -> None:
        self.tally = tally
        self._most = most
        self.cells: NDArray[Any] = np.zeros(0, dtype=np.int64)

    def refresh(self) -> list[int] | None:
        changed = self.tally.refresh()
        codes = self.tally.column.codes
        if changed is None or len(self.cells) != len(codes):
            sums = self._capped(self.tally.sums)
            sums[-1] = NOWHERE
            self.cells = sums[codes]
            return None
        rows: list[int] = []
        for domain in changed:
            value = self.tally.sums.item(domain)
            if self._most is not None and value > self._most:
                value = self._most
            there = self.tally.rows_in(domain)
            if self.cells.item(there.item(0)) != value:
                self.cells[there] = value
                rows += there.tolist()
        return rows

    def counts(self, cls: PodClass) -> bool:
        return self.tally.counts(cls)

    def sum(self, view: View) -> Cells:
        sums = view.facet(self)
        return sums * (sums > NOWHERE)

    def present(self, view: View) -> Cells:
        return view.facet(self) > NOWHERE

    def _capped(self, sums: Cells) -> Cells:
        return sums.copy() if self._most is None else np.minimum(sums, self._most)


class OnRow:
    """The facet is the number of counted pods on the row itself; NOWHERE if it lacks the label."""

    def __init__(
        self, nodes: NodeTable, epoch: Epoch, column: LabelColumn, counter: PodCounter
    ) -> None:
        self._nodes = nodes
        self._epoch = epoch
        self._column = column
        self._counter = counter
        self._nodes_seen = -1
        self._position = -1
        self.cells: NDArray[Any] = np.zeros(0, dtype=np.int64)

    def refresh(self) -> list[int] | None:
        log, nodes_end = self._counter.changed, self._epoch.nodes.end
        rows = log.since(self._position) if self._position >= 0 else None
        self._position = log.end
        if rows is None or nodes_end != self._nodes_seen or len(self.cells) != self._nodes.capacity:
            self._nodes_seen = nodes_end
            self.cells = np.where(self._column.codes >= 0, self._counter.rows, NOWHERE)
            return None
        changed = [row for row in set(rows.tolist()) if self._column.codes.item(row) >= 0]
        for row in changed:
            self.cells[row] = self._counter.rows[row]
        return changed

    def counts(self, cls: PodClass) -> bool:
        return self._counter.counts(cls)

    def sum(self, view: View) -> Cells:
        sums = view.facet(self)
        return sums * (sums > NOWHERE)

    def present(self, view: View) -> Cells:
        return view.facet(self) > NOWHERE


DomainSum = ByDomain | BySum


def domain_sum(tally: Tally, most: int | None = None) -> DomainSum:
    """The facet for the current number of domains."""
    if len(tally.column.values) <= COARSE:
        return ByDomain(tally)
    return BySum(tally, most)
