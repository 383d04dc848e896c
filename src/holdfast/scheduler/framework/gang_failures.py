"""The failure handler of gangs: why a job cannot be scheduled or bound, and how its members are queued.

A refusal is of the whole job: each pending member gets a condition, one of them, the leader, is queued
for all, and the job's problem goes to the status of its group.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.binding_cycle import Stop
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import Key, SchedulingQueue
from holdfast.scheduler.jobs import Job, JobName, JobProblem, Jobs
from holdfast.scheduler.jobs.job import NO_GROUP, NOT_ENOUGH_OF_TASK, NOT_ENOUGH_TASKS
from holdfast.scheduler.state.cluster import Cluster

NOT_ENOUGH_RESOURCES = "NotEnoughResources"
NOT_PERMITTED = "NotPermitted"
QUEUE = "NotAdmitted"
GATED = "MembersGated"
SCHEDULER_ERROR = "SchedulerError"

_MEMBERS_MISSING = (NO_GROUP, NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK, GATED, SCHEDULER_ERROR)
_CAPACITY_HELPS = (NOT_ENOUGH_RESOURCES, QUEUE)
MORE_CAPACITY = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_TAINTS | Change.POD_LEFT

Stops = list[tuple[PodRecord, Stop]]


class Unpermitted(NamedTuple):
    """Members that were unreserved because too few of their job can be bound."""

    jobs: list[Job]
    stops: Stops
    """The members that plugins refused."""
    members: list[PodRecord]
    """All members that were unreserved."""
    lacking: str
    """How many members the job has without the refused ones, of how many it needs."""


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


def gang_refusal(reason: str, message: str, wakes_on: int) -> GangRefusal:
    """A refusal with one message for all members."""
    return GangRefusal(JobProblem(reason, message), {}, wakes_on, {})


def pending_members(
    leader: PodRecord, jobs: Jobs, queue: SchedulingQueue, profiles: Mapping[str, Profile]
) -> list[PodRecord]:
    """The pending members of the leader's job and its partners, in the order in which they are
    tried."""
    own = jobs.of(leader)
    assert own is not None
    found = [
        pod
        for job in jobs.partners(own)
        for pod in job.waiting()
        if pod is leader or queue.place(pod.uid) != "gated"
        if pod.scheduler in profiles
    ]
    return sorted(found, key=member_order)


def member_order(pod: PodRecord) -> tuple[int, float, tuple[str, str], str]:
    """The key by which the members of a job are ordered."""
    return (-pod.cls.priority, pod.queued_since, (pod.created or "", pod.namespace), pod.name)


def led_members(leader: PodRecord, members: list[PodRecord], jobs: Jobs) -> list[PodRecord]:
    """Those of the members that the leader is queued for. The others have a leader of their own, and
    stay in the queue while they are tried together with these."""
    own = jobs.of(leader)
    assert own is not None
    if not own.gang.partners:
        return members
    led = {job.name for job in jobs.partners(own) if jobs.is_queued_with(job, own)}
    return [pod for pod in members if pod.job in led]


class GangFailureHandler:
    """Handles failed attempts to schedule a job."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        failures: FailureHandler,
    ) -> None:
        self._cluster = cluster
        self._jobs = cluster.jobs
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._failures = failures
        self.refused: dict[JobName, PodRecord] = {}
        """Jobs that lacked capacity in this round, and their leaders."""

    # Why a job cannot be scheduled

    def reasons(self, jobs: list[Job], left: list[PodRecord]) -> GangRefusal:
        """The reasons why these members are unschedulable, with the members assumed so far in place."""
        messages: dict[str, str] = {}
        conditions: dict[str, str] = {}
        wakes_on, has_failed = Change.NONE, False
        reported: dict[Hashable, tuple[str, str, Collection[str]]] = {}
        for pod in left:
            profile = self._profiles[pod.scheduler]
            kind = (profile.index, pod.cls.id, pod.pinned_node)
            refusal = self._jobs.queue_limits.admission_error(pod)
            if refusal:
                reported[kind] = refusal, "Unschedulable", ()
                wakes_on |= MORE_CAPACITY | Change.OTHER
            elif kind not in reported or pod.uid in self._failures.refusals:
                column = self._columns.column(profile, pod.cls)
                why = self._failures.verdict(profile, pod, column)
                counted = (
                    "" if pod.reservation else DryRun(self._cluster, column, pod, False).reservations()
                )
                message = why.message(self._cluster.nodes.count, f"{counted}." if counted else "")
                reported[kind] = message, why.condition, why.plugins
                has_failed = has_failed or why.has_failed
                wakes_on |= column.wakes_on_rejection(why.plugins)
            messages[pod.uid], conditions[pod.uid], pod.rejected_by = reported[kind]
        lacking = next((text for job in jobs if (text := job.lacks(()))), "")
        names = ", ".join(str(job.name) for job in jobs)
        summary = f"{names} has nodes for {lacking}" if lacking else ""
        reasons = Counter(messages.values()).most_common(1)
        detail = f": {reasons[0][0]}" if reasons else ""
        problem = JobProblem(NOT_ENOUGH_RESOURCES, f"{summary or names}{detail}")
        return GangRefusal(
            problem, messages, wakes_on or MORE_CAPACITY, conditions, has_failed=has_failed
        )

    def unpermitted(self, lost: Unpermitted, stops: Stops) -> GangRefusal:
        """The refusal for jobs that are not bound because plugins refused some of their members."""
        names = ", ".join(str(job.name) for job in lost.jobs)
        text = f"{names} is permitted to bind {lost.lacking}"
        if stops:
            pod, stop = stops[0]
            text += f": {pod.namespace}/{pod.name}: {stop.text()}"
        messages, conditions = {}, {}
        wakes_on = Change.NONE if stops else MORE_CAPACITY
        for pod, stop in stops:
            messages[pod.uid] = stop.text()
            conditions[pod.uid] = "SchedulerError" if stop.outcome.retry else "Unschedulable"
            wakes_on |= self._profiles[pod.scheduler].wakes_on((stop.plugin.name,))
            pod.rejected_by = (stop.plugin.name,)
        has_failed = any(stop.outcome.retry or stop.preempted for _, stop in stops)
        problem = JobProblem(NOT_PERMITTED, text)
        return GangRefusal(problem, messages, wakes_on, conditions, has_failed=has_failed)

    # What becomes of its members

    def refuse_unpermitted(self, lost: Unpermitted, now: float) -> None:
        """Queues members that were unreserved again, with the other pending members of their job."""
        for pod in lost.members:
            if pod.deletion_pending:
                self._queue.forget(pod)
        for leader in lost.members:
            if leader.phase is not Phase.PENDING or leader.deletion_pending:
                continue
            if self._queue.place(leader.uid) is not None:
                continue  # it is queued with one of those before it
            members = pending_members(leader, self._jobs, self._queue, self._profiles)
            members = led_members(leader, members, self._jobs)
            for pod in members:
                self._queue.take(pod)
            if members:
                self.refuse(members[0], members, self.unpermitted(lost, lost.stops), now)

    def refuse(
        self, leader: PodRecord, members: list[PodRecord], refusal: GangRefusal, now: float
    ) -> None:
        """Sets the conditions of members that are still pending, and queues them again."""
        # Members that were refused one by one are in the queue already.
        left = [
            pod for pod in members if pod.phase is Phase.PENDING and self._queue.place(pod.uid) is None
        ]
        if not any(pod is leader for pod in left):
            leader = left[0] if left else leader
        reason = refusal.problem.reason
        for job in self._jobs_of(left):
            if not job.is_ready:
                job.problem = refusal.problem
            job.lacked_nodes = reason == NOT_ENOUGH_RESOURCES and bool(refusal.messages)
            helps = reason in _CAPACITY_HELPS or (
                leader.reservation is not None and reason != NOT_PERMITTED
            )
            if helps:
                self._note_lacking(job, leader)
            self._jobs.touch(job)
        for pod in left:
            self._failures.note_nominated(pod)
            self._reject(pod, leader, left, refusal.wakes_on, now, refusal.has_failed)
            text = refusal.messages.get(pod.uid) or refusal.text or refusal.problem.message
            self._failures.set_condition(
                pod, text, now, refusal.conditions.get(pod.uid, "Unschedulable")
            )

    def keep_conditions(
        self, leader: PodRecord, members: list[PodRecord], wakes_on: int, now: float
    ) -> None:
        """Queues members again that stay unschedulable, perhaps for other reasons than their conditions
        say."""
        for job in self._jobs_of(members):
            self._note_lacking(job, leader)
        for pod in members:
            self._failures.note_nominated(pod)
            self._reject(pod, leader, members, wakes_on, now)

    def _jobs_of(self, members: list[PodRecord]) -> list[Job]:
        names = dict.fromkeys(pod.job for pod in members if pod.job is not None)
        return [self._jobs.known[name] for name in names]

    def _note_lacking(self, job: Job, leader: PodRecord) -> None:
        """The actions that follow may free capacity for the job, or place it on held capacity."""
        if not job.is_ready or job.core is not None:
            self.refused[job.name] = leader

    def refuse_member(self, pod: PodRecord, stop: Stop, now: float) -> None:
        """Sets the condition of a member that was refused by itself, and queues it again."""
        if stop.preempted:
            self._failures.handle_preempted(pod, now)
            return
        profile = self._profiles[pod.scheduler]
        self._failures.handle_outcome(profile, pod, stop.plugin, stop.outcome, now, next_scout=True)

    def _reject(
        self,
        pod: PodRecord,
        leader: PodRecord,
        left: list[PodRecord],
        wakes_on: int,
        now: float,
        has_failed: bool = False,
    ) -> None:
        if pod.cls.claims:
            self._cluster.claims.drop_left_consumer(pod)
        if pod is not leader:
            self._queue.follow(pod)
            return
        job = self._jobs.of(pod)
        assert job is not None
        job.leader = pod
        if has_failed:
            self._queue.retry_later(pod, now)
            return
        next_scout = job.problem.reason == NOT_PERMITTED or any(
            p.nominated or p.pinned_node is not None or p.cls.private for p in left
        )
        wakes_on |= self._failures.awaited_devices(left)
        self._queue.reject(pod, self._key(pod, left), wakes_on, now, next_scout=next_scout)

    def _key(self, leader: PodRecord, left: list[PodRecord]) -> Key:
        """The key of the job's group in the queue: jobs of one shape get the same result."""
        job = self._jobs.of(leader)
        assert job is not None
        kinds = tuple(sorted(Counter((pod.scheduler, pod.cls.id) for pod in left).items()))
        tasks = tuple(sorted(job.min_tasks.items()))
        least = max(0, job.still_needs - job.ready_members)
        partners = job.gang.partners
        resources = str(sorted(job.group.spec.min_resources.items())) if job.group is not None else ""
        shape: tuple[Hashable, ...] = (kinds, least, tasks, job.queue, partners, resources)
        if job.core is not None:
            shape = (*shape, job.name.family, job.topology_key)
        if tasks or partners or job.topology_key or job.problem.reason in _MEMBERS_MISSING:
            shape = (*shape, job.name)
        return (self._profiles[leader.scheduler].index, self._queue.number(shape))
