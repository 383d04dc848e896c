"""Free capacity over time: what pods and reservations are expected to release, and plans to take.

Per node the free capacity is a step function of time. It rises when a pod with a run-time estimate is
expected to end and when a reservation expires, and falls when a reservation of the calendar starts.
Pods without an estimate, and pods that exceeded theirs, count as never ending.

A pod may start on a node if it fits under the minimum over the time it runs. For a pod that never ends
that is what is free now less what is *blocked*: at the start of each planned reservation, what all
planned reservations take then, less what will have been released by then.

Starvation holds, backfill, calendar reservations and the score of pre-allocations all ask here. Kept
are the expected ends of each row; a row is computed again when it is in `Epoch.usage` or
`Epoch.pod_starts`, and all are when `Epoch.run_estimates` moves.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.calendar import AtEnd
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.cluster.slots import Amounts, Pairs
from holdfast.scheduler.jobs.estimates import RunEstimates
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.reservations.reservation_cache import ReservationCache

Matrix = NDArray[np.int64]


class ExpectedRelease(NamedTuple):
    """Capacity that is expected to be released at a time."""

    time: float
    amounts: Pairs
    pod: PodRecord | None
    """The pod that ends then; None if a reservation expires."""


class FlatReleases(NamedTuple):
    """The expected releases of all rows, an entry per row, time and slot, in the order of time."""

    times: NDArray[np.float64]
    rows: NDArray[np.intp]
    slots: NDArray[np.intp]
    amounts: NDArray[np.int64]


class CapacityPlanner:
    """The expected free capacity of all rows."""

    def __init__(
        self, cluster: ClusterBase, reservations: ReservationCache, estimates: RunEstimates
    ) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._ledger = cluster.ledger
        self._reservations = reservations
        self._calendar = reservations.calendar
        self._estimates = estimates
        self._known: dict[int, list[ExpectedRelease]] = {}
        self._flat = _flat({})
        self._seen = (-1, -1, -1)

    # One row

    def releases(self, row: int) -> list[ExpectedRelease]:
        """What is expected to be released on the row after now, in the order of time."""
        now, ledger = self._cluster.now, self._ledger
        found = []
        for entry in ledger.reservations.on(row):
            expires = entry.reservation.expires
            if expires is not None and expires > now:
                found.append(ExpectedRelease(expires, tuple(entry.remaining.items()), None))
        for pod in ledger.pods.get(row, {}).values():
            end = self._end(pod, ledger.reservations.get(pod.reservation_uid))
            if end is not None:
                found.append(ExpectedRelease(end, pod.cls.usage, pod))
        found.sort(key=lambda each: (each.time, each.pod.uid if each.pod is not None else ""))
        return found

    def _end(self, pod: PodRecord, entry: ReservationEntry | None) -> float | None:
        """When the capacity of a pod is expected to be free; None if unknown. What a pod has from a
        reservation returns to the reservation, and is free once that has expired."""
        end = self._estimates.expected_end(pod)
        if entry is None:
            return end
        expires = entry.reservation.expires
        if expires is None or expires <= self._cluster.now:
            return None
        if entry.reservation.calendar.at_end == AtEnd.EVICT:
            return expires
        return None if end is None else max(end, expires)

    def blocked(self, row: int, until: float = math.inf) -> Amounts:
        """What a pod that runs until then must leave free now, by slot, for the reservations planned on
        the row; without slots of which nothing is blocked."""
        plans = [each for each in self._calendar.on(row) if each.binds and each.start < until]
        if not plans:
            return {}
        blocked: Amounts = {}
        releases = self.releases(row)
        for at in sorted({each.start for each in plans}):
            taken = self._taken(plans, at)
            for release in releases:
                if release.time > at:
                    break
                for slot, amount in release.amounts:
                    if slot in taken:
                        taken[slot] -= amount
            for slot, amount in taken.items():
                if amount > blocked.get(slot, 0):
                    blocked[slot] = amount
        return blocked

    def fits_until(self, row: int, amounts: Mapping[int, int], until: float) -> bool:
        """Whether these amounts can be taken on the row until then."""
        blocked, free = self.blocked(row, until), self._ledger.free(row)
        return all(int(free[slot]) - blocked.get(slot, 0) >= n for slot, n in amounts.items())

    def planned(self, row: int, start: float = -math.inf, end: float = math.inf) -> Amounts:
        """The most that planned reservations take together at any time in between, by slot."""
        return self.most_taken(
            [each for each in self._calendar.on(row) if each.overlaps(start, end)], start
        )

    def most_taken(self, plans: list[PlannedReservation], start: float = -math.inf) -> Amounts:
        """The most that these take together at any time from `start` on, by slot."""
        most: Amounts = {}
        for at in {max(each.start, start) for each in plans}:
            for slot, amount in self._taken(plans, at).items():
                if amount > most.get(slot, 0):
                    most[slot] = amount
        return most

    def _taken(self, plans: Iterable[PlannedReservation], at: float) -> Amounts:
        """What planned reservations take at a time, of resources."""
        taken: Amounts = {}
        names = self._nodes.slots
        for each in plans:
            if each.start <= at < each.end:
                for slot, amount in each.amounts.items():
                    if names.name(slot):
                        taken[slot] = taken.get(slot, 0) + amount
        return taken

    # Starvation holds and pre-allocations

    def expected_start(self, reservation: ReservationInfo) -> float | None:
        """When the capacity of a hold is expected to be free; None if that is not known."""
        entry = self._ledger.reservations.get(reservation.uid)
        if entry is None:
            return None
        if not reservation.waiting:
            return self._cluster.now
        short = self._reservations.waiting.shortage(reservation)
        if not short:
            return self._cluster.now
        return self._freed_at(entry.row, short)

    def expected_fit(self, row: int, asked: Iterable[tuple[int, int]]) -> float | None:
        """When these amounts, which are not free on a row now, are expected to be; None if unknown."""
        free = self._ledger.free(row)
        return self._freed_at(row, {slot: amount - int(free[slot]) for slot, amount in asked})

    def _freed_at(self, row: int, short: Amounts) -> float | None:
        """When enough is expected to have been released on the row to free the amounts in `short`."""
        for release in self.releases(row):
            if release.pod is None:
                continue
            for slot, amount in release.amounts:
                if slot in short:
                    short[slot] -= amount
            if all(lack <= 0 for lack in short.values()):
                return release.time
        return None

    def next_end(self, row: int) -> float:
        """Until when the expectations for a row stay the same if nothing changes there: the first
        expected end of a pod. A pod that has not started is expected to end later with every
        moment."""
        ends = []
        for pod in self._ledger.pods.get(row, {}).values():
            end = self._estimates.expected_end(pod)
            if end is not None:
                ends.append(self._cluster.now if pod.started is None else end)
        return min(ends, default=math.inf)

    # All rows

    def free_at(self, time: float, slots: Iterable[int]) -> dict[int, Matrix]:
        """What is expected to be free of each slot on every row at a time, planned reservations not
        counted."""
        self._refresh()
        nodes, known = self._nodes, self._flat
        first = int(np.searchsorted(known.times, self._cluster.now, "right"))
        last = int(np.searchsorted(known.times, time, "right"))
        rows, of, amounts = (each[first:last] for each in (known.rows, known.slots, known.amounts))
        found: dict[int, Matrix] = {}
        for slot in slots:
            free = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size].copy()
            which = of == slot
            np.add.at(free, rows[which], amounts[which])
            found[slot] = free
        return found

    def _refresh(self) -> None:
        """Brings the expected releases of all rows up to date."""
        epoch = self._cluster.epoch
        usage, starts, estimates = self._seen
        rows: Iterable[int] | None = None
        if estimates == epoch.run_estimates and usage >= 0:
            changed = epoch.usage.since(usage), epoch.pod_starts.since(starts)
            if changed[0] is not None and changed[1] is not None:
                rows = {*changed[0].tolist(), *changed[1].tolist()}
        is_changed = rows is None
        if rows is None:
            self._known.clear()
            rows = range(self._nodes.size)
        for row in rows:
            releases = self.releases(row)
            is_changed = is_changed or releases != self._known.get(row, [])
            if releases:
                self._known[row] = releases
            else:
                self._known.pop(row, None)
        self._seen = epoch.usage.end, epoch.pod_starts.end, epoch.run_estimates
        if is_changed:
            self._flat = _flat(self._known)


def _flat(known: Mapping[int, list[ExpectedRelease]]) -> FlatReleases:
    """The releases of all rows as arrays, in the order of time."""
    found = sorted(
        (each.time, row, slot, amount)
        for row, releases in known.items()
        for each in releases
        for slot, amount in each.amounts
    )
    times, rows, slots, amounts = zip(*found, strict=True) if found else ((), (), (), ())
    return FlatReleases(
        np.array(times, dtype=np.float64),
        np.array(rows, dtype=np.intp),
        np.array(slots, dtype=np.intp),
        np.array(amounts, dtype=np.int64),
    )
