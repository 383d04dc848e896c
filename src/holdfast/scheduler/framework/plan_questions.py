"""Questions about plans, for explanations and advice. Nothing is changed by asking."""

from typing import NamedTuple

import numpy as np

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.framework.plan_fit import PlanFits, Standing, WaitedPods
from holdfast.scheduler.framework.plan_search import PlanSearch
from holdfast.scheduler.jobs.node_forecast import planning_order
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.state.cluster import Cluster


class PlanObstacles(NamedTuple):
    """The pods in the way of a plan."""

    victims: list[PodRecord]
    """Those that will be evicted."""
    waited: WaitedPods
    """Those without a known end, of which enough must have ended by its start."""


class PlanQuestions:
    """Asks how reservations would be planned."""

    def __init__(self, cluster: Cluster, search: PlanSearch, fits: PlanFits) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._calendar = cluster.reservations.calendar
        self._search = search
        self._fits = fits

    def certain_node(self, planned: PlannedReservation) -> str:
        """The node on which the reservation, with the rest of its gang, can be planned for certain
        beside the plans that come first; empty if there is none."""
        members, standing = self._beside(planned)
        if self._search.are_kept(members, standing):
            fits = [self._fits.on(each, self._row(each), standing) for each in members]
            return planned.node if all(fit.feasible == "True" for fit in fits) else ""
        with self._search.memoized():
            found = self._search.find(members, standing, certain=True)
        return self._nodes.name(found[members.index(planned)].row) if found is not None else ""

    def obstacles(self, planned: PlannedReservation) -> PlanObstacles:
        """What is in the way of a plan on its node, beside the other plans there."""
        row, none = self._nodes.row(planned.node) if planned.node else None, WaitedPods([], [])
        if row is None:
            return PlanObstacles([], none)
        standing = Standing(self._cluster, [each for each in self._calendar if each is not planned])
        victims = self._fits.victims_of_plan(planned, row, standing)
        if victims or planned.feasible == "True":
            return PlanObstacles(victims, none)
        return PlanObstacles([], self._fits.waited_for(planned, row, standing))

    def first_blocked(self, planned: PlannedReservation) -> tuple[PlannedReservation, Standing]:
        """Of its gang the first member without a certain node beside the others, or itself, and the
        plans beside it."""
        members, standing = self._beside(planned)
        if not self._search.are_kept(members, standing):
            beside = standing.copy()
            with self._search.memoized():
                for member in members:
                    found = self._search.find([member], beside, certain=True)
                    if found is None:
                        return member, beside
                    beside.add(member, self._nodes.name(found[0].row))
        return planned, standing

    def nearest_rows(
        self, planned: PlannedReservation, standing: Standing, most: int
    ) -> list[tuple[int, Amounts]]:
        """The rows that lack the least of what the reservation takes at its start beside these plans,
        and what they lack of resources by slot. A plan that is kept has its own row only."""
        if self._search.are_kept([planned], standing):
            rows = [self._row(planned)]
        else:
            with self._search.memoized():
                lacks = self._search.shortages(planned, standing)
            order = np.argsort(lacks, kind="stable")
            rows = [int(row) for row in order[:most] if np.isfinite(lacks[row])]
        name = self._nodes.slots.name
        found = [(row, self._fits.shortage(planned, row, standing)) for row in rows]
        return [(row, {slot: n for slot, n in short.items() if name(slot)}) for row, short in found]

    def _row(self, planned: PlannedReservation) -> int:
        row = self._nodes.row(planned.node)
        assert row is not None
        return row

    def _beside(self, planned: PlannedReservation) -> tuple[list[PlannedReservation], Standing]:
        """The plans of its gang, or its own, and those on nodes that come first."""
        pod = planned.reservation.pod
        job = pod.job if pod is not None else None
        members, standing = [planned], Standing(self._cluster)
        for other in sorted(self._calendar, key=planning_order):
            theirs = other.reservation.pod
            if other is planned or theirs is None:
                continue
            if job is not None and theirs.job == job:
                members.append(other)
            elif other.draining or planning_order(other) < planning_order(planned):
                standing.add(other, other.node)
        return members, standing
