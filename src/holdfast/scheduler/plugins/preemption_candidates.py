"""The candidate nodes of preemption: their victims, and which candidate is chosen.

Whether a node is a candidate, and its cost, is computed once for a class of pods and kept until the
node changes. The results are columns over rows, so that choosing takes a few array operations.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import cells_of
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.state.cluster import Cluster

_NOT_STARTED = float("inf")
_PRIORITY_OFFSET = 2**31
"""Added to priorities in a sum, so that negative ones count too."""
_AT_ONCE = 16
"""At least this many rows are tried before candidates are counted again."""

Bools = NDArray[np.bool_]
Texts = tuple[str, ...]
Cost = tuple[float, ...]


class Candidate(NamedTuple):
    """A node's victims and their cost."""

    cost: Cost
    """Smaller is better, in kube-scheduler's order of preference."""
    victims: tuple[PodRecord, ...]
    """The most important first."""


Found = Candidate | Texts
"""A candidate, or the reasons why the row is not one."""


def candidate(victims: list[PodRecord], violations: int, users: int = 0) -> Candidate:
    """`users` are the pods that are deleted with the victims."""
    highest = victims[0].cls.priority if victims else 0
    oldest = min((started(v) for v in victims if v.cls.priority == highest), default=_NOT_STARTED)
    total = sum(v.cls.priority + _PRIORITY_OFFSET for v in victims)
    return Candidate((violations, highest, total, len(victims), users, -oldest), tuple(victims))


def started(pod: PodRecord) -> float:
    """The start time; a pod that has not started counts as the youngest."""
    return _NOT_STARTED if pod.started is None else pod.started


def importance(pod: PodRecord) -> tuple[float | str, ...]:
    """Sorts the most important first."""
    return (-pod.cls.priority, started(pod), pod.namespace, pod.name)


class Ranks:
    """Numbers that sort as costs do. A new cost gets a number between those of its neighbours; when no
    number is left between them, all costs are numbered again."""

    def __init__(self) -> None:
        self._costs: list[Cost] = []
        self._numbers: list[float] = []

    def __len__(self) -> int:
        return len(self._costs)

    def of(self, cost: Cost) -> float | None:
        """The cost's number; None if all costs have to be numbered again first."""
        at = bisect_left(self._costs, cost)
        numbers = self._numbers
        if at < len(numbers) and self._costs[at] == cost:
            return numbers[at]
        low = numbers[at - 1] if at else (numbers[0] - 2.0 if numbers else -2.0)
        high = numbers[at] if at < len(numbers) else low + 2.0
        number = (low + high) / 2
        if not low < number < high:
            return None
        self._costs.insert(at, cost)
        numbers.insert(at, number)
        return number

    def renumber(self, given: NDArray[np.float64]) -> None:
        """Numbers all costs again, and replaces the old numbers in `given`."""
        given[:] = np.searchsorted(np.array(self._numbers), given)
        self._numbers = [float(number) for number in range(len(self._numbers))]


class Tried:
    """The results of the rows tried for a class, as long as they are valid."""

    _unknown: Bools = cells_of("_unknown_column")
    _suits: Bools = cells_of("_suits_column")
    """The rows that are candidates. For other known rows `_why` has the reasons."""
    _breaks: Bools = cells_of("_breaks_column")
    """The candidates that would violate a PodDisruptionBudget."""
    _rank: NDArray[np.float64] = cells_of("_rank_column")
    _why: NDArray[np.intp] = cells_of("_why_column")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        epoch = cluster.epoch
        self._logs = epoch.usage, epoch.nodes, epoch.pod_starts, epoch.victims
        self._seen: list[int] = [-1] * len(self._logs)
        self._version: Hashable = None
        self._clear()

    def _clear(self) -> None:
        columns = self._cluster.nodes.columns
        self._unknown_column = columns.new(np.bool_, True)
        self._suits_column = columns.new(np.bool_)
        self._breaks_column = columns.new(np.bool_)
        self._rank_column = columns.new(np.float64)
        self._ranks = Ranks()
        self._victims: dict[int, tuple[PodRecord, ...]] = {}
        self._why_column = columns.new(np.intp)
        self._texts: dict[Texts, int] = {}

    def catch_up(self, version: Hashable) -> None:
        """Forgets rows that changed, and all rows if the version differs."""
        self._cluster.jobs.victims.update()
        changed = [log.since(seen) for log, seen in zip(self._logs, self._seen, strict=True)]
        crowded = len(self._ranks) > 2 * len(self._unknown)
        if crowded or version != self._version or any(rows is None for rows in changed):
            self._clear()
        else:
            for rows in changed:
                if rows is not None and len(rows):
                    self.forget(rows)
        self._version = version
        self.up_to_date()

    def up_to_date(self) -> None:
        """Skips the changes noted so far: dry runs note some, but leave everything as it was."""
        self._seen = [log.end for log in self._logs]

    def forget(self, rows: int | list[int] | NDArray[np.intp]) -> None:
        self._unknown[rows] = True
        self._suits[rows] = False

    def put(self, row: int, found: Found) -> None:
        self._unknown[row] = False
        if isinstance(found, Candidate):
            self._suits[row] = True
            self._breaks[row] = found.cost[0] > 0
            self._victims[row] = found.victims
            rank = self._ranks.of(found.cost)
            if rank is None:
                self._ranks.renumber(self._rank)
                rank = self._ranks.of(found.cost)
            assert rank is not None
            self._rank[row] = rank
        else:
            self._why[row] = self._texts.setdefault(found, len(self._texts))

    def first(self, promising: Bools, wanted: int, attempt: Callable[[int], Found]) -> NDArray[np.intp]:
        """The first `wanted` candidates in order, and if all of them violate budgets also the first one
        after them that does not. Rows that are not known are tried as needed."""
        size = len(promising)
        while True:
            found = _first(promising, self._suits, wanted)
            enough = len(found) == wanted
            if enough and self._breaks.item(found[0]) and self._breaks[found].all():
                harmless = _first(promising & self._suits[:size], ~self._breaks, 1)
                found, enough = np.append(found, harmless), bool(len(harmless))
            end = int(found[-1]) if enough else size
            unknown = (promising[:end] & self._unknown[:end]).nonzero()[0]
            tried = unknown[: max(_AT_ONCE, wanted - len(found))].tolist()
            more = False
            for row in tried:
                outcome = attempt(row)
                self.put(row, outcome)
                more |= isinstance(outcome, Candidate)
            if not more and len(tried) == len(unknown):
                return found

    def best(self, rows: NDArray[np.intp]) -> tuple[int, tuple[PodRecord, ...]]:
        """The row with the lowest cost, the first of equal ones, and its victims."""
        row = int(rows[self._rank[rows].argmin()])
        return row, self._victims[row]

    def reasons(self, promising: Bools) -> Counter[Texts]:
        """The number of rows that are not candidates, by reasons."""
        size = len(promising)
        those = promising & ~self._suits[:size] & ~self._unknown[:size]
        counts = np.bincount(self._why[:size][those], minlength=len(self._texts))
        return Counter(dict(zip(self._texts, counts.tolist(), strict=True)))


def _first(some: Bools, others: Bools, wanted: int) -> NDArray[np.intp]:
    """The first `wanted` rows that are in both; usually they are near the start."""
    end, size = 2 * wanted, len(some)
    while True:
        found = (some[:end] & others[: min(end, size)]).nonzero()[0]
        if len(found) >= wanted or end >= size:
            return found[:wanted]
        end *= 4
