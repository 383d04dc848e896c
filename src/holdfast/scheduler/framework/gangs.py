"""Jobs of several members, from the queue to a decision.

One member stands in the queue for all that wait, the leader. When its turn comes, places are taken for
as many as it needs; if the job is then ready they are bound, and if not all is given back, to the last
byte. A job that is ready already is not held to that: what finds a place is bound. Members beyond those
it needs come after all others that wait and are as important; where queues share, one in each turn.
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
_ROOM_HELPS = (NOT_ENOUGH_RESOURCES, QUEUE)

_STANDING = ("active", "backoff", "unschedulable")
_ROOM = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_TAINTS | Change.POD_LEFT
_FEW = 3
"""Of so many members it is worth working out first whether there can be room for them."""


class GangRefusal(NamedTuple):
    """Why members have no place: what each is told, and what could help."""

    problem: JobProblem
    messages: dict[str, str]
    """By uid; the others are told `text`, or the problem's if there is none."""
    wakes_on: int
    conditions: dict[str, str]
    text: str = ""
    has_failed: bool = False
    """A plugin failed, or they had to make room: they are to be tried again, whatever happens."""


class Gangs:
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
        """Jobs that found too little room in this round, and who stands for them."""
        self._nominated: dict[str, PodRecord] = {}
        """Pods with a nominated node that were refused, by uid, since this was last looked at."""
        self._rest: dict[JobName, list[PodRecord]] = {}
        """Of jobs that got what they need in this round, those left."""
        cluster.jobs.on_changed = self.changed
        cycle.gang_permit.on_ready = self.became_ready
        cycle.gang_permit.on_lost = self.refuse_unpermitted

    # What becomes of members

    def pending(self, pod: PodRecord, now: float) -> None:
        """A member wants a place."""
        job = pod.job
        assert job is not None
        leader = self._standing(job)
        if leader is None or leader is pod:
            job.leader = pod
            self._queue.changed(pod, now)
            return
        self._queue.follow(pod)
        self._queue.changed(leader, now)

    def settled(self, pod: PodRecord) -> None:
        """A member wants a place no more; another may have to stand for the rest."""
        job = pod.job
        if job is None or job.leader is not pod:
            return
        job.leader = None
        for other in job.waiting():
            if other is not pod and self._queue.place(other.uid) == "following":
                self.pending(other, self._cluster.now)
                return

    def changed(self, job: Job) -> None:
        """Something of the job itself is different."""
        for other in self._jobs.partners(job):
            leader = self._standing(other)
            if leader is not None:
                self._queue.changed(leader, self._cluster.now)

    def _standing(self, job: Job) -> PodRecord | None:
        leader = job.leader
        if leader is None or leader.phase is not Phase.PENDING or leader.uid not in job.members:
            return None
        return leader if self._queue.place(leader.uid) in _STANDING else None

    def may_fit(self, leader: PodRecord) -> bool:
        """Whether any of the members that wait would find a place now."""
        for pods in self._by_class(self.waiting(leader)).values():
            profile = self._profiles[pods[0].scheduler]
            if self._cycle.column(profile, pods[0].cls).best() >= 0:
                return True
        return False

    # Its turn

    def schedule(self, leader: PodRecord, now: float, one_by_one: bool = False) -> int:
        """Tries to find places for the members that wait; how many were tried. With `one_by_one`
        those it could do without get one place in each turn."""
        job = leader.job
        assert job is not None
        job.has_enough = False
        rest = self._rest.pop(job.name, None)
        if rest is not None:
            return self._go_on(leader, rest, now, one_by_one)
        jobs = self._jobs.partners(job)
        members = self.waiting(leader)
        for pod in members:
            self._queue.remove(pod)
        for each in jobs:
            each.tried = True
        refusal = self.hindrance(jobs, members)
        if refusal is None and self._needs_free_node(jobs, members):
            wakes_on = self._may_wake(members)
            for pod in members:
                self.note_nominated(pod)
                self._reject(pod, leader, members, wakes_on, now)
            return len(members)
        if refusal is None and one_by_one and jobs == [job] and job.is_ready:
            return self._go_on(leader, members, now, one_by_one)
        if refusal is None:
            refusal = self._attempt(jobs, members, now)
            if refusal is not None and job.interrupted and self._cluster.nominator:
                refusal = self._finish_start(jobs, members, refusal, now)
        if refusal is not None:
            self._refuse(leader, members, refusal, now)
        return len(members) - len(self._rest.get(job.name, ()))

    def _come_back(self, job: Job, left: list[PodRecord]) -> None:
        """These are to be tried once the others had their turn."""
        if not left:
            return
        job.has_enough = True
        job.leader = left[0]
        for pod in left[1:]:
            if self._queue.place(pod.uid) != "following":
                self._queue.follow(pod)
        self._rest[job.name] = left
        self._queue.add(left[0])

    def _go_on(self, leader: PodRecord, members: list[PodRecord], now: float, one_by_one: bool) -> int:
        """Takes places for members the job could do without."""
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
            self._come_back(job, left)
        elif refusal is not None:
            for pod in left:
                self._queue.remove(pod)
            self._refuse(left[0], left, refusal, now)
        return len(members) - len(left) if again else len(members)

    def new_round(self) -> None:
        """What was left for later in a round may be different in the next."""
        self._rest.clear()

    def waiting(self, leader: PodRecord) -> list[PodRecord]:
        """The members to find places for, as they are to be tried."""
        assert leader.job is not None
        found = [
            pod
            for job in self._jobs.partners(leader.job)
            for pod in job.waiting()
            if pod is leader or self._queue.place(pod.uid) != "gated"
            if pod.scheduler in self._profiles
        ]
        return sorted(found, key=lambda p: (-p.cls.priority, p.queued_since, p.namespace, p.name))

    def hindrance(
        self, jobs: list[Job], members: list[PodRecord], may_make_room: bool = False
    ) -> GangRefusal | None:
        """Why there is no use in looking for places yet, or even in making room for them."""
        for job in jobs:
            if not job.is_known:
                return self._said(NO_GROUP, f"{job.name} does not exist", Change.NONE)
            own = [pod for pod in members if pod.job is job]
            missing = job.lacks(own)
            if missing:
                # Its pods are told the same however many there are: they come one by one.
                text = f"{job.name} has fewer pods than it needs"
                of_task = job.lacks_of_tasks(own)
                reason = NOT_ENOUGH_OF_TASK if of_task else NOT_ENOUGH_TASKS
                problem = JobProblem(reason, f"{job.name} has {of_task or missing}")
                return GangRefusal(problem, {}, Change.NONE, {}, text)
            names = self._jobs.missing_partners(job)
            if names:
                text = f"{job.name} waits for {', '.join(map(str, names))}"
                return self._said(NOT_ENOUGH_TASKS, text, Change.NONE)
            queues = self._cluster.jobs.queues
            refuses = queues.closed if may_make_room else queues.admission_error
            refusal = queues.all_refused(refuses, own)
            if refusal:
                return self._said(QUEUE, refusal, _ROOM | Change.OTHER)
            if may_make_room:
                continue
            lacking = self._lacking_resources(job)
            if lacking and not job.is_ready:
                text = f"{job.name} asks for more than is free of {', '.join(lacking)}"
                return self._said(NOT_ENOUGH_RESOURCES, text, _ROOM)
        if not self._cluster.nodes.count:
            return self._said(NOT_ENOUGH_RESOURCES, NO_NODES, Change.ANY)
        return None

    def could_start(self, jobs: list[Job]) -> bool:
        """Whether the jobs are ready as things are, and find what they need as a whole."""
        ready = all(job.is_ready for job in jobs)
        return ready and not any(self._lacking_resources(job) for job in jobs)

    def _said(self, reason: str, message: str, wakes_on: int) -> GangRefusal:
        return GangRefusal(JobProblem(reason, message), {}, wakes_on, {})

    def _lacking_resources(self, job: Job) -> list[str]:
        """The resources of which there is less than the job asks for as a whole."""
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

    def _needs_free_node(self, jobs: list[Job], members: list[PodRecord]) -> bool:
        """Whether there is too little room for the job, which has been told so before."""
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
        """What could help any of them; other things may be to blame than when they were told why."""
        wakes_on = _ROOM
        for pods in self._by_class(members).values():
            profile = self._profiles[pods[0].scheduler]
            column = self._cycle.column(profile, pods[0].cls)
            wakes_on |= self._cycle.may_wake(profile, column) | pods[0].wakes_on
        return wakes_on

    def _capacity(self, pod: PodRecord, rows: "np.typing.NDArray[np.bool_]") -> int:
        """At most so many such pods could be placed on these rows."""
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
            # Those with a place count as members of theirs by now.
            if not statement.placed or not all(job.is_ready for job in jobs):
                why = self._reasons(jobs, left)
                statement.discard()
                return why if lost is None else self._unpermitted(lost, stops)
            refusal = self._reasons(jobs, left) if left and enough is None else None
            lost = statement.commit(now, reports_ready=True)
            if lost is None:
                for pod, stop in stops:
                    self._cycle.refuse_alone(pod, stop, now)
                if enough is not None:
                    self._come_back(jobs[0], left)
                return refusal
            # Others may do for those that are not permitted.
            stops += lost.stops
            refused = {pod.uid for pod, _ in lost.stops}
            members = [pod for pod in members if pod.uid not in refused]
            if not all(job.would_be_ready(p for p in members if p.job is job) for job in jobs):
                return self._unpermitted(lost, stops)

    def recheck_waiting(self, now: float) -> None:
        """Asks again for the permission of members that wait for it."""
        for lost in self._cycle.gang_permit.recheck(now):
            self.refuse_unpermitted(lost, now)

    def refuse_unpermitted(self, lost: Unpermitted, now: float) -> None:
        """Members that have given their places back wait with the others of their job."""
        for pod in lost.members:
            if pod.deletion_pending:
                self._queue.forget(pod)
        members = self.waiting(lost.members[0])
        for pod in members:
            self._queue.take(pod)
        if members:
            self._refuse(members[0], members, self._unpermitted(lost, lost.stops), now)

    def _unpermitted(self, lost: Unpermitted, stops: Stops) -> GangRefusal:
        """Why the jobs are not bound: these of their members were refused."""
        names = ", ".join(str(job.name) for job in lost.jobs)
        text = f"{names} may bind {lost.lacking}"
        if stops:
            pod, stop = stops[0]
            text += f": {pod.namespace}/{pod.name}: {stop.text()}"
        messages, conditions = {}, {}
        wakes_on = Change.NONE if stops else _ROOM
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
        """Tries again as if no other pod had a nominated node: what is left of a job whose start was
        interrupted comes before those, too. Those whose nominated nodes it gets lose them."""
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
        """Whether a job that is not ready yet has all it needs; None if it has no more than that."""
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
        """Takes a place for each for which there is one, until it is enough; the others. Where members
        attract each other, one may fit after another has."""
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
        """Says so, if that is news."""
        job.problem = NOTHING
        self._jobs.touch(job)
        if not job.seen_ready:
            job.seen_ready = True
            job.waited = max(0.0, now - job.pending_since)
            text = f"{job.ready_members} of {job.min_member} needed pods have a place"
            self._cycle.decisions.append(Emit(job.ref, "Normal", READY, text, "Scheduling"))
            self._cluster.chronicle.note(now, job.name, "ready")

    # No place

    def _reasons(self, jobs: list[Job], left: list[PodRecord]) -> GangRefusal:
        """Why these have no place, with everything as it is at this moment."""
        messages: dict[str, str] = {}
        conditions: dict[str, str] = {}
        wakes_on, has_failed = Change.NONE, False
        told: dict[Hashable, tuple[str, str, Collection[str]]] = {}
        for pod in left:
            profile = self._profiles[pod.scheduler]
            kind = (profile.index, pod.cls.id, pod.pinned_node)
            refusal = self._jobs.queues.admission_error(pod)
            if refusal:
                told[kind] = refusal, "Unschedulable", ()
                wakes_on |= _ROOM | Change.OTHER
            elif kind not in told or self._cycle.was_refused(pod):
                column = self._cycle.column(profile, pod.cls)
                why = self._cycle.verdict(profile, pod, column)
                counted = (
                    "" if pod.reservation else DryRun(self._cluster, column, pod, False).reservations()
                )
                message = why.message(self._cluster.nodes.count, f"{counted}." if counted else "")
                told[kind] = message, why.condition, why.plugins
                has_failed = has_failed or why.has_failed
                wakes_on |= profile.wakes_on(why.plugins)
            messages[pod.uid], conditions[pod.uid], pod.rejected_by = told[kind]
        lacking = next((text for job in jobs if (text := job.lacks(()))), "")
        names = ", ".join(str(job.name) for job in jobs)
        summary = f"{names} has a place for {lacking}" if lacking else ""
        reasons = Counter(messages.values()).most_common(1)
        detail = f": {reasons[0][0]}" if reasons else ""
        problem = JobProblem(NOT_ENOUGH_RESOURCES, f"{summary or names}{detail}")
        return GangRefusal(problem, messages, wakes_on or _ROOM, conditions, has_failed=has_failed)

    def _refuse(
        self, leader: PodRecord, members: list[PodRecord], refusal: GangRefusal, now: float
    ) -> None:
        # Those that were refused alone are in the queue already.
        left = [
            pod for pod in members if pod.phase is Phase.PENDING and self._queue.place(pod.uid) is None
        ]
        if not any(pod is leader for pod in left):
            leader = left[0] if left else leader
        for job in {id(pod.job): pod.job for pod in left if pod.job is not None}.values():
            if not job.is_ready:
                job.problem = refusal.problem
                reason = refusal.problem.reason
                if reason in _ROOM_HELPS or (
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
        """The pod was refused, by its queue or with its job; `end_nominations` looks at it."""
        if pod.nominated:
            self._nominated[pod.uid] = pod

    def end_nominations(self) -> None:
        """What was refused though nobody is on the way out for it any more has no nominated nodes: it
        would keep others from capacity that it cannot use."""
        refused, self._nominated = self._nominated, {}
        for pod in refused.values():
            members = [pod] if pod.job is None else pod.job.waiting()
            waiting = [each for each in members if each.nominated and each.phase is Phase.PENDING]
            if not any(self._is_being_cleared(each.nominated) for each in waiting):
                self._cycle.apply([Nominate(each.ref, "") for each in waiting])

    def _is_being_cleared(self, node: str) -> bool:
        """Whether pods are on their way out of the node."""
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
        alone = pod.job.problem.reason == NOT_PERMITTED or any(
            p.nominated or p.pinned_node is not None or p.cls.private for p in left
        )
        self._queue.reject(pod, self._key(pod, left), wakes_on, now, go_on=alone)

    def _key(self, leader: PodRecord, left: list[PodRecord]) -> Key:
        """Jobs of one shape fare alike."""
        job = leader.job
        assert job is not None
        kinds = tuple(sorted(Counter((pod.scheduler, pod.cls.id) for pod in left).items()))
        tasks = tuple(sorted(job.min_tasks.items()))
        least = max(0, job.still_needs - job.ready_members)
        partners = job.bond.partners
        resources = str(sorted(job.group.spec.min_resources.items())) if job.group is not None else ""
        shape: tuple[Hashable, ...] = (kinds, least, tasks, job.queue, partners, resources)
        if tasks or partners or job.problem.reason in _MEMBERS_MISSING:
            shape = (*shape, job.name)
        return (self._profiles[leader.scheduler].index, self._queue.number(shape))
