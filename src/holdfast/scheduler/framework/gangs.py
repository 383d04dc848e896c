"""Gang scheduling: jobs of several pods, from the queue to a decision.

One pending member, the leader, is in the scheduling queue for all of them. When it is popped, as many
members are assumed as the job needs. If the job is then ready they are bound, otherwise all of them are
unreserved. Of a job that is ready already, every member that fits is bound. Members beyond those the
job needs are scheduled after all other pending pods of the same priority; where queues share capacity,
one at a time.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import NamedTuple

import numpy as np

from holdfast.api.quantity import QuantityError, amount
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import Emit, Nominate
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.diagnosis import NO_NODES
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.gang_permit import Stops, Unpermitted
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import Cycle
from holdfast.scheduler.framework.scheduling_queue import Key, SchedulingQueue
from holdfast.scheduler.framework.statement import Statement
from holdfast.scheduler.jobs import Job, JobName, JobProblem
from holdfast.scheduler.jobs.job import NOT_ENOUGH_OF_TASK, NOT_ENOUGH_TASKS, NOTHING

NOT_ENOUGH_RESOURCES = "NotEnoughResources"
NO_GROUP = "PodGroupNotFound"
NOT_PERMITTED = "NotPermitted"
QUEUE = "NotAdmitted"
READY = "Ready"

_MEMBERS_MISSING = (NO_GROUP, NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK)
_CAPACITY_HELPS = (NOT_ENOUGH_RESOURCES, QUEUE)

_STANDING = ("active", "backoff", "unschedulable")
_MORE_CAPACITY = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_TAINTS | Change.POD_LEFT
_FEW = 3
"""From this many members on it pays to estimate first whether enough of them can fit."""


class GangRefusal(NamedTuple):
    """Why members are unschedulable: their condition messages, and the changes that wake them up."""

    problem: JobProblem
    messages: dict[str, str]
    """Condition messages by uid; other members get `text`, or else the problem's message."""
    wakes_on: int
    conditions: dict[str, str]
    """Reasons of conditions by uid; the default is Unschedulable."""
    text: str = ""
    has_failed: bool = False
    """A plugin raised, or members were preempted while they waited in Permit: the job is tried again
    after a back-off, without waiting for a change."""


class Gangs:
    """Schedules jobs of several pods."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        cycle: Cycle,
        profiles: Mapping[str, Profile],
    ) -> None:
        self._cluster = cluster
        self._jobs = cluster.jobs
        self._queue = queue
        self._cycle = cycle
        self._profiles = profiles
        self.refused: dict[JobName, PodRecord] = {}
        """Jobs that lacked capacity in this round, and their leaders."""
        self._nominated: dict[str, PodRecord] = {}
        """Pods with a nominated node that were refused since `end_nominations` last ran, by uid."""
        self._rest: dict[JobName, list[PodRecord]] = {}
        """Members still pending, of jobs that became ready in this round."""
        cluster.jobs.on_changed = self.changed
        cycle.gang_permit.on_ready = self.became_ready
        cycle.gang_permit.on_lost = self.refuse_unpermitted

    # Members that become pending or stop being so

    def pending(self, pod: PodRecord, now: float) -> None:
        """Queues a pending member: as the leader if there is none, otherwise behind the leader."""
        job = pod.job
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
        job = pod.job
        if job is None or job.leader is not pod:
            return
        job.leader = None
        for other in job.waiting():
            if other is not pod and self._queue.place(other.uid) == "following":
                self.pending(other, self._cluster.now)
                return

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

    def may_fit(self, leader: PodRecord) -> bool:
        """Whether a node is feasible for any of the pending members now."""
        for pods in self._by_class(self.waiting(leader)).values():
            profile = self._profiles[pods[0].scheduler]
            if self._cycle.column(profile, pods[0].cls).best() >= 0:
                return True
        return False

    # Scheduling a job

    def schedule(self, leader: PodRecord, now: float, one_by_one: bool = False) -> int:
        """Tries to schedule the pending members and returns how many were tried. With `one_by_one`
        at most one member beyond those the job needs is placed."""
        job = leader.job
        assert job is not None
        job.has_enough = False
        rest = self._rest.pop(job.name, None)
        if rest is not None:
            return self._place_rest(leader, rest, now, one_by_one)
        jobs = self._jobs.partners(job)
        members = self.waiting(leader)
        for pod in members:
            self._queue.remove(pod)
        for each in jobs:
            each.tried = True
        refusal = self.early_refusal(jobs, members)
        if refusal is None and self._cannot_be_ready(jobs, members):
            wakes_on = self._may_wake(members)
            for pod in members:
                self.note_nominated(pod)
                self._reject(pod, leader, members, wakes_on, now)
            return len(members)
        if refusal is None and one_by_one and jobs == [job] and job.is_ready:
            return self._place_rest(leader, members, now, one_by_one)
        if refusal is None:
            refusal = self._attempt(jobs, members, now)
            if refusal is not None and job.interrupted and self._cluster.nominator:
                refusal = self._finish_start(jobs, members, refusal, now)
        if refusal is not None:
            self._refuse(leader, members, refusal, now)
        return len(members) - len(self._rest.get(job.name, ()))

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

    def _place_rest(
        self, leader: PodRecord, members: list[PodRecord], now: float, one_by_one: bool
    ) -> int:
        """Places members beyond those the job needs."""
        job = leader.job
        assert job is not None
        statement = Statement(self._cycle)
        stop = (lambda: bool(statement.placed)) if one_by_one else None
        left = self.place_all(statement, members, stop)
        again = one_by_one and bool(statement.placed)
        refusal = self._reasons([job], left) if left and not again else None
        self._jobs.touch(job)
        lost = statement.commit(now)
        if lost is not None:
            self.refuse_unpermitted(lost, now)
        elif again:
            self._requeue_rest(job, left)
        elif refusal is not None:
            for pod in left:
                self._queue.remove(pod)
            self._refuse(left[0], left, refusal, now)
        return len(members) - len(left) if again else len(members)

    def new_round(self) -> None:
        """Forgets which members were left over in the last round."""
        self._rest.clear()

    def waiting(self, leader: PodRecord) -> list[PodRecord]:
        """The pending members of the job and its partners, in the order in which they are tried."""
        assert leader.job is not None
        found = [
            pod
            for job in self._jobs.partners(leader.job)
            for pod in job.waiting()
            if pod is leader or self._queue.place(pod.uid) != "gated"
            if pod.scheduler in self._profiles
        ]
        return sorted(found, key=lambda p: (-p.cls.priority, p.queued_since, p.namespace, p.name))

    def early_refusal(
        self, jobs: list[Job], members: list[PodRecord], may_preempt: bool = False
    ) -> GangRefusal | None:
        """Why the jobs cannot be scheduled, whatever the nodes are like; None if they may be. With
        `may_preempt` reasons that preemption can remove do not count."""
        for job in jobs:
            if not job.is_known:
                return self._refusal(NO_GROUP, f"{job.name} does not exist", Change.NONE)
            own = [pod for pod in members if pod.job is job]
            missing = job.lacks(own)
            if missing:
                # The message has no count, so that it stays the same while pods are created.
                text = f"{job.name} has fewer pods than it needs"
                of_task = job.lacks_of_tasks(own)
                reason = NOT_ENOUGH_OF_TASK if of_task else NOT_ENOUGH_TASKS
                problem = JobProblem(reason, f"{job.name} has {of_task or missing}")
                return GangRefusal(problem, {}, Change.NONE, {}, text)
            names = self._jobs.missing_partners(job)
            if names:
                text = f"{job.name} waits for {', '.join(map(str, names))}"
                return self._refusal(NOT_ENOUGH_TASKS, text, Change.NONE)
            queues = self._cluster.jobs.queues
            refuses = queues.closed if may_preempt else queues.admission_error
            refusal = queues.all_refused(refuses, own)
            if refusal:
                return self._refusal(QUEUE, refusal, _MORE_CAPACITY | Change.OTHER)
            if may_preempt:
                continue
            lacking = self._lacking_resources(job)
            if lacking and not job.is_ready:
                text = f"{job.name} requests more than is free of {', '.join(lacking)}"
                return self._refusal(NOT_ENOUGH_RESOURCES, text, _MORE_CAPACITY)
        if not self._cluster.nodes.count:
            return self._refusal(NOT_ENOUGH_RESOURCES, NO_NODES, Change.ANY)
        return None

    def could_start(self, jobs: list[Job]) -> bool:
        """Whether the jobs are ready now and their `minResources` are free."""
        ready = all(job.is_ready for job in jobs)
        return ready and not any(self._lacking_resources(job) for job in jobs)

    def _refusal(self, reason: str, message: str, wakes_on: int) -> GangRefusal:
        return GangRefusal(JobProblem(reason, message), {}, wakes_on, {})

    def _lacking_resources(self, job: Job) -> list[str]:
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
            own += self._cluster.jobs.held_for(job, slot)
            if own + int(np.maximum(free[alive], 0).sum()) < needed:
                lacking.append(name)
        return lacking

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
            column = self._cycle.column(self._profiles[pod.scheduler], pod.cls)
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
        wakes_on = _MORE_CAPACITY
        for pods in self._by_class(members).values():
            profile = self._profiles[pods[0].scheduler]
            column = self._cycle.column(profile, pods[0].cls)
            wakes_on |= self._cycle.may_wake(profile, column) | pods[0].wakes_on
        return wakes_on

    def _capacity(self, pod: PodRecord, rows: "np.typing.NDArray[np.bool_]") -> int:
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

    def _attempt(self, jobs: list[Job], members: list[PodRecord], now: float) -> GangRefusal | None:
        stops: Stops = []
        lost: Unpermitted | None = None
        while True:
            statement = Statement(self._cycle)
            enough = self._enough(jobs, members, statement)
            left = self.place_all(statement, members, enough)
            # Assumed members count in `is_ready`.
            if not statement.placed or not all(job.is_ready for job in jobs):
                why = self._reasons(jobs, left)
                statement.discard()
                return why if lost is None else self._unpermitted(lost, stops)
            refusal = self._reasons(jobs, left) if left and enough is None else None
            lost = statement.commit(now, reports_ready=True)
            if lost is None:
                for pod, stop in stops:
                    self._cycle.refuse_member(pod, stop, now)
                if enough is not None:
                    self._requeue_rest(jobs[0], left)
                return refusal
            # Other members may take the place of those that were not permitted.
            stops += lost.stops
            refused = {pod.uid for pod, _ in lost.stops}
            members = [pod for pod in members if pod.uid not in refused]
            if not all(job.would_be_ready(p for p in members if p.job is job) for job in jobs):
                return self._unpermitted(lost, stops)

    def recheck_waiting(self, now: float) -> None:
        """Asks Permit plugins again about members that wait."""
        for lost in self._cycle.gang_permit.recheck(now):
            self.refuse_unpermitted(lost, now)

    def refuse_unpermitted(self, lost: Unpermitted, now: float) -> None:
        """Queues members that were unreserved again, with the other pending members of their job."""
        for pod in lost.members:
            if pod.deletion_pending:
                self._queue.forget(pod)
        members = self.waiting(lost.members[0])
        for pod in members:
            self._queue.take(pod)
        if members:
            self._refuse(members[0], members, self._unpermitted(lost, lost.stops), now)

    def _unpermitted(self, lost: Unpermitted, stops: Stops) -> GangRefusal:
        """The refusal for jobs that are not bound because plugins refused some of their members."""
        names = ", ".join(str(job.name) for job in lost.jobs)
        text = f"{names} may bind {lost.lacking}"
        if stops:
            pod, stop = stops[0]
            text += f": {pod.namespace}/{pod.name}: {stop.text()}"
        messages, conditions = {}, {}
        wakes_on = Change.NONE if stops else _MORE_CAPACITY
        for pod, stop in stops:
            messages[pod.uid] = stop.text()
            conditions[pod.uid] = "SchedulerError" if stop.outcome.retry else "Unschedulable"
            wakes_on |= self._profiles[pod.scheduler].wakes_on((stop.plugin.name,))
            pod.rejected_by = (stop.plugin.name,)
        has_failed = any(stop.outcome.retry or stop.preempted for _, stop in stops)
        problem = JobProblem(NOT_PERMITTED, text)
        return GangRefusal(problem, messages, wakes_on, conditions, has_failed=has_failed)

    def _finish_start(
        self, jobs: list[Job], members: list[PodRecord], refusal: GangRefusal, now: float
    ) -> GangRefusal | None:
        """Tries again as if no pod of another job had a nominated node: the rest of a job whose start
        was interrupted comes before nominated pods. A pod whose nominated node is used loses its
        nomination."""
        cluster = self._cluster
        preemption_holds, changes = cluster.reservations.preemption_holds, cluster.changes
        nominated = [
            (pod, node)
            for node, there in cluster.nominator.items()
            for pod in there.values()
            if pod.job not in jobs and pod.reservation is None and pod.uid not in preemption_holds
        ]
        if not nominated or all(job.is_ready for job in jobs):
            return refusal
        for pod, _ in nominated:
            cluster.nominate(pod, "")
        cluster.undo_changes(changes)
        again = self._attempt(jobs, members, now)
        taken = {cluster.nodes.name(pod.row) for pod in members if pod.row >= 0}
        for pod, node in nominated:
            cluster.nominate(pod, node)
        lost = [pod for pod, node in nominated if node in taken]
        self._cycle.apply([Nominate(pod.ref, "") for pod in lost])
        return again

    def _enough(
        self, jobs: list[Job], members: list[PodRecord], statement: Statement
    ) -> Callable[[], bool] | None:
        """A function that returns whether the job has as many placed members as it needs; None if the
        job has no members beyond those, or is ready already."""
        job = jobs[0]
        needed = max(1, job.still_needs - job.ready_members)
        if len(jobs) > 1 or needed >= len(members) or job.is_ready:
            return None
        return lambda: len(statement.placed) >= needed and job.is_ready

    def place_all(
        self,
        statement: Statement,
        members: list[PodRecord],
        is_enough: Callable[[], bool] | None = None,
    ) -> list[PodRecord]:
        """Assumes every member that fits, until `is_enough`, and returns the others. Members are tried
        again after others were placed where affinity or spread constraints depend on those."""
        left = members
        queues = self._jobs.queues
        while True:
            again, tried, progress, depends = [], set(), False, False
            for number, pod in enumerate(left, 1):
                profile = self._profiles[pod.scheduler]
                kind = (profile.index, pod.cls.id)
                if (kind in tried and pod.pinned_node is None and not pod.nominated) or (
                    queues and queues.admission_error(pod)
                ):
                    again.append(pod)
                elif statement.place(profile, pod):
                    if is_enough is not None and is_enough():
                        return again + left[number:]
                    progress = progress or bool(again)
                else:
                    if not statement.was_refused:
                        tried.add(kind)
                    depends = depends or not self._cycle.column(profile, pod.cls).is_local
                    again.append(pod)
            if not (again and progress and depends):
                return again
            left = again

    def became_ready(self, job: Job, now: float) -> None:
        """Records that the job is ready, and emits an event the first time."""
        job.problem = NOTHING
        self._jobs.touch(job)
        if not job.seen_ready:
            job.seen_ready = True
            job.waited = max(0.0, now - job.pending_since)
            text = f"{job.ready_members} of {job.min_member} needed pods have a place"
            self._cycle.decisions.append(Emit(job.ref, "Normal", READY, text, "Scheduling"))
            self._cluster.chronicle.note(now, job.name, "ready")

    # Refusals

    def _reasons(self, jobs: list[Job], left: list[PodRecord]) -> GangRefusal:
        """The reasons why these members are unschedulable, with the members assumed so far in place."""
        messages: dict[str, str] = {}
        conditions: dict[str, str] = {}
        wakes_on, has_failed = Change.NONE, False
        reported: dict[Hashable, tuple[str, str, Collection[str]]] = {}
        for pod in left:
            profile = self._profiles[pod.scheduler]
            kind = (profile.index, pod.cls.id, pod.pinned_node)
            refusal = self._jobs.queues.admission_error(pod)
            if refusal:
                reported[kind] = refusal, "Unschedulable", ()
                wakes_on |= _MORE_CAPACITY | Change.OTHER
            elif kind not in reported or self._cycle.was_refused(pod):
                column = self._cycle.column(profile, pod.cls)
                why = self._cycle.verdict(profile, pod, column)
                counted = (
                    "" if pod.reservation else DryRun(self._cluster, column, pod, False).reservations()
                )
                message = why.message(self._cluster.nodes.count, f"{counted}." if counted else "")
                reported[kind] = message, why.condition, why.plugins
                has_failed = has_failed or why.has_failed
                wakes_on |= profile.wakes_on(why.plugins)
            messages[pod.uid], conditions[pod.uid], pod.rejected_by = reported[kind]
        lacking = next((text for job in jobs if (text := job.lacks(()))), "")
        names = ", ".join(str(job.name) for job in jobs)
        summary = f"{names} has a place for {lacking}" if lacking else ""
        reasons = Counter(messages.values()).most_common(1)
        detail = f": {reasons[0][0]}" if reasons else ""
        problem = JobProblem(NOT_ENOUGH_RESOURCES, f"{summary or names}{detail}")
        return GangRefusal(
            problem, messages, wakes_on or _MORE_CAPACITY, conditions, has_failed=has_failed
        )

    def _refuse(
        self, leader: PodRecord, members: list[PodRecord], refusal: GangRefusal, now: float
    ) -> None:
        # Members that were refused one by one are in the queue already.
        left = [
            pod for pod in members if pod.phase is Phase.PENDING and self._queue.place(pod.uid) is None
        ]
        if not any(pod is leader for pod in left):
            leader = left[0] if left else leader
        for job in {id(pod.job): pod.job for pod in left if pod.job is not None}.values():
            if not job.is_ready:
                job.problem = refusal.problem
                reason = refusal.problem.reason
                if reason in _CAPACITY_HELPS or (
                    leader.reservation is not None and reason != NOT_PERMITTED
                ):
                    self.refused[job.name] = leader
            self._jobs.touch(job)
        for pod in left:
            self.note_nominated(pod)
            self._reject(pod, leader, left, refusal.wakes_on, now, refusal.has_failed)
            text = refusal.messages.get(pod.uid) or refusal.text or refusal.problem.message
            self._cycle.set_unschedulable(
                pod, text, now, refusal.conditions.get(pod.uid, "Unschedulable")
            )

    def note_nominated(self, pod: PodRecord) -> None:
        """Notes a pod that was refused, by its queue or with its job, for `end_nominations`."""
        if pod.nominated:
            self._nominated[pod.uid] = pod

    def end_nominations(self) -> None:
        """Clears the nominated nodes of refused pods when no victim is terminating there any more:
        otherwise they would keep other pods off capacity that they cannot use."""
        refused, self._nominated = self._nominated, {}
        for pod in refused.values():
            members = [pod] if pod.job is None else pod.job.waiting()
            waiting = [each for each in members if each.nominated and each.phase is Phase.PENDING]
            if not any(self._is_being_cleared(each.nominated) for each in waiting):
                self._cycle.apply([Nominate(each.ref, "") for each in waiting])

    def _is_being_cleared(self, node: str) -> bool:
        """Whether pods on the node are terminating or being preempted."""
        row = self._cluster.nodes.row(node)
        there = self._cluster.ledger.pods.get(row, {}) if row is not None else {}
        return any(pod.being_preempted or pod.cls.terminating for pod in there.values())

    def _reject(
        self,
        pod: PodRecord,
        leader: PodRecord,
        left: list[PodRecord],
        wakes_on: int,
        now: float,
        has_failed: bool = False,
    ) -> None:
        if pod is not leader:
            self._queue.follow(pod)
            return
        assert pod.job is not None
        pod.job.leader = pod
        if has_failed:
            self._queue.retry_later(pod, now)
            return
        next_scout = pod.job.problem.reason == NOT_PERMITTED or any(
            p.nominated or p.pinned_node is not None or p.cls.private for p in left
        )
        self._queue.reject(pod, self._key(pod, left), wakes_on, now, next_scout=next_scout)

    def _key(self, leader: PodRecord, left: list[PodRecord]) -> Key:
        """The key of the job's group in the queue: jobs of one shape get the same result."""
        job = leader.job
        assert job is not None
        kinds = tuple(sorted(Counter((pod.scheduler, pod.cls.id) for pod in left).items()))
        tasks = tuple(sorted(job.min_tasks.items()))
        least = max(0, job.still_needs - job.ready_members)
        partners = job.gang.partners
        resources = str(sorted(job.group.spec.min_resources.items())) if job.group is not None else ""
        shape: tuple[Hashable, ...] = (kinds, least, tasks, job.queue, partners, resources)
        if tasks or partners or job.problem.reason in _MEMBERS_MISSING:
            shape = (*shape, job.name)
        return (self._profiles[leader.scheduler].index, self._queue.number(shape))
