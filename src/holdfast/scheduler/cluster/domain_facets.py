"""Sums of pod counts per topology domain, and the facets that give each row its domain's sum.

A `Tally` is the weighted sum of pod counters per domain of one topology key, over the rows that count
for a class (for instance those its node affinity selects). It is updated from the counters' row logs.

The facet of a row depends on the number of domains. With few domains (zones) the facet is the domain,
which hardly ever changes, and the sum is looked up when a key is evaluated (`ByDomain`). With many
domains (hostnames) the facet is the sum itself, which changes for the few rows of a domain at a time
(`BySum`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.domain_counts import PodCounter
from holdfast.scheduler.cluster.node_labels import LabelColumn
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View

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
        cluster: ClusterBase,
        column: LabelColumn,
        weighted: list[tuple[int, PodCounter]],
        counted: Counted | None = None,
    ) -> None:
        self._cluster = cluster
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
        nodes_end = self._cluster.epoch.nodes.end
        if nodes_end != self._nodes_seen or len(self._mask) != self._cluster.nodes.capacity:
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
        mask = self._cluster.nodes.alive & (codes >= 0)
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

    def __init__(self, cluster: ClusterBase, column: LabelColumn, counter: PodCounter) -> None:
        self._cluster = cluster
        self._column = column
        self._counter = counter
        self._nodes_seen = -1
        self._position = -1
        self.cells: NDArray[Any] = np.zeros(0, dtype=np.int64)

    def refresh(self) -> list[int] | None:
        log, nodes_end = self._counter.changed, self._cluster.epoch.nodes.end
        rows = log.since(self._position) if self._position >= 0 else None
        self._position = log.end
        if (
            rows is None
            or nodes_end != self._nodes_seen
            or len(self.cells) != self._cluster.nodes.capacity
        ):
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
