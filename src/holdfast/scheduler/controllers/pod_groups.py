"""The status of Queues and PodGroups.

A Queue's status has its state, what is allocated, and the number of PodGroups by phase. A PodGroup's
status has its phase, counts of members, and conditions that say why a job is pending:

    Pending     members are missing, or it was not tried yet
    Inqueue     all members exist and are pending, or its pods can be created
    Running     enough members are scheduled
    Unknown     some members run, but fewer than it needs
    Completed   as many members as it needs have ended, and none is left

PodGroups of scheduling.sigs.k8s.io have no conditions, and other phases: Pending, Scheduling, Scheduled
(enough members are), Running, Failed (one has failed, and enough had started), Finished (enough have
succeeded). Those of scheduling.k8s.io have conditions only: PodGroupInitiallyScheduled, which stays
True once it is, and DisruptionTarget of a group that is preempted as a whole.

A job that is pending longer than its schedule timeout gets one event, and stays pending.
"""

from collections import Counter

import msgspec

from holdfast.api.jobs import PodGroup, PodGroupCondition, PodGroupStatus, QueueStatus
from holdfast.api.pod_groups import (
    DISRUPTION_TARGET,
    INITIALLY_SCHEDULED,
    PREEMPTION_BY_SCHEDULER,
    CorePodGroup,
)
from holdfast.api.quantity import format_amount
from holdfast.api.times import format_duration, format_time
from holdfast.scheduler.cluster.decisions import (
    Decision,
    Emit,
    Preempt,
    SetPodGroupStatus,
    SetQueueStatus,
)
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.jobs import Job, JobName, JobProblem
from holdfast.scheduler.jobs.job import (
    NO_GROUP,
    NOT_ENOUGH_OF_TASK,
    NOT_ENOUGH_TASKS,
    NOTHING,
    SCHEDULED,
    SIGS,
)
from holdfast.scheduler.jobs.queue_limits import may_become_inqueue
from holdfast.scheduler.jobs.queues import QueueRecord
from holdfast.scheduler.state.cluster import Cluster


class QueueStatuses:
    """Writes the status of Queues."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues = cluster.jobs.queues

    def run(self, now: float) -> list[Decision]:
        """Writes the status of queues that changed."""
        if not self._queues:
            return []
        self._queues.refresh()
        dirty, jobs = self._queues.dirty, self._cluster.jobs
        for name in jobs.dirty:
            if name in jobs.known and jobs.known[name].queue:
                dirty[jobs.known[name].queue] = None
        if not dirty:
            return []
        self._queues.take_dirty()
        phases: dict[str, Counter[str]] = {name: Counter() for name in dirty}
        for job in jobs.known.values():
            if job.group is not None and job.queue in phases:
                phases[job.queue][phase_of(job)] += 1
        decisions: list[Decision] = []
        for record in [self._queues.known[name] for name in dirty if name in self._queues.known]:
            status = self._status(record, phases[record.name])
            if status == record.object.status:
                record.last_status = None
            elif status != record.last_status:
                record.last_status = status
                decisions.append(SetQueueStatus(record.ref, status))
        return decisions

    def next_timer(self) -> float | None:
        return None

    def _status(self, record: QueueRecord, phases: Counter[str]) -> QueueStatus:
        slots = self._cluster.nodes.slots
        has = {slots.name(slot): amount for slot, amount in record.allocated.items()}
        return msgspec.structs.replace(
            record.object.status,
            state=_state(record, phases),
            allocated={name: format_amount(name, has[name]) for name in sorted(has) if name},
            pending=phases["Pending"],
            running=phases["Running"],
            inqueue=phases["Inqueue"],
            unknown=phases["Unknown"],
            completed=phases["Completed"],
        )


def _state(record: QueueRecord, phases: Counter[str]) -> str:
    """The state of a queue: one that is Closing is Closed once it has no jobs."""
    state = record.object.status.state or "Open"
    return "Closed" if state == "Closing" and not phases.total() else state


# PodGroups


UNSCHEDULABLE = "Unschedulable"
TIMEOUT = "ScheduleTimeout"
_SAYS_WHY = ((UNSCHEDULABLE, "True"), (INITIALLY_SCHEDULED, "False"))
_SCHEDULER_ERROR = "SchedulerError"
_NOT_TRIED = (NO_GROUP, NOT_ENOUGH_TASKS)
"""Problems of a PodGroup of `scheduling.k8s.io` that is not in the scheduling queue: no condition."""
_PENDING = "Pending"
_EVICTION_TAKES = 10.0
"""Seconds that the scheduler that preempts a whole job has to delete all its members."""


class PodGroups:
    """Writes the status of PodGroups, and admits jobs without pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._jobs = cluster.jobs
        self._without_pods: dict[JobName, None] = {}
        self._seen: object = None
        self._deadlines: dict[JobName, float] = {}
        self._unfinished: dict[JobName, float] = {}
        """By job, when this controller completes the eviction of the whole job, if it is not
        complete."""

    def run(self, now: float) -> list[Decision]:
        """Reconciles every job that changed."""
        timed = self._deadlines or self._unfinished
        if not self._jobs.dirty and not timed and not self._without_pods:
            return []
        self._let_in()
        dirty = self._jobs.take_dirty()
        for timers in (self._deadlines, self._unfinished):
            dirty |= {name: None for name, deadline in timers.items() if deadline <= now}
        decisions: list[Decision] = []
        for name in dirty:
            job = self._jobs.known.get(name)
            if job is None:
                self._deadlines.pop(name, None)
                self._unfinished.pop(name, None)
                continue
            self._update_problem(job, now)
            decisions += self._finish_eviction(job, now)
            late = self._is_late(job, now)
            decisions += late + self._write(job, now, not late)
        return decisions

    def _let_in(self) -> None:
        """Admits jobs without pods (Inqueue), so that their pods can be created."""
        cluster, known = self._cluster, self._jobs.known
        for name in self._jobs.dirty:
            job = known.get(name)
            if job is not None and _has_no_pods(job):
                self._without_pods[name] = None
        if not self._without_pods:
            return
        seen = (cluster.epoch.nodes.end, cluster.epoch.usage.end, cluster.epoch.queues)
        if seen == self._seen and self._without_pods.keys().isdisjoint(self._jobs.dirty):
            return
        self._seen = seen
        jobs = [known[name] for name in self._without_pods if name in known]
        jobs = [job for job in jobs if _has_no_pods(job) and not job.admitted]
        self._without_pods = {job.name: None for job in jobs}
        if not jobs:
            return
        admitted = [job for job in known.values() if phase_of(job) == "Inqueue"]
        for job in sorted(jobs, key=lambda job: (-job.priority, job.created, job.name)):
            if may_become_inqueue(cluster.nodes, cluster.jobs.queues, job, admitted):
                job.admitted = True
                admitted.append(job)
                del self._without_pods[job.name]
                self._jobs.touch(job)

    def next_timer(self) -> float | None:
        times = [*self._deadlines.values(), *self._unfinished.values()]
        return min(times, default=None)

    def _finish_eviction(self, job: Job, now: float) -> list[Decision]:
        """Completes the eviction of a whole job. A job that cannot run without its victims is evicted
        as a whole; a scheduler that stops in the middle leaves members with the condition, but not
        deleted. These are deleted too, as a part of the job is of no use."""
        marked = [each for each in job.placed() if each.preempted and not each.being_preempted]
        members = marked if not job.is_ready else []
        if not members:
            self._unfinished.pop(job.name, None)
            return []
        due = self._unfinished.setdefault(job.name, now + _EVICTION_TAKES)
        if due > now:
            return []
        del self._unfinished[job.name]
        decisions: list[Decision] = []
        for member in members:
            member.being_preempted = True
            node = self._cluster.nodes.name(member.row)
            condition = f"{member.scheduler}: preempting to accommodate a higher priority pod"
            text = f"{job.name} was preempted and has lost members: its remaining pods are evicted"
            decisions.append(
                Preempt(member.ref, member.ref, node, condition, str(job.name), member.reservation_uid)
            )
            decisions.append(Emit(member.ref, "Normal", "Preempted", text, "Preempting"))
        return decisions

    def _update_problem(self, job: Job, now: float) -> None:
        # Members that wait in Permit, or for their bind, make it ready, and may be refused.
        job.started = job.is_bound or (job.started and bool(job.placed()))
        if job.is_ready:
            job.seen_ready = True
            job.problem = NOTHING
            job.lost_at = None
            job.admitted = False
        elif job.seen_ready and job.waiting():
            job.seen_ready = False
            job.lost_at = now
        elif job.is_known and not job.waiting() and any(job.placed()):
            # It is not tried before its members are created again, so the problem is set here.
            of_task = job.lacks_of_tasks(())
            reason = NOT_ENOUGH_OF_TASK if of_task else NOT_ENOUGH_TASKS
            job.problem = JobProblem(reason, f"{job.name} has {of_task or job.lacks(())}")
        may_be_interrupted = job.interrupted or not job.seen_ready
        is_news = may_be_interrupted and self._jobs.look_for_interruption(job)
        if is_news:
            self._jobs.changed(job)

    def _is_late(self, job: Job, now: float) -> list[Decision]:
        """Updates `overdue`: whether the job is pending longer than its timeout. Emits one event."""
        deadline = self._jobs.deadline(job)
        self._deadlines.pop(job.name, None)
        if deadline is None or deadline > now:
            job.overdue = NOTHING
            if deadline is not None:
                self._deadlines[job.name] = deadline
            return []
        if job.overdue.reason or not job.problem.reason:
            return []  # it is reported already; or it was not tried yet, and may be scheduled at once
        allowed = format_duration(deadline - job.waits_since)
        job.overdue = JobProblem(TIMEOUT, f"{job.name} was not placed within {allowed}")
        if _was_reported(job, deadline):
            return []
        return [Emit(job.ref, "Warning", TIMEOUT, job.reported_problem.message[:1024], "Scheduling")]

    def _write(self, job: Job, now: float, emit: bool) -> list[Decision]:
        group = job.group
        if group is None or not self._jobs.owns_status(job) or self._is_of_others(job):
            return []
        status = status_of(job, group, now)
        if status == group.status:
            job.last_status = None
            return []
        if status == job.last_status:
            return []
        decisions: list[Decision] = [SetPodGroupStatus(job.ref, group.api_version, status)]
        before = job.last_status if isinstance(job.last_status, PodGroupStatus) else group.status
        job.last_status = status
        why = job.reported_problem
        if emit and why.reason and (_why(before) != why.message or not _why(before)):
            decisions.append(Emit(job.ref, "Warning", UNSCHEDULABLE, why.message[:1024], "Scheduling"))
        return decisions

    def _is_of_others(self, job: Job) -> bool:
        """Whether another scheduler writes its status: that of its pods, if it is a PodGroup of
        `scheduling.k8s.io`."""
        if job.core is None:
            return False
        ours = self._cluster.settings.scheduler_names
        return not any(member.scheduler in ours for member in job.members.values())


def _why(status: PodGroupStatus) -> str:
    for condition in status.conditions:
        if (condition.type, condition.status) in _SAYS_WHY:
            return condition.message
    return ""


def _was_reported(job: Job, deadline: float) -> bool:
    """Whether an earlier scheduler reported it: by a condition or, without conditions, by the time."""
    if job.group is None or job.core is not None or job.group.api_version.startswith(SIGS):
        return deadline < job.first_seen
    return any(c.reason == TIMEOUT and c.status == "True" for c in job.group.status.conditions)


def _has_no_pods(job: Job) -> bool:
    """Whether a controller may wait for Inqueue to create its pods. Controllers that use PodGroups of
    the other API group do not wait."""
    group = job.group
    if group is None or group.metadata.deletion_timestamp:
        return False
    if isinstance(group, CorePodGroup) or group.api_version.startswith(SIGS):
        return False
    return not job.members and phase_of(job) != "Completed"


def phase_of(job: Job) -> str:
    """The phase of a job by the rules of scheduling.volcano.sh."""
    ended = len(job.done) + len(job.failed)
    if ended and not job.members and ended >= job.min_member:
        return "Completed"
    if job.is_ready:
        return "Running"
    if any(member.phase is Phase.ASSIGNED for member in job.members.values()):
        return "Unknown"
    enough = job.is_known and not job.lacks(job.waiting())
    if (job.tried and enough and job.members) or job.admitted:
        return "Inqueue"
    # A controller that creates pods one by one must not be stopped by a return to Pending.
    return "Inqueue" if job.group is not None and job.group.status.phase == "Inqueue" else _PENDING


def _sigs_phase(job: Job, status: PodGroupStatus, before: str) -> str:
    """The phase by the rules of scheduling.sigs.k8s.io: ended pods are still members, and a group that
    was tried is not Pending again while it has members."""
    least, there = max(1, job.min_member), len(job.members) + status.succeeded + status.failed
    if not there or (before in ("", _PENDING) and there < least):
        return _PENDING
    if status.succeeded >= least:
        return "Finished"
    if status.failed and status.failed + status.running + status.succeeded >= least:
        return "Failed"
    if status.scheduled < least:
        return "Scheduling"
    return "Running" if status.succeeded + status.running >= least else "Scheduled"


def _occupied_by(job: Job) -> str:
    """The owners of its first member, as `namespace/name`, separated by commas."""
    member = next(iter(job.members.values()), None)
    if member is None:
        return ""
    return ",".join(sorted(f"{member.namespace}/{owner.name}" for owner in member.cls.owners))


def status_of(job: Job, group: PodGroup, now: float) -> PodGroupStatus:
    """The whole status. Conditions that did not change keep their times."""
    if isinstance(group, CorePodGroup):
        return _core_status(job, group, now)
    phase = phase_of(job)
    members = job.members.values()
    status = msgspec.structs.replace(
        group.status,
        phase=phase,
        running=sum(m.phase is Phase.ASSIGNED and m.started is not None for m in members),
        succeeded=len(job.done),
        failed=len(job.failed),
    )
    if group.api_version.startswith(SIGS):
        bound = sum(member.phase is Phase.ASSIGNED for member in members)
        status.scheduled = bound + status.succeeded + status.failed
        status.phase = _sigs_phase(job, status, group.status.phase)
        if status.phase != _PENDING:
            status.schedule_start_time = status.schedule_start_time or format_time(now)
            status.occupied_by = status.occupied_by or _occupied_by(job)
        return status
    conditions = {condition.type: condition for condition in group.status.conditions}

    def set_condition(kind: str, true: bool, reason: str, message: str) -> None:
        known, value = conditions.get(kind), "True" if true else "False"
        before = (known.status, known.reason, known.message) if known is not None else None
        if before == (value, reason, message):
            return
        same = known is not None and known.status == value
        time = known.last_transition_time if known is not None and same else None
        conditions[kind] = PodGroupCondition(
            type=kind,
            status=value,
            reason=reason,
            message=message,
            last_transition_time=time or format_time(now),
        )

    if job.reported_problem.reason:
        set_condition(UNSCHEDULABLE, True, *job.reported_problem)
    elif UNSCHEDULABLE in conditions and phase in ("Running", "Completed"):
        set_condition(UNSCHEDULABLE, False, "", "")
    if phase == "Running":
        set_condition(SCHEDULED, True, "Ready", "")
    elif phase != "Completed" and SCHEDULED in conditions:
        set_condition(SCHEDULED, False, "NotReady", "")
    status.conditions = list(conditions.values())
    return status


def _core_status(job: Job, group: CorePodGroup, now: float) -> PodGroupStatus:
    """The status of a PodGroup of `scheduling.k8s.io`."""
    conditions = {condition.type: condition for condition in group.status.conditions}

    def set_condition(kind: str, value: str, reason: str, message: str) -> None:
        known = conditions.get(kind)
        if known is not None and (known.status, known.reason, known.message) == (
            value,
            reason,
            message,
        ):
            return
        time = known.last_transition_time if known is not None and known.status == value else None
        conditions[kind] = PodGroupCondition(
            type=kind,
            status=value,
            reason=reason,
            message=message,
            observed_generation=group.metadata.generation or None,
            last_transition_time=time or format_time(now),
        )

    scheduled, problem = conditions.get(INITIALLY_SCHEDULED), job.reported_problem
    if scheduled is None or scheduled.status != "True":
        if job.is_ready:
            set_condition(INITIALLY_SCHEDULED, "True", SCHEDULED, "")
        elif problem.reason and job.problem.reason not in _NOT_TRIED:
            is_error = problem.reason == _SCHEDULER_ERROR
            reason = _SCHEDULER_ERROR if is_error else UNSCHEDULABLE
            set_condition(INITIALLY_SCHEDULED, "False", reason, problem.message)
    victims = [each for each in job.members.values() if each.being_preempted or each.preempted]
    if victims and group.spec.is_disrupted_whole:
        text = f"{victims[0].scheduler}: preempting to accommodate a higher priority pod"
        set_condition(DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER, text)
    elif job.is_ready and not victims:
        conditions.pop(DISRUPTION_TARGET, None)  # its pods were created again
    return msgspec.structs.replace(group.status, conditions=list(conditions.values()))
