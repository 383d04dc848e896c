"""Gang scheduling: jobs of several pods, from the queue to a decision.

One pending member, the leader, is in the scheduling queue for all of them, and for partner jobs that
name the same partners; a partner that names others has its own leader. When it is popped, as many
members are assumed as the job needs. If the job is then ready they are bound, otherwise all of them are
unreserved. Of a job that is ready already, every member that fits is bound. Members beyond those the
job needs are scheduled after all other pending pods of the same priority; where queues share capacity,
one at a time. Members of a PodGroup of `scheduling.k8s.io` are all tried at once, as kube-scheduler
does, and in one topology domain if it names a topology key.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.decisions import Nominate
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework import core_groups
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.gang_admission import GangAdmission
from holdfast.scheduler.framework.gang_attempts import GangAttempts
from holdfast.scheduler.framework.gang_failures import (
    NOT_ENOUGH_RESOURCES,
    GangFailureHandler,
    GangRefusal,
    Stops,
    Unpermitted,
    gang_refusal,
    led_members,
)
from holdfast.scheduler.framework.placements import PlacementGenerator, TopologyPlacement
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle, Statement
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.state.cluster import Cluster

_STANDING = ("active", "backoff", "unschedulable")


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
        self.admission = GangAdmission(cluster, queue, profiles, columns, self.placements)
        self.attempts = GangAttempts(
            cluster.jobs, profiles, columns, cycle, self.placements, self.admission
        )
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

    def take_placed(self, members: list[PodRecord]) -> None:
        """Takes members that have a node now from the queue; another one becomes the leader in place of
        one of these."""
        for pod in members:
            self._queue.take(pod)
            self.settled(pod)

    def finish_starts(self, now: float) -> bool:
        """Schedules the rest of the jobs whose start was interrupted that are due to be tried; whether
        there were some."""
        jobs = (self._jobs.known[name] for name in self._jobs.interrupted)
        leaders = [leader for job in jobs if (leader := self._queued_leader(job)) is not None]
        due = [leader for leader in leaders if self._queue.place(leader.uid) == "active"]
        for leader in sorted(due, key=self._queue.sort_key):
            if self._queue.place(leader.uid) == "active":  # a partner may have placed it
                self._queue.take(leader)
                self.schedule(leader, now)
        return bool(due)

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
        rest = [pod for pod in self._rest.pop(job.name, ()) if pod.phase is Phase.PENDING]
        if rest:
            return self._schedule_rest(leader, rest, now, one_by_one)
        jobs = self._jobs.partners(job)
        members = self.admission.pending_members(leader)
        for pod in led_members(leader, members, self._jobs):
            self._queue.remove(pod)
        for each in jobs:
            each.tried = True
        refusal = self.admission.early_refusal(jobs, members)
        if refusal is None and self.admission.cannot_be_ready(jobs, members):
            self._failures.keep_conditions(leader, members, self.admission.may_wake(members), now)
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
        best = self.attempts.best_placement(jobs[0], members, placements)
        if best is None:
            return self._no_placement(jobs[0], members, placements)
        with self._cycle.search.within(best.rows):
            return self._attempt_within(jobs, members, now)

    def _no_placement(
        self, job: Job, members: list[PodRecord], placements: list[TopologyPlacement]
    ) -> GangRefusal:
        """Why the job is ready in none of the placements, with the result of the first one."""
        wakes_on = self.admission.may_wake(members) | Change.NODE_LABELS
        if not placements:
            return gang_refusal(NOT_ENOUGH_RESOURCES, core_groups.NO_PLACEMENTS, wakes_on)
        statement, rows = Statement(self._cycle), placements[0].rows
        with self._cycle.search.within(rows):
            left = self.attempts.assume_all(statement, members)
        placed = {pod.uid for _, pod in statement.assumed}
        first, _ = core_groups.unmet(job, members, placed)
        text = core_groups.no_placements(len(placements), first)
        messages = {pod.uid: self._message_within(pod, rows) for pod in left}
        why = gang_refusal(NOT_ENOUGH_RESOURCES, text, wakes_on)._replace(messages=messages)
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
            enough = self.attempts.enough(jobs, members, statement)
            left = self.attempts.assume_all(statement, members, enough)
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

    def _finish_start(
        self, jobs: list[Job], members: list[PodRecord], refusal: GangRefusal, now: float
    ) -> GangRefusal | None:
        """Tries again as if no pod of another job had a nominated node and no pre-allocation or
        preemption hold were Waiting: the rest of a job whose start was interrupted comes before these,
        because it had its places before, and they may wait for what was taken by it. A pod whose
        nominated node is used loses its nomination; a reservation goes on waiting."""
        cluster = self._cluster
        names, changes = {job.name for job in jobs}, cluster.changes
        nominated = [
            (pod, node)
            for node, there in cluster.nominator.items()
            for pod in there.values()
            if pod.job not in names and pod.reservation is None and not self._has_hold_there(pod)
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

    def _has_hold_there(self, pod: PodRecord) -> bool:
        """Whether a preemption hold of the pod is on a node."""
        holds = self._cluster.reservations.preemption_holds.get(pod.uid, {})
        return any(hold.pod is not None and hold.pod.row >= 0 for hold in holds.values())

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
            left = self.attempts.assume_all(statement, members, stop)
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
