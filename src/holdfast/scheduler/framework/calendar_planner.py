"""Plans nodes for reservations that start later, drains them, and starts the reservations.

A plan is made when a reservation is first seen and made again while it is not draining, whenever its
node can no longer have it: the node is gone or infeasible, pods there are expected to end later, or a
reservation of higher priority takes the capacity. From `start - lead` on the plan is kept as it is. At
the start the reservation is scheduled, on its planned node if it can be.

A node can have a reservation, by what is known now (`CapacityPlanner`), if from its start to its end
the capacity less pods, reservations and other plans is enough:

    True      what is expected to have ended by the start leaves enough
    Unknown   enough only if pods without a known end will have ended
    False     not even then

The best node is one that has least to spare. Plans that drain a node and are certain come first, the
others in the order of priority, then age. A gang of
reservations is planned as a whole or not at all.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.calendar import BeforeStart
from holdfast.api.quantity import shown
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.decisions import Decision, Emit, Evict
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.framework.config.plugin_sets import RESERVATION
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.hold_planner import is_suitable, suitable
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle, Statement
from holdfast.scheduler.reservations.calendar import Calendar, PlannedReservation
from holdfast.scheduler.state.cluster import Cluster

Bools = NDArray[np.bool_]
_EVICT_AGAIN = 5.0
"""Seconds until an eviction that was refused is tried again."""
_NAMED = 3
"""How many pods a message names."""


Plans = Mapping[str, list[PlannedReservation]]
"""Plans that stand, by node."""


class PlanFit(NamedTuple):
    """How a planned reservation fits a node."""

    feasible: str
    message: str


class CalendarPlanner:
    """Keeps the plans of the calendar."""

    def __init__(
        self,
        cluster: Cluster,
        columns: ColumnStore,
        cycle: SchedulingCycle,
        gangs: Gangs,
        preemption: Preemption,
        profiles: Mapping[str, Profile],
        pending: Callable[[PodRecord], None],
    ) -> None:
        """`pending` queues a reserve pod."""
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._calendar: Calendar = cluster.reservations.calendar
        self._planner = cluster.jobs.planner
        self._columns = columns
        self._cycle = cycle
        self._gangs = gangs
        self._preemption = preemption
        self._profiles = profiles
        self._pending = pending
        self._seen: tuple[int, ...] = ()
        self._next_end = math.inf
        """When an expectation about a planned node may turn out wrong."""
        self._free_by_start: dict[tuple[float, tuple[int, ...]], dict[int, NDArray[np.int64]]] = {}
        """What is expected to be free by start and slots, while plans are made."""
        self._asked: dict[str, float] = {}
        """When the eviction of a pod was last decided, by its uid."""

    def next_timer(self) -> float | None:
        """The next start, or begin of draining; or when a pod on a planned node should have ended."""
        if not self._calendar:
            return None
        times = [each.start for each in self._calendar]
        times += [each.reservation.calendar.drains_at for each in self._calendar if not each.draining]
        times += [self._next_end, *(asked + _EVICT_AGAIN for asked in self._asked.values())]
        now = self._cluster.now
        return min((time for time in times if time > now), default=None)

    def run(self, now: float) -> list[Decision]:
        """Starts and drains what is due, and makes plans again that changes may concern."""
        decisions = self._start(now)
        for planned in self._calendar:
            if not planned.draining and planned.reservation.calendar.drains_at <= now:
                self._calendar.drain(planned)
                self._dirty(planned)
                if planned.node and planned.reservation.calendar.lead:
                    text = f"{planned.node} takes only what ends by {format_time(planned.start)}"
                    decisions.append(_event(planned, "Draining", text))
        epoch = self._cluster.epoch
        seen = (
            self._calendar.revision,
            epoch.usage.end,
            epoch.nodes.end,
            epoch.pod_starts.end,
            epoch.run_estimates,
            epoch.objects,
        )
        if seen != self._seen or self._next_end <= now or self._asked:
            decisions += self._plan(now)
            self._seen = (self._calendar.revision, epoch.usage.end, *seen[2:])
        return decisions

    # Starts

    def _start(self, now: float) -> list[Decision]:
        """Takes reservations that start now out of the calendar, and schedules them: on their planned
        nodes if these are feasible, gangs as a whole."""
        due = sorted((each for each in self._calendar if each.start <= now), key=_order)
        units: dict[object, list[PlannedReservation]] = {}
        for planned in due:
            reservation, pod = planned.reservation, planned.reservation.pod
            self._calendar.drop(reservation.uid)
            reservation.started = True
            self._dirty(planned)
            if pod is not None:
                units.setdefault(pod.job or reservation.uid, []).append(planned)
        for members in units.values():
            if not self._start_on_planned(members, now):
                for planned in members:
                    if planned.reservation.pod is not None:
                        self._pending(planned.reservation.pod)
        return []

    def _start_on_planned(self, members: list[PlannedReservation], now: float) -> bool:
        """Assumes the reservations on their planned nodes and binds them; False if one is infeasible
        there."""
        statement = Statement(self._cycle)
        for planned in members:
            pod, row = planned.reservation.pod, self._nodes.row(planned.node)
            profile = self._profiles.get(pod.scheduler) if pod is not None else None
            if pod is None or profile is None or row is None or not self._nodes.alive[row]:
                statement.discard()
                return False
            fits = self._is_suitable(planned, row, {}) and self._has_capacity(planned, row)
            if not fits or not statement.assume_on(profile, pod, row):
                statement.discard()
                return False
        first = members[0].reservation.pod
        job = self._cluster.jobs.of(first) if first is not None else None
        if job is not None and not job.is_ready:
            statement.discard()
            return False
        lost = statement.commit(now, reports_ready=True)
        if lost is not None:
            for pod in lost.members:
                self._pending(pod)
        return True

    def _has_capacity(self, planned: PlannedReservation, row: int) -> bool:
        """Whether the row can have the reservation once pods that are in its way have ended. Between it
        and other plans was decided when they were made."""
        nodes, outranked = self._nodes, self._outranked(row)
        return all(
            nodes.held_once_pods_end.item(slot, row)
            + nodes.daemon_requested.item(slot, row)
            - outranked.get(slot, 0)
            + amount
            <= nodes.allocatable.item(slot, row)
            for slot, amount in self._wanted(planned).items()
        )

    def _outranked(self, row: int) -> Amounts:
        """What starvation holds that are Waiting claim on a row, by slot: they come after reservations
        with a start."""
        found: Amounts = {}
        for hold in self._cluster.reservations.starvation_holds.on(row):
            if hold.waiting and hold.entry is not None:
                for slot, amount in hold.entry.remaining.items():
                    found[slot] = found.get(slot, 0) + amount
        return found

    # Plans

    def _plan(self, now: float) -> list[Decision]:
        """Checks every plan, in order, and makes those again that do not hold."""
        decisions: list[Decision] = []
        done: dict[str, list[PlannedReservation]] = {}
        """The plans that stand, by node."""
        units: dict[object, list[PlannedReservation]] = {}
        for planned in sorted(self._calendar, key=lambda each: (not each.is_frozen, *_order(each))):
            pod = planned.reservation.pod
            if pod is not None:
                units.setdefault(pod.job or planned.reservation.uid, []).append(planned)
        self._next_end = math.inf
        self._free_by_start.clear()
        for members in units.values():
            before = [(each.node, each.feasible, each.message) for each in members]
            fits = [self._fit(each, done) for each in members]
            certain = all(fit.feasible == "True" for fit in fits)
            if not certain and not self._are_frozen(members, done):
                fits = self._place(members, fits, done)
            for planned, fit, was in zip(members, fits, before, strict=True):
                planned.feasible, planned.message = fit
                if planned.node:
                    done.setdefault(planned.node, []).append(planned)
                    self._note_next_end(planned)
                if (planned.node, *fit) != was:
                    self._dirty(planned)
                    decisions += self._report(planned, was)
                decisions += self._evict(planned, done, now)
        self._free_by_start.clear()
        self._asked = {uid: at for uid, at in self._asked.items() if at + _EVICT_AGAIN > now}
        return decisions

    def _are_frozen(
        self, members: list[PlannedReservation], done: Mapping[str, list[PlannedReservation]]
    ) -> bool:
        """Whether the plans are kept even though they may not be met: one of them drains its node, and
        all have a node that is feasible but for amounts."""
        if not any(each.draining for each in members):
            return False
        rows = [self._nodes.row(each.node) if each.node else None for each in members]
        return all(
            row is not None and self._is_suitable(each, row, done)
            for each, row in zip(members, rows, strict=True)
        )

    def _report(self, planned: PlannedReservation, was: tuple[str, str, str]) -> list[Decision]:
        node, feasible, _ = was
        if planned.feasible == "False" and feasible != "False":
            return [_event(planned, "NotFeasible", planned.message, "Warning")]
        if planned.node and planned.node != node:
            text = f"planned on {planned.node} from {format_time(planned.start)}"
            return [_event(planned, "Planned", text)]
        return []

    def _note_next_end(self, planned: PlannedReservation) -> None:
        row = self._nodes.row(planned.node)
        if row is not None:
            self._next_end = min(self._next_end, self._planner.next_end(row))

    def _fit(
        self, planned: PlannedReservation, done: Mapping[str, list[PlannedReservation]]
    ) -> PlanFit:
        """How the plan fits its node beside the plans that stand."""
        row = self._nodes.row(planned.node) if planned.node else None
        if row is None or not self._nodes.alive[row]:
            gone = f"node {planned.node} is gone" if planned.node else ""
            return PlanFit("False", gone)
        if not self._is_suitable(planned, row, done):
            return PlanFit("False", f"node {planned.node} is no longer feasible")
        return self._fit_on(planned, row, done)

    def _fit_on(
        self,
        planned: PlannedReservation,
        row: int,
        done: Mapping[str, list[PlannedReservation]],
    ) -> PlanFit:
        """How the plan fits the amounts of a row, with figures if it may not."""
        node, releases = self._nodes.name(row), self._planner.releases(row)
        known = {each.pod.uid for each in releases if each.pod is not None}
        short = self._shortage(planned, row, done)
        if not short:
            return PlanFit("True", "")
        late = [each for each in releases if each.time > planned.start and each.pod is not None]
        there = self._cluster.ledger.pods.get(row, {}).values()
        unknown = [pod for pod in there if pod.uid not in known and not pod.cls.is_daemon]
        if planned.reservation.calendar.before == BeforeStart.PREEMPT:
            victims = self._victims(planned, row)
            if _covers(short, victims):
                return PlanFit("True", _evicts(planned, victims))
        figures = self._figures(short, planned)
        if _covers(short, unknown):
            names = _names([pod for pod in unknown if _helps(short, pod)])
            return PlanFit("Unknown", f"{node}: {figures}, unless {names} end by then")
        if late:
            ends = [
                f"{each.pod.ref.name} runs until {format_time(each.time)}"
                for each in late
                if each.pod is not None and _helps(short, each.pod)
            ]
            figures += "".join(f"; {text}" for text in ends[:_NAMED])
        return PlanFit("False", f"{node}: {figures}")

    def _shortage(
        self,
        planned: PlannedReservation,
        row: int,
        done: Mapping[str, list[PlannedReservation]],
    ) -> Amounts:
        """What will be missing on a row at the start, by slot, beside the other plans that stand."""
        others = [
            each
            for each in done.get(self._nodes.name(row), ())
            if each is not planned and each.overlaps(planned.start, planned.end)
        ]
        taken = self._planner.most_taken(others, planned.start)
        outranked, free = self._outranked(row), self._cluster.ledger.free(row)
        short = {
            slot: amount + taken.get(slot, 0) - int(free[slot]) - outranked.get(slot, 0)
            for slot, amount in self._wanted(planned).items()
        }
        for release in self._planner.releases(row):
            if release.time <= planned.start:
                for slot, amount in release.amounts:
                    if slot in short:
                        short[slot] -= amount
        return {slot: amount for slot, amount in short.items() if amount > 0}

    def _figures(self, short: Amounts, planned: PlannedReservation) -> str:
        """How much is missing at the start, such as `3 cpu short at …`."""
        named = [(self._nodes.slots.name(slot), amount) for slot, amount in sorted(short.items())]
        amounts = ", ".join(f"{shown(name, amount)} {name}" for name, amount in named)
        return f"{amounts} short at {format_time(planned.start)}"

    def _place(
        self,
        members: list[PlannedReservation],
        fits: list[PlanFit],
        done: dict[str, list[PlannedReservation]],
    ) -> list[PlanFit]:
        """Finds nodes for the members: certain ones if there are such for all, else the likeliest. A
        gang is placed within one set of nodes, as its PodGroup requires, and as a whole."""
        first = members[0].reservation.pod
        job = self._cluster.jobs.of(first) if first is not None else None
        for rows in self._gangs.placements_of([job] if job is not None else []):
            found = self._find(members, rows, done, certain=True)
            if found is not None:
                return found
        if all(fit.feasible == "Unknown" for fit in fits):
            return fits  # no other node is better
        for rows in self._gangs.placements_of([job] if job is not None else []):
            found = self._find(members, rows, done, certain=False)
            if found is not None:
                return found
        nearest = []
        for planned in members:
            nearest.append(self._nearest(planned, done))
            self._calendar.assign(planned, "")
        return nearest

    def _find(
        self,
        members: list[PlannedReservation],
        among: Bools | None,
        done: Plans,
        certain: bool,
    ) -> list[PlanFit] | None:
        """Assigns nodes to all members, or to none."""
        found = self._search(members, among, done, certain)
        if found is None:
            return None
        for planned, (node, _) in zip(members, found, strict=True):
            if planned.node != node:
                self._calendar.assign(planned, node)
        return [fit for _, fit in found]

    def _search(
        self,
        members: list[PlannedReservation],
        among: Bools | None,
        done: Plans,
        certain: bool,
    ) -> list[tuple[str, PlanFit]] | None:
        """A node for each member beside the plans that stand; None if one has none."""
        found: list[tuple[str, PlanFit]] = []
        mine = {node: list(plans) for node, plans in done.items()}
        for planned in members:
            row = self._best_row(planned, among, mine, certain)
            if row < 0:
                return None
            node = self._nodes.name(row)
            found.append((node, self._fit_on(planned, row, mine)))
            mine.setdefault(node, []).append(planned)
        return found

    def _best_row(
        self,
        planned: PlannedReservation,
        among: Bools | None,
        done: Mapping[str, list[PlannedReservation]],
        certain: bool,
    ) -> int:
        """The row with the least to spare on which the plan fits for certain, or else may fit; -1 if
        there is none."""
        rows = self._suitable(planned, done)
        if among is not None:
            rows &= among[: len(rows)]
        wanted = self._wanted(planned)
        spare = np.zeros(len(rows))
        free = self._free(planned, wanted, done, certain)
        for slot, amount in wanted.items():
            rows &= free[slot] >= amount
            whole = np.maximum(self._nodes.allocatable[slot, : len(rows)], 1)
            spare += (free[slot] - amount) / whole
        if certain and planned.reservation.calendar.before == BeforeStart.PREEMPT and not rows.any():
            return self._best_with_victims(planned, among, done)
        if not rows.any():
            return -1
        return int(np.argmin(np.where(rows, spare, np.inf)))

    def _best_with_victims(
        self,
        planned: PlannedReservation,
        among: Bools | None,
        done: Mapping[str, list[PlannedReservation]],
    ) -> int:
        """The row on which the plan fits if the fewest pods of lower priority are evicted; -1 if there
        is none."""
        rows = self._suitable(planned, done)
        if among is not None:
            rows &= among[: len(rows)]
        free = self._free(planned, self._wanted(planned), done, certain=False)
        for slot, amount in self._wanted(planned).items():
            rows &= free[slot] >= amount
        best, fewest = -1, math.inf
        for row in np.flatnonzero(rows).tolist():
            fit = self._fit_on(planned, row, done)
            victims = len(self._chosen_victims(planned, row, done))
            if fit.feasible == "True" and victims < fewest:
                best, fewest = row, victims
        return best

    def _free(
        self,
        planned: PlannedReservation,
        wanted: Amounts,
        done: Mapping[str, list[PlannedReservation]],
        certain: bool,
    ) -> dict[int, NDArray[np.int64]]:
        """What is free on every row at the start, beside the plans that stand. Unless it must be
        `certain`, pods without a known end count as gone."""
        key = planned.start, tuple(wanted)
        if key not in self._free_by_start:
            self._free_by_start[key] = self._planner.free_at(planned.start, wanted)
        free = {slot: amounts.copy() for slot, amounts in self._free_by_start[key].items()}
        for held in np.flatnonzero(self._cluster.reservations.starvation_holds.rows()).tolist():
            for slot, amount in self._outranked(held).items():
                if slot in free:
                    free[slot][held] += amount
        for node, plans in done.items():
            row = self._nodes.row(node)
            others = [each for each in plans if each.overlaps(planned.start, planned.end)]
            if row is not None and others:
                for slot, amount in self._planner.most_taken(others, planned.start).items():
                    if slot in free:
                        free[slot][row] -= amount
        if not certain:
            for at, pods in self._cluster.ledger.pods.items():
                known = {e.pod.uid for e in self._planner.releases(at) if e.pod is not None}
                for pod in pods.values():
                    if pod.uid not in known and not pod.cls.is_daemon:
                        for slot, amount in pod.cls.usage:
                            if slot in free:
                                free[slot][at] += amount
        return free

    def _nearest(
        self, planned: PlannedReservation, done: Mapping[str, list[PlannedReservation]]
    ) -> PlanFit:
        """Why no node can have the reservation: of the one that lacks least."""
        rows, wanted = self._suitable(planned, done), self._wanted(planned)
        if not rows.any():
            return PlanFit("False", "no node is feasible for its template")
        lacks = np.zeros(len(rows))
        for slot, free in self._free(planned, wanted, done, certain=True).items():
            lacks += np.maximum(wanted[slot] - free, 0) / max(wanted[slot], 1)
        row = int(np.argmin(np.where(rows, lacks, np.inf)))
        return self._fit_on(planned, row, done)._replace(feasible="False")

    def _is_suitable(
        self,
        planned: PlannedReservation,
        row: int,
        done: Mapping[str, list[PlannedReservation]],
    ) -> bool:
        """Whether one row is feasible for the reservation but for amounts; see `_suitable`."""
        pod, nodes = planned.reservation.pod, self._nodes
        profile = self._profiles.get(pod.scheduler) if pod is not None else None
        if pod is None or profile is None or not nodes.alive[row]:
            return False
        column = self._columns.column(profile, pod.cls)
        skipped = (RESERVATION,) if pod.cls.exclusive else ()
        if not is_suitable(self._cluster, column, row, skipped):
            return False
        return not pod.cls.exclusive or row not in self._taken_by_alike(planned, done)

    def _suitable(
        self, planned: PlannedReservation, done: Mapping[str, list[PlannedReservation]]
    ) -> Bools:
        """The rows that are feasible for the reservation but for amounts. Of reusable reservations with
        the same owners a node has one at a time."""
        pod, nodes = planned.reservation.pod, self._nodes
        profile = self._profiles.get(pod.scheduler) if pod is not None else None
        if pod is None or profile is None:
            return np.zeros(nodes.size, dtype=np.bool_)
        column = self._columns.column(profile, pod.cls)
        if not pod.cls.exclusive:
            return suitable(self._cluster, column)
        rows = suitable(self._cluster, column, without=(RESERVATION,))
        rows[list(self._taken_by_alike(planned, done))] = False
        return rows

    def _taken_by_alike(
        self, planned: PlannedReservation, done: Mapping[str, list[PlannedReservation]]
    ) -> set[int]:
        """The rows that will have a reusable reservation with the same owners at its start."""
        pod = planned.reservation.pod
        assert pod is not None
        alike = self._cluster.reservations.members.get(pod.cls.owner_spec_id, {})
        found = {
            other.pod.row
            for other in alike.values()
            if other.pod is not None
            and other.pod.cls.exclusive
            and other.pod.row >= 0
            and (other.expires is None or other.expires > planned.start)
        }
        for node, plans in done.items() if len(alike) > 1 else ():
            row = self._nodes.row(node)
            if row is not None and any(
                each.reservation.uid in alike and each.overlaps(planned.start, planned.end)
                for each in plans
            ):
                found.add(row)
        return found

    def _wanted(self, planned: PlannedReservation) -> Amounts:
        """The resources it takes, by slot."""
        names = self._nodes.slots
        return {slot: amount for slot, amount in planned.amounts.items() if names.name(slot)}

    # Questions; nothing is changed

    def certain_node(self, planned: PlannedReservation) -> str:
        """The node on which the reservation, with the rest of its gang, can be planned for certain
        beside the plans that come first; empty if there is none."""
        members, done = self._beside(planned)
        self._free_by_start.clear()
        try:
            if self._are_frozen(members, done):
                certain = all(self._fit(each, done).feasible == "True" for each in members)
                return planned.node if certain else ""
            pod = planned.reservation.pod
            job = self._cluster.jobs.of(pod) if pod is not None else None
            for rows in self._gangs.placements_of([job] if job is not None else []):
                found = self._search(members, rows, done, certain=True)
                if found is not None:
                    return found[members.index(planned)][0]
            return ""
        finally:
            self._free_by_start.clear()

    def first_blocked(self, planned: PlannedReservation) -> tuple[PlannedReservation, Plans]:
        """Of its gang the first member without a certain node beside the others, or itself, and the
        plans beside it."""
        members, done = self._beside(planned)
        mine = {node: list(plans) for node, plans in done.items()}
        if self._are_frozen(members, done):
            return planned, mine
        self._free_by_start.clear()
        try:
            for member in members:
                row = self._best_row(member, None, mine, certain=True)
                if row < 0:
                    return member, mine
                mine.setdefault(self._nodes.name(row), []).append(member)
        finally:
            self._free_by_start.clear()
        return planned, self._beside(planned)[1]

    def nearest_rows(
        self, planned: PlannedReservation, done: Plans, most: int
    ) -> list[tuple[int, Amounts]]:
        """The rows that lack the least of what the reservation takes at its start beside these plans,
        and what they lack by slot. A plan that is kept has its own row only."""
        row = self._nodes.row(planned.node) if planned.node else None
        if row is not None and self._are_frozen([planned], done):
            return [(row, self._shortage(planned, row, done))]
        wanted = self._wanted(planned)
        rows = np.flatnonzero(self._suitable(planned, done))
        lacks = np.zeros(len(rows))
        self._free_by_start.clear()
        for slot, free in self._free(planned, wanted, done, certain=True).items():
            lacks += np.maximum(wanted[slot] - free[rows], 0) / max(wanted[slot], 1)
        self._free_by_start.clear()
        nearest = [int(row) for row in rows[np.argsort(lacks, kind="stable")][:most]]
        return [(row, self._shortage(planned, row, done)) for row in nearest]

    def _beside(self, planned: PlannedReservation) -> tuple[list[PlannedReservation], Plans]:
        """The plans of its gang, or its own, and those on nodes that come first."""
        pod = planned.reservation.pod
        job = pod.job if pod is not None else None
        members, done = [planned], dict[str, list[PlannedReservation]]()
        for other in sorted(self._calendar, key=_order):
            theirs = other.reservation.pod
            if other is planned or theirs is None:
                continue
            if job is not None and theirs.job == job:
                members.append(other)
            elif other.node and (other.draining or _order(other) < _order(planned)):
                done.setdefault(other.node, []).append(other)
        return members, done

    # Draining

    def _victims(self, planned: PlannedReservation, row: int) -> list[PodRecord]:
        """The pods on a row that may be evicted for the reservation, least important first: of lower
        priority, and not expected to have ended by its start."""
        pod = planned.reservation.pod
        priority = pod.cls.priority if pod is not None else 0
        ends = {e.pod.uid: e.time for e in self._planner.releases(row) if e.pod is not None}
        found = [
            each
            for each in self._cluster.ledger.pods.get(row, {}).values()
            if each.cls.priority < priority
            and not each.cls.is_daemon
            and not each.cls.non_preemptible
            and ends.get(each.uid, math.inf) > planned.start
        ]
        return sorted(found, key=lambda each: (each.cls.priority, -each.since, each.uid))

    def _chosen_victims(
        self,
        planned: PlannedReservation,
        row: int,
        done: Mapping[str, list[PlannedReservation]],
    ) -> list[PodRecord]:
        """The victims that have to go, no more than are needed."""
        short = self._shortage(planned, row, done)
        chosen: list[PodRecord] = []
        for pod in self._victims(planned, row):
            if all(lack <= 0 for lack in short.values()):
                break
            if _helps(short, pod):
                chosen.append(pod)
                for slot, amount in pod.cls.usage:
                    if slot in short:
                        short[slot] -= amount
        return chosen

    def _evict(
        self,
        planned: PlannedReservation,
        done: Mapping[str, list[PlannedReservation]],
        now: float,
    ) -> list[Decision]:
        """Evicts pods in the way of a reservation that drains its node with `Preempt`."""
        row = self._nodes.row(planned.node) if planned.node else None
        preempts = planned.reservation.calendar.before == BeforeStart.PREEMPT
        if row is None or not (preempts and planned.draining):
            return []
        decisions: list[Decision] = []
        for pod in self._chosen_victims(planned, row, done):
            asked = self._asked.get(pod.uid, -math.inf)
            if pod.being_preempted or pod.cls.terminating or asked + _EVICT_AGAIN > now:
                continue
            self._asked[pod.uid] = now
            starts = format_time(planned.start)
            text = f"evicted for {planned.reservation.ref}, which starts at {starts}"
            decisions.append(Emit(pod.ref, "Normal", "Preempted", text, "Preempting"))
            self._preemption.apply([Evict(pod.ref, text)])
        return decisions

    def _dirty(self, planned: PlannedReservation) -> None:
        """Has the status written."""
        self._cluster.reservations.dirty[planned.reservation.uid] = None


def _order(planned: PlannedReservation) -> tuple[float | str, ...]:
    """Plans of higher priority first, then those of older reservations."""
    reservation = planned.reservation
    priority = reservation.pod.cls.priority if reservation.pod is not None else 0
    return -priority, reservation.created, reservation.name


def _covers(short: Amounts, pods: list[PodRecord]) -> bool:
    """Whether these pods have as much as is missing."""
    left = dict(short)
    for pod in pods:
        for slot, amount in pod.cls.usage:
            if slot in left:
                left[slot] -= amount
    return all(lack <= 0 for lack in left.values())


def _helps(short: Amounts, pod: PodRecord) -> bool:
    """Whether the pod has some of what is missing."""
    return any(short.get(slot, 0) > 0 and amount > 0 for slot, amount in pod.cls.usage)


def _evicts(planned: PlannedReservation, victims: list[PodRecord]) -> str:
    drains = format_time(planned.reservation.calendar.drains_at)
    return f"evicts {_names(victims)} from {drains} on, as far as they are in the way"


def _names(pods: list[PodRecord]) -> str:
    names = [f"{pod.namespace}/{pod.name}" for pod in pods[:_NAMED]]
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return ", ".join(names) + more


def _event(planned: PlannedReservation, reason: str, text: str, type: str = "Normal") -> Emit:
    return Emit(planned.reservation.ref, type, reason, text, "Planning")
