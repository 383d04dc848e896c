"""Finds nodes for planned reservations.

A node is suitable for a reservation if it passes the filters as it will be at the start: filters on
nodes as now, and of those on particular resources what does not depend on use (`Filter.lasting`);
affinity, anti-affinity and spread constraints with the plans that stand and without the pods that are
expected to have ended. Whether particular resources are free is found by playing the node forward
(`PlanFits`). Of the suitable nodes that have enough, the best is one that has least to spare.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.calendar import BeforeStart
from holdfast.api.errors import SelectorError
from holdfast.scheduler.cluster.affinity_terms import Role, terms_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.framework.config.plugin_sets import RESERVATION
from holdfast.scheduler.framework.feasibility.compiled_class import ClassFilters
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.hold_planner import is_suitable, refresh_topology, suitable
from holdfast.scheduler.framework.plan_fit import PlanFit, PlanFits, Standing
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.state.cluster import Cluster

Bools = NDArray[np.bool_]
Free = dict[int, NDArray[np.int64]]
"""What is free of each slot, by row."""


_LEFT_OUT = (RESERVATION,)
"""The filter on reservations with the same owners, which says nothing about the start."""


class FoundPlace(NamedTuple):
    """A node for a planned reservation."""

    planned: PlannedReservation
    row: int
    fit: PlanFit


class _FreeBeside:
    """What is free at the start of plans with the same start and end, beside the plans that stand."""

    def __init__(self, alone: Free) -> None:
        self.alone = alone
        """Without plans."""
        self.free: Free = {slot: amounts.copy() for slot, amounts in alone.items()}
        self.plans: dict[int, list[PlannedReservation]] = {}
        """The plans that overlap, by row."""
        self.seen = 0
        """How many of the plans that stand were compared."""


class PlanSearch:
    """Finds rows for planned reservations, one after the other or as a gang."""

    def __init__(
        self,
        cluster: Cluster,
        gangs: Gangs,
        profiles: Mapping[str, Profile],
        fits: PlanFits,
    ) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._limits = cluster.limits
        self._planner = cluster.jobs.planner
        self._gangs = gangs
        self._profiles = profiles
        self._fits = fits
        self._by_class: dict[tuple[int, int], ClassFilters] = {}
        """By profile and class."""
        cluster.classes.on_dropped.append(self._class_dropped)
        self._free_by_start: dict[tuple[float, tuple[int, ...]], Free] = {}
        """What is expected to be free by start and slots, while plans are made."""
        self._beside: dict[tuple[Standing, float, float, tuple[int, ...]], _FreeBeside] = {}
        """By the plans that stand, start, end and slots, while plans are made."""
        self._unending: dict[float, Free] = {}
        """What pods without a known end leave free if they have ended, by start, while plans are
        made."""
        self._largest: dict[int, int] | None = None
        """The most that a pod on a node uses of each slot, while plans are made."""

    @contextmanager
    def memoized(self) -> Iterator[None]:
        """Inside, what is free at a time is computed once; nothing may come or go on a node."""
        self.forget()
        try:
            yield
        finally:
            self.forget()

    def forget(self) -> None:
        """Something came or went on a node."""
        self._free_by_start.clear()
        self._beside.clear()
        self._unending.clear()
        self._largest = None

    def find(
        self, members: list[PlannedReservation], standing: Standing, certain: bool
    ) -> list[FoundPlace] | None:
        """Nodes for all members, where they fit for certain or else may fit; None if one has none."""
        for rows in self._domains(members):
            found = self._find_among(members, rows, standing, certain)
            if found is not None:
                return found
        return None

    def _domains(self, members: list[PlannedReservation]) -> list[Bools | None]:
        """The rows to try, one set after the other: a gang is placed within one topology domain if its
        PodGroup requires one, or if its members require affinity to each other. None for all rows."""
        pods = [each.reservation.pod for each in members]
        classes = [pod.cls for pod in pods if pod is not None]
        job = self._cluster.jobs.of(pods[0]) if pods[0] is not None else None
        if len(members) > 1 and (job is None or not job.topology_key):
            key = _common_domain(classes)
            if key:
                return [each.rows for each in self._gangs.placements.domains(key)]
        return self._gangs.attempts.placements_of([job] if job is not None else [])

    def _find_among(
        self,
        members: list[PlannedReservation],
        among: Bools | None,
        standing: Standing,
        certain: bool,
    ) -> list[FoundPlace] | None:
        found: list[FoundPlace] = []
        beside = standing if len(members) == 1 else standing.copy()
        for planned in members:
            row = self._best_row(planned, among, beside, certain)
            if row < 0:
                return None
            found.append(FoundPlace(planned, row, self._fits.on(planned, row, beside)))
            if beside is not standing:
                beside.add(planned, self._nodes.name(row))
        return found

    def _best_row(
        self, planned: PlannedReservation, among: Bools | None, standing: Standing, certain: bool
    ) -> int:
        """The row with the least to spare on which the plan fits for certain, or else may fit; -1 if
        it fits no row. A row comes first where it fits beside starvation holds that are Waiting."""
        rows = self.suitable(planned, standing)
        if among is not None:
            rows &= among[: len(rows)]
        wanted = self._planner.wanted(planned)
        spare = np.zeros(len(rows))
        possible = rows.copy()
        free = self._free(planned, wanted, standing, certain)
        for slot, amount in wanted.items():
            rows &= free[slot] >= amount
            whole = np.maximum(self._limits.capacity(slot), 1)
            spare += (free[slot] - amount) / whole
        spare[self._displacing(wanted, free)] += len(wanted)
        best = self._first_with_particular(planned, rows, spare, standing, certain)
        if best < 0 and planned.reservation.calendar.before == BeforeStart.PREEMPT:
            return self._best_with_victims(planned, possible, standing, certain)
        return best

    def _displacing(self, wanted: Amounts, free: Free) -> Bools:
        """The rows on which these amounts would be taken from starvation holds that are Waiting;
        `free` counts what these claim."""
        holds = self._cluster.reservations.starvation_holds
        displacing = np.zeros(self._nodes.size, dtype=np.bool_)
        for slot, amount in wanted.items() if holds else ():
            displacing |= free[slot] - holds.outranked_by_row(slot)[: len(displacing)] < amount
        return displacing

    def _first_with_particular(
        self,
        planned: PlannedReservation,
        rows: Bools,
        spare: NDArray[np.float64],
        standing: Standing,
        certain: bool,
    ) -> int:
        """The row with the least to spare that also has the particular resources; -1 if none has."""
        if not rows.any():
            return -1
        costs = np.where(rows, spare, np.inf)
        best = int(np.argmin(costs))
        if not self._planner.kinds(planned, best):
            return best
        for row in np.argsort(costs, kind="stable")[: int(rows.sum())].tolist():
            gone = () if certain else self._fits.may_end(planned, row)
            if self._fits.has_particular(planned, row, standing, gone):
                return int(row)
        return -1

    def _best_with_victims(
        self, planned: PlannedReservation, rows: Bools, standing: Standing, certain: bool
    ) -> int:
        """The row on which the plan fits for certain, or else may fit, if the fewest pods of lower
        priority are evicted beside those that other plans evict there, or -1. Rows of plans that evict
        come first, then those that lack less; any other row is left out if it needs as many as the best
        one even if all its pods are as large as the largest of all."""
        pod, lacks = planned.reservation.pod, self._lacks(planned, standing)
        assert pod is not None
        rows &= self._nodes.lowest[: len(rows)] < pod.cls.priority
        least = self._least_victims(planned, standing)
        evicted = self._evicted_by_others(planned, standing)
        best, fewest = -1, math.inf
        order = np.argsort(np.where(rows, lacks, np.inf), kind="stable")[: int(rows.sum())].tolist()
        for row in sorted(order, key=lambda row: row not in evicted) if evicted else order:
            if row not in evicted and least[row] >= fewest:
                continue
            feasible = self._fits.on(planned, row, standing).feasible
            if feasible == "True" or (feasible == "Unknown" and not certain):
                others = evicted.get(row, frozenset())
                found = self._fits.victims(planned, row, standing)
                victims = sum(each.uid not in others for each in found)
                if victims < fewest:
                    best, fewest = int(row), victims
                if fewest <= (0 if row in evicted else 1):
                    break
        return best

    def _evicted_by_others(
        self, planned: PlannedReservation, standing: Standing
    ) -> dict[int, frozenset[str]]:
        """The uids of the pods that plans which overlap with this one evict, by row."""
        found: dict[int, frozenset[str]] = {}
        for row, plans in standing.overlapping(planned).items():
            evicting = [p for p in plans if p.reservation.calendar.before == BeforeStart.PREEMPT]
            victims = [pod for each in evicting for pod in self._fits.victims(each, row, standing)]
            if victims:
                found[row] = frozenset(pod.uid for pod in victims)
        return found

    def _least_victims(self, planned: PlannedReservation, standing: Standing) -> NDArray[np.float64]:
        """How many pods a row has to lose at least to have what the reservation takes."""
        if self._largest is None:
            self._largest = {}
            for cls in self._cluster.classes.every():
                if cls.placed:
                    for slot, amount in cls.usage:
                        self._largest[slot] = max(amount, self._largest.get(slot, 0))
        wanted, least = self._planner.wanted(planned), np.zeros(self._nodes.size)
        for slot, free in self._free(planned, wanted, standing, certain=True).items():
            largest = self._largest.get(slot, 0)
            if largest:
                least = np.maximum(least, np.ceil((wanted[slot] - free) / largest))
        return least

    def _free(
        self, planned: PlannedReservation, wanted: Amounts, standing: Standing, certain: bool
    ) -> Free:
        """What is free on every row at the start, beside the plans that stand; not to be written to.
        Unless it must be `certain`, pods without a known end count as ended by then."""
        free = self._free_beside(planned, wanted, standing)
        holds = np.flatnonzero(self._cluster.reservations.starvation_holds.rows()).tolist()
        if certain and not holds:
            return free
        free = {slot: amounts.copy() for slot, amounts in free.items()}
        for held in holds:
            for slot, amount in self._cluster.reservations.starvation_holds.outranked_on(held).items():
                if slot in free:
                    free[slot][held] += amount
        if not certain:
            for slot, amounts in self._without_known_end(planned.start).items():
                if slot in free:
                    free[slot] += amounts
        return free

    def _without_known_end(self, start: float) -> Free:
        """What pods without a known end leave free of each slot if they have ended by then, by row."""
        found = self._unending.get(start)
        if found is None:
            found = self._unending[start] = {}
            ends = self._fits.ends_by(start)
            for at in self._cluster.ledger.pods:
                for pod in self._fits.without_known_end(at):
                    for slot, amount in ends.end(pod):
                        if slot not in found:
                            found[slot] = np.zeros(self._nodes.size, dtype=np.int64)
                        found[slot][at] += amount
        return found

    def _free_beside(self, planned: PlannedReservation, wanted: Amounts, standing: Standing) -> Free:
        """What is free on every row at the start, beside the plans that stand."""
        start, end, slots = planned.start, planned.end, tuple(wanted)
        key = start, slots
        if key not in self._free_by_start:
            self._free_by_start[key] = self._planner.free_at(start, wanted)
        known = None if planned in standing else self._beside.get((standing, start, end, slots))
        if known is None:
            known = _FreeBeside(self._free_by_start[key])
            if planned not in standing:  # else it is left out
                self._beside[standing, start, end, slots] = known
        changed: dict[int, None] = {}
        for row, its_start, its_end, each in standing.since(known.seen):
            if its_start < end and start < its_end and each is not planned:
                known.plans.setdefault(row, []).append(each)
                changed[row] = None
        known.seen = standing.count
        if changed:
            rows = list(changed)
            missing = [
                self._planner.most_missing(known.plans[row], start, self._planner.known_releases(row))
                for row in rows
            ]
            for slot, amounts in known.free.items():
                amounts[rows] = known.alone[slot][rows] - [each.get(slot, 0) for each in missing]
        return known.free

    def nearest(self, planned: PlannedReservation, standing: Standing) -> PlanFit:
        """Why no node can have the reservation: of the one that lacks least."""
        lacks = self.shortages(planned, standing)
        if not len(lacks) or not np.isfinite(lacks.min()):
            return PlanFit("False", "no node is feasible for its template")
        row = int(np.argmin(lacks))
        return self._fits.on(planned, row, standing)._replace(feasible="False")

    def shortages(self, planned: PlannedReservation, standing: Standing) -> NDArray[np.float64]:
        """How much each row lacks at the start, as the sum of shares of what is requested; infinite
        where the row is not suitable."""
        rows = self.suitable(planned, standing)
        return np.where(rows, self._lacks(planned, standing), np.inf)

    def _lacks(self, planned: PlannedReservation, standing: Standing) -> NDArray[np.float64]:
        wanted = self._planner.wanted(planned)
        lacks = np.zeros(self._nodes.size)
        for slot, free in self._free(planned, wanted, standing, certain=True).items():
            lacks += np.maximum(wanted[slot] - free, 0) / max(wanted[slot], 1)
        return lacks

    def are_kept(self, members: list[PlannedReservation], standing: Standing) -> bool:
        """Whether the plans are kept even though they may not be met: one of them drains its node, and
        all have a node that is feasible once pods have ended."""
        if not any(each.draining for each in members):
            return False
        rows = [self._nodes.row(each.node) if each.node else None for each in members]
        return all(
            row is not None
            and self.is_suitable(each, row, standing)
            and self._fits.fits_once_pods_end(each, row)
            for each, row in zip(members, rows, strict=True)
        )

    # Suitable nodes

    def suitable(self, planned: PlannedReservation, standing: Standing) -> Bools:
        """The rows that are feasible for the reservation but for amounts and particular resources. Of
        reusable reservations with the same owners a node has one at a time."""
        filters = self._filters(planned)
        if filters is None:
            return np.zeros(self._nodes.size, dtype=np.bool_)
        with self._at_start(planned, filters, standing):
            rows = suitable(self._cluster, filters, _LEFT_OUT, later=True)
        for valid in self._limits.valid:
            rows &= valid()[: len(rows)]
        if filters.cls.exclusive:
            rows[list(self._taken_by_alike(planned, standing))] = False
        return rows

    def is_suitable(self, planned: PlannedReservation, row: int, standing: Standing) -> bool:
        """The same for one row."""
        filters = self._filters(planned)
        if filters is None or not self._nodes.alive[row]:
            return False
        with self._at_start(planned, filters, standing):
            passes = is_suitable(self._cluster, filters, row, _LEFT_OUT, later=True)
        if not passes or not all(valid()[row] for valid in self._limits.valid):
            return False
        return not filters.cls.exclusive or row not in self._taken_by_alike(planned, standing)

    def _filters(self, planned: PlannedReservation) -> ClassFilters | None:
        """The filters of its class; None if no profile schedules it."""
        pod = planned.reservation.pod
        profile = self._profiles.get(pod.scheduler) if pod is not None else None
        if pod is None or profile is None:
            return None
        key = profile.index, pod.cls.id
        found = self._by_class.get(key)
        if found is None:
            found = self._by_class[key] = ClassFilters(self._cluster, profile, pod.cls)
        found.refresh()
        return found

    def _class_dropped(self, cls: PodClass) -> None:
        for profile in self._profiles.values():
            self._by_class.pop((profile.index, cls.id), None)

    def looks_elsewhere(self, planned: PlannedReservation) -> bool:
        """Whether it matters to a plan what happens on other nodes: for constraints on the topology,
        for volumes and devices by claim, which may be in use there, and for other members of a gang."""
        filters, pod = self._filters(planned), planned.reservation.pod
        if filters is None or pod is None:
            return False
        is_member = pod.job is not None
        return bool(filters.facets or filters.cls.volumes or filters.cls.claims or is_member)

    @contextmanager
    def _at_start(
        self, planned: PlannedReservation, filters: ClassFilters, standing: Standing
    ) -> Iterator[None]:
        """Inside, the pods that affinity, anti-affinity and spread constraints count are those that
        will be there at the start, with the reservations that are planned beside it."""
        facets = filters.facets
        if not facets:
            yield
            return

        def counts(cls: PodClass) -> bool:
            return any(facet.counts(cls) for facet in facets)

        ledger, claims = self._cluster.ledger, self._cluster.claims
        with claims.unmoved(), ledger.peek():
            for row in {row for cls in self._cluster.classes if counts(cls) for row in cls.placed}:
                for release in self._planner.releases(row):
                    pod = release.pod
                    if pod is not None and release.time <= planned.start and counts(pod.cls):
                        ledger.remove(pod)
                    elif release.entry is not None and release.time <= planned.start:
                        ledger.release(release.entry.pod)
            for row, plans in standing.overlapping(planned).items():
                for each in plans:
                    other = each.reservation.pod
                    if other is not None and other.row < 0 and counts(other.cls):
                        ledger.reserve(other, row, each.amounts)
            refresh_topology(filters)
            yield
        refresh_topology(filters)

    def _taken_by_alike(self, planned: PlannedReservation, standing: Standing) -> set[int]:
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
        for row, plans in standing.overlapping(planned).items() if len(alike) > 1 else ():
            if any(each.reservation.uid in alike for each in plans):
                found.add(row)
        return found


def _common_domain(classes: list[PodClass]) -> str:
    """The topology key of a required affinity that all classes have to each other; empty if there is
    none. Without it, members would be placed one by one in a domain that is too small for all."""
    try:
        terms = [own.term for own in terms_of(classes[0]) if own.role is Role.REQUIRED]
    except SelectorError:
        return ""
    alike = (term for term in terms if all(term.selects(cls, {}) for cls in classes))
    return next((term.topology_key for term in alike), "")
