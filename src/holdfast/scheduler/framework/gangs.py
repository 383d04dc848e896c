"""Gang scheduling: jobs of several pods, from the queue to a decision.

One pending member, the leader, is in the scheduling queue for all of them, and for partner jobs that
name the same partners; a partner that names others has its own leader. When it is popped, as many
members are assumed as the job needs. If the job is then ready they are bound, otherwise all of them are
unreserved. Of a job that is ready already, every member that fits is bound. Members beyond those the
job needs are scheduled after all other pending pods of the same priority; where queues share capacity,
one at a time. Members of a PodGroup of `scheduling.k8s.io` are all tried at once, as kube-scheduler
does, and in one topology domain if it names a topology key.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.quantity import QuantityError, amount
from holdfast.scheduler.cluster.decisions import Nominate
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework import core_groups
from holdfast.scheduler.framework.diagnosis import NO_NODES
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.gang_failures import (
    GATED,
    MORE_CAPACITY,
    NOT_ENOUGH_RESOURCES,
    QUEUE,
    SCHEDULER_ERROR,
    GangFailureHandler,
    GangRefusal,
    Stops,
    Unpermitted,
    led_members,
    member_order,
    pending_members,
)
from holdfast.scheduler.framework.placements import PlacementGenerator, TopologyPlacement
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle, Statement
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.jobs import Job, JobName, JobProblem
from holdfast.scheduler.jobs.job import CORE, NO_GROUP, NOT_ENOUGH_OF_TASK, NOT_ENOUGH_TASKS
from holdfast.scheduler.state.cluster import Cluster

MemberOrder = Callable[[PodRecord], tuple[int, float, Any, str]]
_STANDING = ("active", "backoff", "unschedulable")
_FEW = 3
"""From this many members on it pays to estimate first whether enough of them can fit."""


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


class Gangs:
    """Schedules jobs of several pods."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        cycle: SchedulingCycle,
        preemption: Preemption,
        failures: GangFailureHandler,
    ) -> None:
        self._cluster = cluster
        self._jobs = cluster.jobs
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._cycle = cycle
        self._preemption = preemption
        self._failures = failures
        self.placements = PlacementGenerator(cluster, profiles, columns)
        self._rest: dict[JobName, list[PodRecord]] = {}
        """Members still pending, of jobs that became ready in this round."""
        cluster.jobs.on_changed.append(self.changed)

    # Members that become pending or stop being so

    def pending(self, pod: PodRecord, now: float) -> None:
        """Queues a pending member: as the leader if there is none, otherwise behind the leader."""
        job = self._jobs.of(pod)
        assert job is not None
        leader = self._queued_leader(job)
        if leader is None or leader is pod:
            job.leader = pod
            self._queue.changed(pod, now)
            return
        self._queue.follow(pod)
        self._queue.changed(leader, now)

    def settled(self, pod: PodRecord) -> None:
        """A member is no longer pending: if it was the leader, another member becomes the leader."""
        job = self._jobs.of(pod)
        if job is None or job.leader is not pod:
            return
        job.leader = None
        for other in job.waiting():
            if other is not pod and self._queue.place(other.uid) == "following":
                self.pending(other, self._cluster.now)
                return

    def commit(self, statement: Statement, now: float) -> bool:
        """Binds pods that the backfill or the reserve action has placed, and returns whether plugins
        permit it. Members beyond those that the job needs may be left: one of them becomes the leader
        in place of one that is bound."""
        placed = [pod for _, pod in statement.assumed]
        for pod in placed:
            self._queue.remove(pod)
        lost = statement.commit(now, reports_ready=True)
        if lost is not None:
            self._failures.refuse_unpermitted(lost, now)
            return False
        for pod in placed:
            job = self._jobs.of(pod)
            if job is not None and job.leader is pod:
                job.has_enough = job.is_ready
                self.settled(pod)
        return True

    def changed(self, job: Job) -> None:
        """The job itself changed: wakes up its leader and those of its partners."""
        for other in self._jobs.partners(job):
            leader = self._queued_leader(other)
            if leader is not None:
                self._queue.changed(leader, self._cluster.now)

    def _queued_leader(self, job: Job) -> PodRecord | None:
        """The job's leader, if it is in the queue."""
        leader = job.leader
        if leader is None or leader.phase is not Phase.PENDING or leader.uid not in job.members:
            return None
        return leader if self._queue.place(leader.uid) in _STANDING else None

    # Scheduling a job

    def schedule(self, leader: PodRecord, now: float, one_by_one: bool = False) -> int:
        """Tries to schedule the pending members and returns how many were tried. With `one_by_one`
        at most one member beyond those the job needs is placed."""
        job = self._jobs.of(leader)
        assert job is not None
        job.has_enough = False
        rest = self._rest.pop(job.name, None)
        if rest is not None:
            return self._schedule_rest(leader, rest, now, one_by_one)
        jobs = self._jobs.partners(job)
        members = self.pending_members(leader)
        for pod in led_members(leader, members, self._jobs):
            self._queue.remove(pod)
        for each in jobs:
            each.tried = True
        refusal = self.early_refusal(jobs, members)
        if refusal is None and self._cannot_be_ready(jobs, members):
            self._failures.keep_conditions(leader, members, self._may_wake(members), now)
            return len(members)
        if refusal is None and one_by_one and jobs == [job] and job.is_ready:
            return self._schedule_rest(leader, members, now, one_by_one)
        if refusal is None:
            refusal = self._attempt(jobs, members, now)
            if refusal is not None and job.interrupted:
                refusal = self._finish_start(jobs, members, refusal, now)
        if refusal is not None:
            self._failures.refuse(leader, members, refusal, now)
        if len(jobs) > 1:
            self._requeue_partners(job, jobs, members)
        return len(members) - len(self._rest.get(job.name, ()))

    def _requeue_partners(self, job: Job, jobs: list[Job], members: list[PodRecord]) -> None:
        """Takes members that were placed along with the job's from the queue, where their own leaders
        are. If one of these was placed, another member becomes the leader."""
        others = [each for each in jobs if not self._jobs.is_queued_with(each, job)]
        names = {each.name for each in others}
        for pod in members:
            if pod.job in names and pod.phase is not Phase.PENDING:
                self._queue.take(pod)
                self.settled(pod)

    def _attempt(self, jobs: list[Job], members: list[PodRecord], now: float) -> GangRefusal | None:
        """Assumes members in a statement and commits it if the jobs are ready; otherwise, or if plugins
        permit too few of them, returns why. A job with a topology constraint is tried in the best
        placement only."""
        placements = self.placements.of(jobs[0])
        if placements is None:
            return self._attempt_within(jobs, members, now)
        best = self.best_placement(jobs[0], members, placements)
        if best is None:
            return self._no_placement(jobs[0], members, placements)
        with self._cycle.search.within(best.rows):
            return self._attempt_within(jobs, members, now)

    def best_placement(
        self, job: Job, members: list[PodRecord], placements: list[TopologyPlacement]
    ) -> TopologyPlacement | None:
        """The placement with the most members, of several the first in the order of `ordered`; None if
        the job is ready in none."""
        best, placed = None, 0
        for most, placement in self.placements.ordered(job, members, placements):
            if most <= placed:
                break
            statement = Statement(self._cycle)
            with self._cycle.search.within(placement.rows):
                self.assume_all(statement, members)
            if job.is_ready and len(statement.assumed) > placed:
                best, placed = placement, len(statement.assumed)
            statement.discard()
        return best

    def _no_placement(
        self, job: Job, members: list[PodRecord], placements: list[TopologyPlacement]
    ) -> GangRefusal:
        """Why the job is ready in none of the placements, with the result of the first one."""
        wakes_on = self._may_wake(members) | Change.NODE_LABELS
        if not placements:
            return _refusal(NOT_ENOUGH_RESOURCES, core_groups.NO_PLACEMENTS, wakes_on)
        statement, rows = Statement(self._cycle), placements[0].rows
        with self._cycle.search.within(rows):
            left = self.assume_all(statement, members)
        placed = {pod.uid for _, pod in statement.assumed}
        first, _ = core_groups.unmet(job, members, placed)
        text = core_groups.no_placements(len(placements), first)
        messages = {pod.uid: self._message_within(pod, rows) for pod in left}
        why = _refusal(NOT_ENOUGH_RESOURCES, text, wakes_on)._replace(messages=messages)
        why = core_groups.refusal_of(job, members, placed, why, text)
        statement.discard()
        return why

    def _message_within(self, pod: PodRecord, rows: NDArray[np.bool_]) -> str:
        """The condition message of a pod that fits none of these rows."""
        column = self._columns.column(self._profiles[pod.scheduler], pod.cls)
        if column.rejected is not None:
            return column.verdict().message(int(rows.sum()))
        return column.diagnosis.verdict_within(rows).message(int(rows.sum()))

    def _attempt_within(
        self, jobs: list[Job], members: list[PodRecord], now: float
    ) -> GangRefusal | None:
        stops: Stops = []
        lost: Unpermitted | None = None
        while True:
            statement = Statement(self._cycle)
            enough = self._enough(jobs, members, statement)
            left = self.assume_all(statement, members, enough)
            # Assumed members count in `is_ready`.
            if not statement.assumed or not all(job.is_ready for job in jobs):
                why = self._failures.reasons(jobs, left)
                if jobs[0].core is not None:
                    placed = {pod.uid for _, pod in statement.assumed}
                    why = core_groups.refusal_of(jobs[0], members, placed, why)
                statement.discard()
                return why if lost is None else self._failures.unpermitted(lost, stops)
            refusal = self._failures.reasons(jobs, left) if left and enough is None else None
            lost = statement.commit(now, reports_ready=True)
            if lost is None:
                for pod, stop in stops:
                    self._failures.refuse_member(pod, stop, now)
                if enough is not None:
                    self._requeue_rest(jobs[0], left)
                return refusal
            # Other members may take the place of those that were not permitted.
            stops += lost.stops
            refused = {pod.uid for pod, _ in lost.stops}
            members = [pod for pod in members if pod.uid not in refused]
            if not all(job.would_be_ready(p for p in members if p.job == job.name) for job in jobs):
                return self._failures.unpermitted(lost, stops)

    def _enough(
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

    def _finish_start(
        self, jobs: list[Job], members: list[PodRecord], refusal: GangRefusal, now: float
    ) -> GangRefusal | None:
        """Tries again as if no pod of another job had a nominated node and no pre-allocation or
        preemption hold were Waiting: the rest of a job whose start was interrupted comes before these,
        because it had its places before, and they may wait for what was taken by it. A pod whose
        nominated node is used loses its nomination; a reservation goes on waiting."""
        cluster = self._cluster
        names = {job.name for job in jobs}
        preemption_holds, changes = cluster.reservations.preemption_holds, cluster.changes
        nominated = [
            (pod, node)
            for node, there in cluster.nominator.items()
            for pod in there.values()
            if pod.job not in names and pod.reservation is None and pod.uid not in preemption_holds
        ]
        waiting = cluster.reservations.waiting_pre_allocations()
        if not (nominated or waiting) or all(job.is_ready for job in jobs):
            return refusal
        for pod, _ in nominated:
            cluster.nominate(pod, "")
        reserved = [(entry.pod, entry.amounts) for entry in waiting]
        for pod, _ in reserved:
            cluster.ledger.resize(pod, {})
        cluster.undo_changes(changes)
        again = self._attempt(jobs, members, now)
        for pod, amounts in reserved:
            cluster.ledger.resize(pod, amounts)
        taken = {cluster.nodes.name(pod.row) for pod in members if pod.row >= 0}
        for pod, node in nominated:
            cluster.nominate(pod, node)
        lost = [pod for pod, node in nominated if node in taken]
        self._preemption.apply([Nominate(pod.ref, "") for pod in lost])
        return again

    def _schedule_rest(
        self, leader: PodRecord, members: list[PodRecord], now: float, one_by_one: bool
    ) -> int:
        """Schedules members beyond those the job needs."""
        job = self._jobs.of(leader)
        assert job is not None
        statement = Statement(self._cycle)
        stop = (lambda: bool(statement.assumed)) if one_by_one else None
        placements = self.placements.of(job)
        domain = placements[0].rows if placements else None
        with self._cycle.search.within(domain):
            left = self.assume_all(statement, members, stop)
        again = one_by_one and bool(statement.assumed)
        refusal = self._failures.reasons([job], left) if left and not again else None
        self._jobs.touch(job)
        lost = statement.commit(now)
        if lost is not None:
            self._failures.refuse_unpermitted(lost, now)
        elif again:
            self._requeue_rest(job, left)
        elif refusal is not None:
            for pod in left:
                self._queue.remove(pod)
            self._failures.refuse(left[0], left, refusal, now)
        return len(members) - len(left) if again else len(members)

    def _requeue_rest(self, job: Job, left: list[PodRecord]) -> None:
        """Queues the members that are left again, behind the pods that are queued already."""
        if not left:
            return
        job.has_enough = True
        job.leader = left[0]
        for pod in left[1:]:
            if self._queue.place(pod.uid) != "following":
                self._queue.follow(pod)
        self._rest[job.name] = left
        self._queue.add(left[0])

    def new_round(self) -> None:
        """Forgets which members were left over in the last round."""
        self._rest.clear()

    # Whether it can be scheduled at all

    def pending_members(self, leader: PodRecord) -> list[PodRecord]:
        """The pending members of the job and its partners, in the order in which they are tried."""
        return pending_members(leader, self._jobs, self._queue, self._profiles)

    def early_refusal(
        self, jobs: list[Job], members: list[PodRecord], may_preempt: bool = False
    ) -> GangRefusal | None:
        """Why the jobs cannot be scheduled, whatever the nodes are like; None if they may be. With
        `may_preempt` reasons that preemption can remove do not count."""
        for job in jobs:
            if job.name.family == CORE:
                found = self._core_refusal(job, members)
                if found is not None:
                    return found
            if not job.is_known:
                self._jobs.wait_for(jobs[0], [job.name])
                return _refusal(NO_GROUP, f"{job.name} does not exist", Change.NONE)
            own = [pod for pod in members if pod.job == job.name]
            missing = job.lacks(own)
            if missing:
                # The message has no count, so that it stays the same while pods are created.
                text = f"{job.name} has fewer pods than it needs"
                of_task = job.lacks_of_tasks(own)
                reason = NOT_ENOUGH_OF_TASK if of_task else NOT_ENOUGH_TASKS
                problem = JobProblem(reason, f"{job.name} has {of_task or missing}")
                self._jobs.wait_for(jobs[0], [job.name])
                return GangRefusal(problem, {}, Change.NONE, {}, text)
            names = self._jobs.missing_partners(job)
            if names:
                self._jobs.wait_for(jobs[0], names)
                text = f"{job.name} waits for {', '.join(map(str, names))}"
                return _refusal(NOT_ENOUGH_TASKS, text, Change.NONE)
            queues, limits = self._jobs.queues, self._jobs.queue_limits
            refuses = queues.closed if may_preempt else limits.admission_error
            refusal = limits.all_refused(refuses, own)
            if refusal:
                return _refusal(QUEUE, refusal, MORE_CAPACITY | Change.OTHER)
            if may_preempt:
                continue
            lacking = self._lacking_resources(job)
            if lacking and not job.is_ready:
                text = f"{job.name} requests more than is free of {', '.join(lacking)}"
                return _refusal(NOT_ENOUGH_RESOURCES, text, MORE_CAPACITY)
        if not self._cluster.nodes.count:
            return _refusal(NOT_ENOUGH_RESOURCES, NO_NODES, Change.ANY)
        return None

    def _core_refusal(self, job: Job, members: list[PodRecord]) -> GangRefusal | None:
        """The same for the rules of PodGroups of `scheduling.k8s.io`."""
        if job.core is None:
            text = core_groups.missing_group(job.name.name)
            return _refusal(NO_GROUP, text, Change.NONE)
        if len(job.members) < job.min_member:
            return _refusal(NOT_ENOUGH_TASKS, core_groups.TOO_FEW_PODS, Change.NONE)
        error, wakes_on = core_groups.member_error(job, members), Change.NONE
        if not error and (found := self.placements.domain_error(job)):
            error, wakes_on = core_groups.NO_DOMAIN.format(found), MORE_CAPACITY | Change.NODE_LABELS
        if error:
            conditions = {pod.uid: SCHEDULER_ERROR for pod in members}
            return GangRefusal(JobProblem(SCHEDULER_ERROR, error), {}, wakes_on, conditions)
        if job.lacks(members):  # some are gated, or another scheduler's
            return _refusal(GATED, core_groups.unmet(job, members, ())[0], Change.NONE)
        return None

    def can_start(self, jobs: list[Job], members: list[PodRecord]) -> bool:
        """Whether the jobs could be scheduled now."""
        if self.early_refusal(jobs, members) is not None:
            return False
        placements = self.placements.of(jobs[0])
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
        members = sorted(self.tried_members(jobs), key=order)
        refusal = self.early_refusal(jobs, members)
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
        with self._assumed(jobs, self.tried_members(jobs), rows, None) as found:
            yield found

    def is_ready_in(self, job: Job, members: list[PodRecord]) -> bool:
        """Whether the job would be ready if its members were tried in this order."""
        jobs = self._jobs.partners(job)
        for rows in self.placements_of(jobs):
            with self._assumed(jobs, members, rows, None) as found:
                if found.is_ready:
                    return True
        return False

    def tried_members(self, jobs: list[Job]) -> list[PodRecord]:
        """The pending members of partner jobs that are not gated, and this scheduler's, in the order in
        which they are tried."""
        found = [
            pod
            for job in jobs
            for pod in job.waiting()
            if self._queue.place(pod.uid) != "gated" and pod.scheduler in self._profiles
        ]
        return sorted(found, key=member_order)

    def _rows_to_try(self, job: Job, members: list[PodRecord]) -> list[NDArray[np.bool_] | None]:
        """The best placement, or all of them if the job is ready in none; None for all rows."""
        placements = self.placements.of(job)
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
            enough = self._enough(jobs, members, statement)
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

    def placements_of(self, jobs: list[Job]) -> list[NDArray[np.bool_] | None]:
        """The rows to try the jobs in, one set after the other; None for all rows."""
        placements = self.placements.of(jobs[0]) if jobs else None
        return [None] if placements is None else [each.rows for each in placements]

    def could_start(self, jobs: list[Job]) -> bool:
        """Whether the jobs are ready now and their `minResources` are free."""
        ready = all(job.is_ready for job in jobs)
        return ready and not any(self._lacking_resources(job) for job in jobs)

    def would_lack(self, jobs: list[Job], held: Collection[PodRecord]) -> list[str]:
        """The resources of which too little for `minResources` is free, also once capacity is held for
        these members."""
        return [name for job in jobs for name in self._lacking_resources(job, held)]

    def _lacking_resources(self, job: Job, held: Collection[PodRecord] = ()) -> list[str]:
        """The resources of which less is free than the job's `minResources` require."""
        if job.group is None or not job.group.spec.min_resources:
            return []
        nodes = self._cluster.nodes
        lacking = []
        for name, quantity in sorted(job.group.spec.min_resources.items()):
            try:
                needed = amount(name, quantity)
            except QuantityError:
                continue
            slot = nodes.slots.find(name)
            if slot is None:
                if needed > 0:
                    lacking.append(name)
                continue
            alive = nodes.alive[: nodes.size]
            free = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size]
            own = sum(pod.cls.request(slot) for pod in job.placed())
            own += sum(pod.cls.request(slot) for pod in held if pod.job == job.name)
            own += self._cluster.jobs.held_for(job, slot)
            if own + int(np.maximum(free[alive], 0).sum()) < needed:
                lacking.append(name)
        return lacking

    def may_fit(self, leader: PodRecord) -> bool:
        """Whether a node is feasible for any of the pending members now."""
        for pods in self._by_class(self.pending_members(leader)).values():
            profile = self._profiles[pods[0].scheduler]
            if self._columns.column(profile, pods[0].cls).best() >= 0:
                return True
        return False

    def _cannot_be_ready(self, jobs: list[Job], members: list[PodRecord]) -> bool:
        """Whether too few members can fit, by an estimate; only if all of them have a condition
        message from an earlier attempt."""
        if len(members) < _FEW or len(jobs) > 1 or not all(pod.condition_message for pod in members):
            return False
        job, can = jobs[0], jobs[0].ready_members
        for pods in self._by_class(members).values():
            pod = pods[0]
            if (
                pod.pinned_node is not None
                or pod.nominated
                or pod.cls.volumes
                or pod.reservation is not None
            ):
                return False
            column = self._columns.column(self._profiles[pod.scheduler], pod.cls)
            if not column.is_local or (column.owned and len(pods) > 1):
                return False
            if column.owned:
                can += column.best() >= 0
                continue
            can += min(len(pods), self._capacity(pod, column.fits))
        return can < job.still_needs

    def _may_wake(self, members: list[PodRecord]) -> int:
        """The changes that could help any member. The reasons may differ from those in its condition
        message."""
        wakes_on = MORE_CAPACITY
        for pods in self._by_class(members).values():
            profile = self._profiles[pods[0].scheduler]
            column = self._columns.column(profile, pods[0].cls)
            wakes_on |= column.wakes_on() | pods[0].wakes_on
        return wakes_on

    def _capacity(self, pod: PodRecord, rows: NDArray[np.bool_]) -> int:
        """An upper bound of how many pods of this class fit these rows."""
        nodes = self._cluster.nodes
        at = np.flatnonzero(rows)
        each = nodes.allocatable[PODS, at] - nodes.claimed[PODS, at]
        for slot, asked in pod.cls.requests:
            each = np.minimum(each, (nodes.allocatable[slot, at] - nodes.claimed[slot, at]) // asked)
        return int(np.maximum(each, 0).sum())

    def _by_class(self, members: list[PodRecord]) -> dict[tuple[str, int], list[PodRecord]]:
        found: dict[tuple[str, int], list[PodRecord]] = {}
        for pod in members:
            found.setdefault((pod.scheduler, pod.cls.id), []).append(pod)
        return found


def _refusal(reason: str, message: str, wakes_on: int) -> GangRefusal:
    return GangRefusal(JobProblem(reason, message), {}, wakes_on, {})
