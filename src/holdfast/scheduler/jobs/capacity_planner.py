"""Free capacity over time: what pods and reservations are expected to release, and plans to take.

Per node the free capacity is a step function of time. It rises when a pod with a run-time estimate is
expected to end and when a reservation expires, and falls when a reservation of the calendar starts.
What a pod has from a reservation that lasts longer returns to that, and is free once it has expired.
Pods without an estimate, and pods that exceeded theirs, count as never ending.

A pod may start on a node if it fits under the minimum over the time it runs. For a pod that never ends
that is what is free now less what is *blocked*: at the start of each planned reservation, what all
planned reservations take then, less what will have been released by then. Amounts are those of
resources, and sums of limits where these have a maximum. For host ports, CPUs, devices and volumes the
node is played forward (`node_forecast`).

Starvation holds, backfill, calendar reservations and the score of pre-allocations all ask here. Kept
are the expected ends of each row; a row is computed again when it is in `Epoch.usage` or
`Epoch.pod_starts`, and all are when `Epoch.run_estimates` moves; when it changes which owners are
expected to be evicted at the end of their reservations, the rows of these reservations.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.calendar import AtEnd
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.cluster.reservation_usage import ReservationUsage
from holdfast.scheduler.cluster.slots import Amounts, Pairs
from holdfast.scheduler.jobs.estimates import RunEstimates
from holdfast.scheduler.jobs.node_forecast import (
    SHARED_BY_NODES,
    ExpectedRelease,
    Guest,
    NodeForecast,
    PlanElsewhere,
    UnmetPlan,
)
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.reservations.reservation_cache import ReservationCache
from holdfast.scheduler.reservations.starvation_holds import is_starvation_hold, pod_of

Matrix = NDArray[np.int64]
Expected = tuple[float, Pairs, PodRecord | None, ReservationEntry | None]
"""The fields of an `ExpectedRelease`."""
_NOTHING: Matrix = np.zeros(0, dtype=np.int64)
_NOWHERE: Mapping[int, list[PlannedReservation]] = {}


class FlatReleases(NamedTuple):
    """The expected releases of all rows, in the order of time. Pods of one class release the same
    amounts, so these are kept once."""

    times: NDArray[np.float64]
    rows: NDArray[np.intp]
    kinds: NDArray[np.intp]
    """By release, its place in `amounts`."""
    amounts: list[Pairs]

    def by_kind(self, slot: int) -> Matrix:
        """The amount of a slot that is released, by kind."""
        return np.array([dict(pairs).get(slot, 0) for pairs in self.amounts], dtype=np.int64)


class CapacityPlanner:
    """The expected free capacity of all rows."""

    def __init__(
        self,
        cluster: ClusterBase,
        reservations: ReservationCache,
        estimates: RunEstimates,
        forecast: NodeForecast,
    ) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._limits = cluster.limits
        self._forecast = forecast
        self._ledger = cluster.ledger
        self._reservations = reservations
        self._calendar = reservations.calendar
        self._estimates = estimates
        self._budgets = DisruptionBudgets(cluster)
        self._known: dict[int, list[Expected]] = {}
        """By row, as of the last call of `free_at`; without rows on which nothing is expected."""
        self._ordered: dict[int, list[ExpectedRelease]] = {}
        """The same in the order of time, of rows that were asked for."""
        self._flat = _flat({})
        self._seen = (-1, -1, -1)
        self._moved = 0
        """Counts the owners that came or left, also in what is rolled back."""
        self._ledger.listeners.append(self._pod_moved)
        self._ledger.allocation_listeners.append(self._pod_allocated)
        self._evicted: frozenset[str] = frozenset()
        self._evicted_version: Hashable = None
        self._evicted_seen: frozenset[str] = frozenset()
        """As of the last call of `free_at`."""

    # One row

    def releases(self, row: int) -> list[ExpectedRelease]:
        """What is expected to be released on the row after now, in the order of time."""
        return _in_order(self._expected(row))

    def _expected(self, row: int) -> list[Expected]:
        """The same in no order."""
        table, expected_end = self._ledger.reservations, self._estimates.expected_end
        found: list[Expected] = []
        owners: dict[str, list[PodRecord]] = {}
        for pod in self._ledger.pods.get(row, {}).values():
            if pod.reservation_uid and _keeps_capacity(table.get(pod.reservation_uid), row):
                owners.setdefault(pod.reservation_uid, []).append(pod)
                continue
            end = expected_end(pod)
            if end is not None:
                found.append((end, pod.cls.usage, pod, None))
        for entry in table.on(row):
            found += self._expected_of(entry, owners.get(entry.pod.uid, ()))
        return found

    def _expected_of(self, entry: ReservationEntry, owners: Collection[PodRecord]) -> list[Expected]:
        """What a reservation is expected to release, and the pods that are allocated from it if it is
        reusable. Until it expires their ends free only what they have beyond what it reserves; the rest
        returns to it."""
        expires, now = entry.reservation.expires, self._cluster.now
        until = math.inf if expires is None or expires <= now else expires
        evicts = bool(owners) and entry.reservation.calendar.at_end == AtEnd.EVICT
        evicted = self.evicted_at_end() if evicts else frozenset()
        ends = []
        for pod in owners:
            end = self._estimates.expected_end(pod)
            if pod.uid in evicted:
                end = until if end is None else min(end, until)
            if end is not None:
                ends.append((end, pod.uid, pod))
        found: list[Expected] = []
        usage = entry.usage
        for end, _, pod in sorted(ends):
            freed = pod.cls.usage
            if end < until:
                usage, _, freed = self._ledger.reservations.usage_states.step(usage, pod.cls, -1)
            found.append((end, freed, pod, None))
        if until < math.inf:
            found.append((until, tuple(usage.remaining.items()), None, entry))
        return found

    def evicted_at_end(self) -> frozenset[str]:
        """The uids of the owners that are evicted when their reservations expire, by what
        PodDisruptionBudgets allow now. Each reservation uses up budgets for all of its owners, and
        those that expire at one time do so together: it is not known in which order they are
        evicted."""
        if not self._reservations.evicting:
            return frozenset()
        epoch = self._cluster.epoch
        version = self._moved, epoch.reservations.end, epoch.objects, self._budgets.version()
        if version != self._evicted_version:
            evictable = self._budgets.evictable(self._leaving_together())
            self._evicted, self._evicted_version = evictable, version
        return self._evicted

    def _leaving_together(self) -> list[list[PodRecord]]:
        """The owners that are evicted when their reservations expire, those of one time together."""
        by_end: dict[float, list[PodRecord]] = {}
        for entry in self._evicting():
            expires = entry.reservation.expires
            if expires is not None:
                owners = self._reservations.allocated_pods(entry.reservation)
                by_end.setdefault(expires, []).extend(owners)
        return [by_end[end] for end in sorted(by_end)]

    def refused(self, pods: list[PodRecord], others: Iterable[PodRecord]) -> list[PodRecord]:
        """Those of these pods whose eviction PodDisruptionBudgets would refuse now if they were evicted
        one after the other, after `others` and the owners that are evicted at the end of their
        reservations."""
        if not pods or not self._budgets:
            return []
        first = {pod.uid: pod for pod in others}
        counted = [pod for pod in pods if not _is_leaving(pod)]
        before = [pod for pod in first.values() if not _is_leaving(pod)]
        alone = [[pod] for pod in counted if pod.uid not in first]
        evictable = self._budgets.evictable([*self._leaving_together(), before, *alone])
        return [pod for pod in counted if pod.uid not in evictable]

    def _pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        if pod.reservation_uid or pod.reservation is not None:
            self._moved += 1

    def _pod_allocated(self, pod: PodRecord, sign: int) -> None:
        self._moved += 1

    def _evicting(self) -> list[ReservationEntry]:
        """The reservations on nodes whose owners are evicted at their end."""
        return [
            entry
            for uid in self._reservations.evicting
            if (entry := self._ledger.reservations.get(uid)) is not None
        ]

    def staying(self, row: int, time: float) -> list[ReservationEntry]:
        """The reservations on a row that last longer than until a time."""
        return [entry for entry in self._ledger.reservations.on(row) if _lasts(entry, time)]

    def returns_to(self, pod: PodRecord, time: float) -> ReservationEntry | None:
        """The reservation to which the capacity of a pod returns if it ends by a time: a reusable one
        that lasts longer."""
        if not pod.reservation_uid:
            return None
        entry = self._ledger.reservations.get(pod.reservation_uid)
        if entry is None or not _keeps_capacity(entry, pod.row):
            return None
        return entry if _lasts(entry, time) else None

    def usage_at(self, entry: ReservationEntry, time: float) -> ReservationUsage:
        """The usage of a reservation by the pods that are not expected to have ended by a time."""
        usage, states = entry.usage, self._ledger.reservations.usage_states
        for each in self.releases(entry.row) if entry.taken else ():
            pod = each.pod
            if pod is not None and pod.reservation_uid == entry.pod.uid and each.time <= time:
                usage = states.after(usage, pod.cls, -1)
        return usage

    def blocked(self, row: int, until: float = math.inf) -> Amounts:
        """What a pod that runs until then must leave free now, by slot, for the reservations planned on
        the row; without slots of which nothing is blocked."""
        plans = [each for each in self._calendar.on(row) if each.binds and each.start < until]
        if not plans:
            return {}
        return self.most_missing(plans, self._cluster.now, self.releases(row))

    def fits_until(self, row: int, cls: PodClass, until: float) -> bool:
        """Whether a pod of the class can be on the row until then, as far as it concerns what is free
        and the reservations planned there. Starvation holds that are Waiting come after these."""
        blocked, free_on = self.blocked(row, until), self._limits.free_on
        for slot, amount in self._reservations.starvation_holds.outranked_on(row).items():
            blocked[slot] = blocked.get(slot, 0) - amount
        bounded = [(slot, n) for slot, n in cls.usage if self._limits.is_bounded(slot)]
        if any(free_on(slot, row) - blocked.get(slot, 0) < n for slot, n in bounded):
            return False
        return not (self.is_in_the_way(cls, row, until) or self.needs_claim_of(cls, until))

    def leaves(self, row: int, wanted: Mapping[int, int], plans: list[PlannedReservation]) -> bool:
        """Whether what is free on the row now is enough for these amounts and for these plans, of what
        the plans need. Starvation holds that are Waiting come after both."""
        if not plans:
            return True
        outranked = self._reservations.starvation_holds.outranked_on(row)
        missing = self.most_missing(plans, self._cluster.now, self.releases(row))
        return all(
            self._limits.free_on(slot, row) + outranked.get(slot, 0) - lack >= wanted.get(slot, 0)
            for slot, lack in missing.items()
            if wanted.get(slot, 0)
        )

    def certain_plans(self, row: int, priority: int) -> list[PlannedReservation]:
        """The plans for a row that are certain, and drain it or are of no lower priority than this."""
        return [
            each
            for each in self._calendar.on(row)
            if each.feasible == "True"
            and each.reservation.pod is not None
            and (each.draining or each.reservation.pod.cls.priority >= priority)
        ]

    def is_in_the_way(
        self, cls: PodClass, row: int, until: float = math.inf, pods_end: bool = False
    ) -> bool:
        """Whether a pod of the class that comes to the row now and stays until then would have
        particular resources that a reservation planned there needs. With `pods_end`, pods that can
        end count as gone, and all plans count."""
        plans = [
            each for each in self._calendar.on(row) if (pods_end or each.binds) and each.start < until
        ]
        if not plans or not self._forecast.kinds(cls, row):
            return False
        return bool(self.unmet(row, plans, self.ending(row) if pods_end else (), Guest(cls, until)))

    def ending(self, row: int) -> list[PodRecord]:
        """The pods of a row that do not stay as long as their node, by name."""
        there = self._ledger.pods.get(row, {}).values()
        ending = [pod for pod in there if not pod.cls.is_daemon]
        return sorted(ending, key=lambda pod: (pod.namespace, pod.name, pod.uid))

    def kinds(self, planned: PlannedReservation, row: int) -> frozenset[str]:
        """The kinds of particular resources that a planned reservation needs on a row."""
        pod = planned.reservation.pod
        return self._forecast.kinds(pod.cls, row) if pod is not None else frozenset()

    def shares(self, planned: PlannedReservation, cls: PodClass, row: int) -> bool:
        """Whether pods of the class use particular resources of a kind that the reservation needs."""
        return bool(self.kinds(planned, row) & self._forecast.kinds(cls, row))

    def unmet(
        self,
        row: int,
        plans: Iterable[PlannedReservation],
        without: Collection[PodRecord] = (),
        guest: Guest | None = None,
        elsewhere: Mapping[int, list[PlannedReservation]] = _NOWHERE,
    ) -> list[UnmetPlan]:
        """Those of these plans for the row that will lack particular resources at their start, by what
        is expected to have ended by then; pods in `without` count as gone. Waiting starvation holds
        come after reservations with a start. `elsewhere` are plans for other rows that overlap."""
        holds = self._reservations.starvation_holds.on(row)
        outranked = [each.pod for each in holds if each.waiting and each.pod is not None]
        others = [
            PlanElsewhere(each, at, self._gone_by(at, each.start))
            for at, there in elsewhere.items()
            for each in there
            if at != row and self.kinds(each, at) & SHARED_BY_NODES
        ]
        plans = list(plans)
        releases = self.releases(row)
        away = [release for each in plans for release in self.releases_elsewhere(each, row)]
        if away:
            releases = _in_order(dict.fromkeys([*releases, *away]))
        return self._forecast.unmet(row, plans, releases, [*without, *outranked], guest, others)

    def users_elsewhere(self, planned: PlannedReservation, row: int) -> list[PodRecord]:
        """The pods and reserve pods on other rows than this one, for which a reservation is planned,
        that use a claim of it which only one pod can use."""
        pod = planned.reservation.pod
        return self._forecast.users_elsewhere(pod.cls, row) if pod is not None else []

    def releases_elsewhere(self, planned: PlannedReservation, row: int) -> list[ExpectedRelease]:
        """When those are expected to leave of which that is known."""
        users = self.users_elsewhere(planned, row)
        return [
            release
            for at in dict.fromkeys(pod.row for pod in users)
            for release in self.releases(at)
            if (release.pod or (release.entry.pod if release.entry is not None else None)) in users
        ]

    def needs_claim_of(self, cls: PodClass, until: float = math.inf, pods_end: bool = False) -> bool:
        """Whether a reservation that is planned on any node needs a claim which only one pod can use,
        and which a pod of the class uses until then. With `pods_end` all plans count."""
        if not cls.volumes:
            return False
        return any(
            (pods_end or each.binds)
            and each.start < until
            and each.reservation.pod is not None
            and self._forecast.sharing(cls, each.reservation.pod.cls)
            for each in self._calendar
        )

    def _gone_by(self, row: int, time: float) -> frozenset[str]:
        """The uids of the pods and reservations that will have left a row by a time."""
        gone = [each for each in self.releases(row) if each.time <= time]
        pods = [each.pod or (each.entry.pod if each.entry is not None else None) for each in gone]
        return frozenset(pod.uid for pod in pods if pod is not None)

    def planned(self, row: int, start: float = -math.inf, end: float = math.inf) -> Amounts:
        """The most that planned reservations take together at any time in between, by slot."""
        return self.most_taken(
            [each for each in self._calendar.on(row) if each.overlaps(start, end)], start
        )

    def most_taken(self, plans: list[PlannedReservation], start: float = -math.inf) -> Amounts:
        """The most that these take together at any time from `start` on, by slot; not to be written
        to."""
        if len(plans) == 1:
            return self.wanted(plans[0])
        most: Amounts = {}
        for at in {max(each.start, start) for each in plans}:
            for slot, amount in self._taken(plans, at).items():
                if amount > most.get(slot, 0):
                    most[slot] = amount
        return most

    def most_missing(
        self, plans: list[PlannedReservation], start: float, releases: Iterable[ExpectedRelease]
    ) -> Amounts:
        """The most that these plans for a row take together at any time from `start` on, by slot, less
        what is expected to be released there after `start` and by that time. `releases` are those of
        the row, in the order of time."""
        moments = {max(each.start, start) for each in plans}
        if moments == {start}:
            return self._taken(plans, start)
        most: Amounts = {}
        later = [each for each in releases if each.time > start]
        for at in moments:
            taken = self._taken(plans, at)
            for release in later:
                if release.time > at:
                    break
                for slot, amount in release.amounts:
                    if slot in taken:
                        taken[slot] -= amount
            for slot, amount in taken.items():
                if amount > most.get(slot, 0):
                    most[slot] = amount
        return most

    def known_releases(self, row: int) -> list[ExpectedRelease]:
        """As `releases`, for a time after now, as of the last call of `free_at`."""
        found = self._ordered.get(row)
        if found is None:
            found = self._ordered[row] = _in_order(self._known.get(row, ()))
        return found

    def _taken(self, plans: Iterable[PlannedReservation], at: float) -> Amounts:
        """What planned reservations take at a time."""
        taken: Amounts = {}
        for each in plans:
            if each.start <= at < each.end:
                for slot, amount in self.wanted(each).items():
                    taken[slot] = taken.get(slot, 0) + amount
        return taken

    def wanted(self, planned: PlannedReservation) -> Amounts:
        """The amounts that a planned reservation takes, by slot: resources and limits; not to be
        written to."""
        amounts, (known, bounded) = planned.amounts, planned.bounded
        if known is not amounts:
            is_bounded = self._limits.is_bounded
            bounded = {slot: amount for slot, amount in amounts.items() if is_bounded(slot)}
            planned.bounded = amounts, bounded
        return bounded

    # Starvation holds and pre-allocations

    def expected_start(self, reservation: ReservationInfo) -> float | None:
        """When the capacity of a hold is expected to be free; None if that is not known."""
        entry = self._ledger.reservations.get(reservation.uid)
        if entry is None:
            return None
        if not reservation.waiting:
            return self._cluster.now
        start: float | None = self._cluster.now
        if short := self._reservations.waiting.shortage(reservation):
            start = self._start_before_plans(reservation, entry.row)
            start = self._freed_at(entry.row, short) if start is None else start
        if start is None or not self._forecast.kinds(entry.pod.cls, entry.row):
            return start
        return self._particulars_freed_at(reservation, entry.row, start)

    def _particulars_freed_at(
        self, reservation: ReservationInfo, row: int, start: float
    ) -> float | None:
        """The first time from `start` on at which the particular resources of a Waiting reservation are
        expected to be free; None if that is not known."""
        waiting = self._reservations.waiting
        try:
            return self._forecast.first_time(
                row, self.releases(row), start, lambda: not waiting.lacking_particulars(reservation)
            )
        finally:
            waiting.plan(row)  # by what is free now

    def _start_before_plans(self, hold: ReservationInfo, row: int) -> float | None:
        """When the pod of a starvation hold can start, if it ends before anything planned on the row
        begins; None if it does not, or if that is not known."""
        pod = self._cluster.pods.get(pod_of(hold)) if is_starvation_hold(hold) else None
        estimate = self._estimates.of(pod) if pod is not None and pod.job is None else None
        plans = [each.start for each in self._calendar.on(row)] if estimate is not None else []
        if estimate is None or not plans:
            return None
        short = self._reservations.waiting.shortage(hold, until=-math.inf)
        start = self._freed_at(row, short) if short else self._cluster.now
        return start if start is not None and start + estimate <= min(plans) else None

    def expected_fit(self, row: int, asked: Iterable[tuple[int, int]]) -> float | None:
        """When these amounts, which are not free on a row now, are expected to be; None if unknown."""
        free = self._ledger.free(row)
        return self._freed_at(row, {slot: amount - int(free[slot]) for slot, amount in asked})

    def _freed_at(self, row: int, short: Amounts) -> float | None:
        """When enough is expected to have been released on the row to free the amounts in `short`."""
        for release in self.releases(row):
            if release.of_waiting:
                continue  # it waits for the same
            for slot, amount in release.amounts:
                if slot in short:
                    short[slot] -= amount
            if all(lack <= 0 for lack in short.values()):
                return release.time
        return None

    def next_end(self, row: int) -> float:
        """Until when the expectations for a row stay the same if nothing changes there: the first
        expected end of a pod. One whose start and binding are not known is expected to end later with
        every moment."""
        ends = []
        for pod in self._ledger.pods.get(row, {}).values():
            end = self._estimates.expected_end(pod)
            if end is not None:
                is_known = pod.started is not None or pod.bound_at is not None
                ends.append(end if is_known else self._cluster.now)
        return min(ends, default=math.inf)

    # All rows

    def free_at(self, time: float, slots: Iterable[int]) -> dict[int, Matrix]:
        """What is expected to be free of each slot on every row at a time, planned reservations not
        counted."""
        self._refresh()
        known = self._flat
        first = int(np.searchsorted(known.times, self._cluster.now, "right"))
        last = int(np.searchsorted(known.times, time, "right"))
        rows, kinds = known.rows[first:last], known.kinds[first:last]
        found: dict[int, Matrix] = {}
        for slot in slots:
            free = self._limits.free(slot)
            released = known.by_kind(slot)[kinds] if len(kinds) else _NOTHING
            found[slot] = free + np.bincount(rows, released, len(free)).astype(np.int64)
        return found

    def next_release(self) -> float:
        """When something is expected to be released next, as of the last call of `free_at`."""
        times = self._flat.times
        first = int(np.searchsorted(times, self._cluster.now, "right"))
        return float(times[first]) if first < len(times) else math.inf

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
            self._ordered.clear()
            rows = range(self._nodes.size)
        elif self._evicted_seen != self.evicted_at_end():
            rows = {*rows, *(entry.row for entry in self._evicting())}
        self._evicted_seen = self.evicted_at_end()
        for row in rows:
            expected = self._expected(row)
            is_changed = is_changed or expected != self._known.get(row, [])
            self._ordered.pop(row, None)
            if expected:
                self._known[row] = expected
            else:
                self._known.pop(row, None)
        self._seen = epoch.usage.end, epoch.pod_starts.end, epoch.run_estimates
        if is_changed:
            self._flat = _flat(self._known)


def _keeps_capacity(entry: ReservationEntry | None, row: int) -> bool:
    """Whether what a pod on the row has from the reservation returns to it."""
    return entry is not None and entry.row == row and not entry.reservation.once


def _is_leaving(pod: PodRecord) -> bool:
    """Whether the pod is deleted, or its eviction was accepted."""
    return pod.cls.terminating or pod.being_preempted


def _lasts(entry: ReservationEntry, time: float) -> bool:
    expires = entry.reservation.expires
    return expires is None or expires > time


def _in_order(expected: Iterable[Expected]) -> list[ExpectedRelease]:
    found = [ExpectedRelease(*each) for each in expected]
    found.sort(key=lambda each: (each.time, each.pod.uid if each.pod is not None else ""))
    return found


def _flat(known: Mapping[int, list[Expected]]) -> FlatReleases:
    """The releases of all rows as arrays, in the order of time."""
    expected = list(chain.from_iterable(known.values()))
    times = np.array([each[0] for each in expected], dtype=np.float64)
    rows = np.repeat(
        np.fromiter(known, dtype=np.intp, count=len(known)), [len(each) for each in known.values()]
    )
    amounts = [each[1] for each in expected]
    kept, kinds = np.unique(np.fromiter(map(id, amounts), np.int64, len(amounts)), return_inverse=True)
    by_id = dict(zip(map(id, amounts), amounts, strict=True))
    order = np.argsort(times, kind="stable")
    return FlatReleases(
        times[order], rows[order], kinds[order], [by_id[each] for each in kept.tolist()]
    )
