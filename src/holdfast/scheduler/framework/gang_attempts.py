"""Placing the members of a job in a statement: as many as it needs, in one topology domain if its group
names a topology key. What is placed is assumed until the statement is discarded or committed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.gang_admission import GangAdmission
from holdfast.scheduler.framework.gang_failures import GangRefusal, member_order
from holdfast.scheduler.framework.placements import PlacementGenerator, TopologyPlacement
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle, Statement
from holdfast.scheduler.jobs import Job, Jobs

MemberOrder = Callable[[PodRecord], tuple[int, float, Any, str]]


class GangAttempt(NamedTuple):
    """What comes of an attempt to schedule a job. While it is looked at, the placed members are assumed
    on their rows."""

    members: list[PodRecord]
    """Those that are tried, in this order."""
    placed: list[PodRecord]
    left: list[PodRecord]
    is_ready: bool
    refusal: GangRefusal | None = None
    """Why none is tried, whatever the nodes are like."""
    rows: NDArray[np.bool_] | None = None
    """The topology domain in which they are tried; None for all rows."""


class GangAttempts:
    """Tries members of jobs on nodes."""

    def __init__(
        self,
        jobs: Jobs,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        cycle: SchedulingCycle,
        placements: PlacementGenerator,
        admission: GangAdmission,
    ) -> None:
        self._jobs = jobs
        self._profiles = profiles
        self._columns = columns
        self._cycle = cycle
        self._placements = placements
        self._admission = admission

    def placements_of(self, jobs: list[Job]) -> list[NDArray[np.bool_] | None]:
        """The rows to try the jobs in, one set after the other; None for all rows."""
        placements = self._placements.of(jobs[0]) if jobs else None
        return [None] if placements is None else [each.rows for each in placements]

    def best_placement(
        self, job: Job, members: list[PodRecord], placements: list[TopologyPlacement]
    ) -> TopologyPlacement | None:
        """The placement with the most members, of several the first in the order of `ordered`; None if
        the job is ready in none."""
        best, placed = None, 0
        for most, placement in self._placements.ordered(job, members, placements):
            if most <= placed:
                break
            statement = Statement(self._cycle)
            with self._cycle.search.within(placement.rows):
                self.assume_all(statement, members)
            if job.is_ready and len(statement.assumed) > placed:
                best, placed = placement, len(statement.assumed)
            statement.discard()
        return best

    def can_start(self, jobs: list[Job], members: list[PodRecord]) -> bool:
        """Whether the jobs could be scheduled now."""
        if self._admission.early_refusal(jobs, members) is not None:
            return False
        placements = self._placements.of(jobs[0])
        if placements is not None:
            return self.best_placement(jobs[0], members, placements) is not None
        statement = Statement(self._cycle)
        self.assume_all(statement, members)
        ready = bool(statement.assumed) and all(job.is_ready for job in jobs)
        statement.discard()
        return ready

    @contextmanager
    def attempt(
        self,
        job: Job,
        row_for: Callable[[PodRecord], int] | None = None,
        order: MemberOrder = member_order,
    ) -> Iterator[GangAttempt]:
        """What would come of scheduling the job now: `schedule` without binding anything. Members that
        have no feasible node go where `row_for` says, as in the backfill action. They are tried in
        another order if one is given."""
        jobs = self._jobs.partners(job)
        members = sorted(self._admission.tried_members(jobs), key=order)
        refusal = self._admission.early_refusal(jobs, members)
        if refusal is not None:
            yield GangAttempt(members, [], members, False, refusal)
            return
        rows = self._rows_to_try(job, members)
        if not rows:
            yield GangAttempt(members, [], members, False)
            return

        def count(among: NDArray[np.bool_] | None) -> int:
            with self._assumed(jobs, members, among, row_for) as tried:
                return len(tried.placed)

        most = max(rows, key=count) if len(rows) > 1 else rows[0]
        with self._assumed(jobs, members, most, row_for) as tried:
            yield tried

    @contextmanager
    def attempt_within(self, job: Job, rows: NDArray[np.bool_] | None) -> Iterator[GangAttempt]:
        """The same in these rows only, and whatever else keeps the job from being tried."""
        jobs = self._jobs.partners(job)
        with self._assumed(jobs, self._admission.tried_members(jobs), rows, None) as found:
            yield found

    def is_ready_in(self, job: Job, members: list[PodRecord]) -> bool:
        """Whether the job would be ready if its members were tried in this order."""
        jobs = self._jobs.partners(job)
        for rows in self.placements_of(jobs):
            with self._assumed(jobs, members, rows, None) as found:
                if found.is_ready:
                    return True
        return False

    def _rows_to_try(self, job: Job, members: list[PodRecord]) -> list[NDArray[np.bool_] | None]:
        """The best placement, or all of them if the job is ready in none; None for all rows."""
        placements = self._placements.of(job)
        if placements is None:
            return [None]
        best = self.best_placement(job, members, placements)
        return [each.rows for each in (placements if best is None else [best])]

    @contextmanager
    def _assumed(
        self,
        jobs: list[Job],
        members: list[PodRecord],
        rows: NDArray[np.bool_] | None,
        row_for: Callable[[PodRecord], int] | None,
    ) -> Iterator[GangAttempt]:
        statement = Statement(self._cycle)
        with self._cycle.search.within(rows):
            enough = self.enough(jobs, members, statement)
            left = self.assume_all(statement, members, enough)
            if left and enough is not None and all(job.is_ready for job in jobs):
                left = self.assume_all(statement, left)
            elif left and row_for is not None:
                statement.discard()
                self.assume_each(statement, members, row_for)
            placed = [pod for _, pod in statement.assumed]
            taken = {pod.uid for pod in placed}
            left = [pod for pod in members if pod.uid not in taken]
            ready = all(job.is_ready for job in jobs)
            try:
                yield GangAttempt(members, placed, left, ready, None, rows)
            finally:
                statement.discard()

    def enough(
        self, jobs: list[Job], members: list[PodRecord], statement: Statement
    ) -> Callable[[], bool] | None:
        """A function that returns whether the job has as many placed members as it needs; None if the
        job has no members beyond those, or is ready already."""
        job = jobs[0]
        needed = max(1, job.still_needs - job.ready_members)
        if len(jobs) > 1 or needed >= len(members) or job.is_ready or job.core is not None:
            return None
        return lambda: len(statement.assumed) >= needed and job.is_ready

    def assume_all(
        self,
        statement: Statement,
        members: list[PodRecord],
        is_enough: Callable[[], bool] | None = None,
    ) -> list[PodRecord]:
        """Assumes every member that fits, until `is_enough`, and returns the others. Members are tried
        again after others were placed where affinity or spread constraints depend on those."""
        left = members
        queues, limits = self._jobs.queues, self._jobs.queue_limits
        while True:
            again, tried, progress, depends = [], set(), False, False
            for number, pod in enumerate(left, 1):
                profile = self._profiles[pod.scheduler]
                kind = (profile.index, pod.cls.id)
                if (kind in tried and pod.pinned_node is None and not pod.nominated) or (
                    queues and limits.admission_error(pod)
                ):
                    again.append(pod)
                elif statement.assume(profile, pod):
                    if is_enough is not None and is_enough():
                        return again + left[number:]
                    progress = progress or bool(again)
                else:
                    if not statement.was_refused:
                        tried.add(kind)
                    depends = depends or not self._columns.column(profile, pod.cls).is_local
                    again.append(pod)
            if not (again and progress and depends):
                return again
            left = again

    def assume_each(
        self, statement: Statement, members: list[PodRecord], row_for: Callable[[PodRecord], int]
    ) -> list[tuple[PodRecord, int]]:
        """Assumes every member that fits, on the row that `row_for` returns if no node is feasible.
        Returns those that are on such rows."""
        limits, found = self._jobs.queue_limits, []
        for pod in members:
            profile = self._profiles[pod.scheduler]
            if limits.admission_error(pod) or statement.assume(profile, pod):
                continue
            row = row_for(pod)
            if row >= 0 and statement.assume_on(profile, pod, row):
                found.append((pod, row))
        return found
