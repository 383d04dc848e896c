"""The job index: all jobs, updated with pods and PodGroups in whichever order they are seen."""

from collections.abc import Callable, Iterable

from holdfast.api.jobs import PodGroup
from holdfast.api.meta import ObjectMeta
from holdfast.api.names import NO, PREEMPTABLE, QUEUE_NAME_ANNOTATION
from holdfast.api.pod import Pod
from holdfast.api.pod_groups import CorePodGroup
from holdfast.api.workloads import PriorityClass
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.pod_classes import GroupMembership
from holdfast.scheduler.cluster.records import (
    GangName,
    JobName,
    Phase,
    PodRecord,
    ReservationInfo,
    queued_since,
)
from holdfast.scheduler.jobs.capacity_planner import CapacityPlanner
from holdfast.scheduler.jobs.estimates import RunEstimates
from holdfast.scheduler.jobs.job import (
    CORE,
    NO_GANG_SETTINGS,
    SIGS,
    VOLCANO,
    Job,
    declared_in,
    gang_in,
    named_by,
    named_in,
    queue_in,
    task_in,
    task_of,
)
from holdfast.scheduler.jobs.job_victims import JobVictims
from holdfast.scheduler.jobs.node_forecast import NodeForecast
from holdfast.scheduler.jobs.queue_limits import QueueLimits
from holdfast.scheduler.jobs.queues import Queues
from holdfast.scheduler.reservations.reservation_cache import ReservationCache
from holdfast.scheduler.reservations.virtual_reservations import VirtualReservations

_OTHER = {VOLCANO: SIGS, SIGS: VOLCANO}
"""The API group whose PodGroup is used if there is none in the one that a pod names."""


class Jobs:
    """The jobs of a cluster, with its queues, starvation holds and run-time estimates."""

    def __init__(
        self,
        cluster: ClusterBase,
        reservations: ReservationCache,
        virtuals: VirtualReservations,
        forecast: NodeForecast,
        reprioritized: Callable[[PodRecord], None],
        victim_leaves: Callable[[], int],
    ) -> None:
        """`reprioritized` is called with a member after the priority or preemptability of its PodGroup
        changed; `victim_leaves` returns the kinds of change when a victim of preemption leaves."""
        self._cluster = cluster
        self._reservations = reservations
        self._reprioritized = reprioritized
        self.known: dict[JobName, Job] = {}
        self.dirty: dict[JobName, None] = {}
        """Jobs whose status may have to change."""
        self.interrupted: dict[JobName, None] = {}
        """Jobs whose start is known to be interrupted."""
        self.on_changed: list[Callable[[Job], None]] = []
        """Called with a job that may be schedulable now, or whose condition may change."""
        self._waiting_for: dict[GangName, dict[JobName, None]] = {}
        """By partner, the jobs that were refused because it does not exist or has too few members. They
        are woken up when it changes or becomes ready: a partner that does not name them is scheduled
        without them."""
        self._settings = cluster.settings
        self.queues = Queues(cluster, self._queue_of)
        self.queue_limits = QueueLimits(cluster, reservations, virtuals, self.queues)
        self.estimates = RunEstimates(cluster)
        self.planner = CapacityPlanner(cluster, reservations, self.estimates, forecast)
        reservations.waiting.blocked = self.planner.blocked
        self._groups: dict[JobName, PodGroup] = {}
        self._non_members: dict[JobName, dict[str, tuple[PodRecord, str]]] = {}
        """By job and uid, the pods that name it in a profile without Coscheduling, with the queues of
        their annotations."""
        self._ended_in: dict[str, JobName] = {}
        self._classes: dict[str, int] = {}
        self.victims = JobVictims(cluster, self.known, victim_leaves)
        cluster.ledger.listeners.append(self.victims.pod_moved)
        self._prioritized = False
        """Whether a PodGroup ever set the priority or preemptability of its pods."""

    def __len__(self) -> int:
        return len(self.known)

    def get(self, namespace: str, name: str) -> Job | None:
        """The job of this name; of one in each API group, that which its PodGroup's status is about."""
        names = (JobName(family, namespace, name) for family in (VOLCANO, SIGS, CORE))
        found = [self.known[each] for each in names if each in self.known]
        return next(filter(self.owns_status, found), None)

    def of(self, pod: PodRecord) -> Job | None:
        """The job that a pod, or reserve pod, is a member of."""
        return None if pod.job is None else self.known[pod.job]

    def waiting_members(self, name: JobName) -> list[PodRecord]:
        """The pending members of a job, including gated ones."""
        return self.known[name].waiting()

    def _queue_of(self, name: JobName) -> str:
        return self.known[name].queue

    # Members

    def named(self, pod: Pod) -> Job | None:
        """The job the pod names, if PodGroups set priorities or preemptability at all."""
        if not self._prioritized or pod.spec.scheduler_name in self._settings.without_gangs:
            return None
        name = named_by(pod)
        if name is None:
            return None
        return self.known.get(name) or self._other(name)

    def name_of(self, pod: Pod) -> JobName | None:
        """The name of the pod's job, if owners of reservations name PodGroups at all."""
        if not self._reservations.names_groups:
            return None
        return None if pod.spec.scheduler_name in self._settings.without_gangs else named_by(pod)

    def membership(self, name: JobName) -> GroupMembership:
        """The PodGroup of members of the job."""
        group = self._group_of(name)
        uid = group.metadata.uid if group is not None else ""
        reference = group.spec.workload_ref if isinstance(group, CorePodGroup) else None
        workload = reference.workload_name if reference is not None else ""
        return GroupMembership(name.family, name.name, uid, workload)

    def group_of(self, pod: PodRecord) -> PodGroup | None:
        """The PodGroup that a pod names, whether or not its profile schedules gangs."""
        name = pod.job or pod.group
        return self._group_of(name) if name is not None else None

    def _group_of(self, name: JobName) -> PodGroup | None:
        group = self._groups.get(name)
        if group is None and name.family in _OTHER:
            return self._groups.get(name._replace(family=_OTHER[name.family]))
        return group

    def core_group(self, namespace: str, name: str) -> CorePodGroup | None:
        """The PodGroup of `scheduling.k8s.io` of this name."""
        group = self._groups.get(JobName(CORE, namespace, name))
        return group if isinstance(group, CorePodGroup) else None

    def _other(self, name: JobName) -> Job | None:
        """The job of the same name in the API group whose PodGroups serve both."""
        family = _OTHER.get(name.family)
        return None if family is None else self.known.get(name._replace(family=family))

    def join_named(self, record: PodRecord, pod: Pod) -> None:
        """Makes the pod a member of the job it names, or of none. Without Coscheduling it is a member
        of none, but in the queue of the PodGroup: limits of queues hold in all profiles."""
        name = named_by(pod)
        self._join(record, name, pod.metadata)
        self.leave_group(record)
        if name is not None and record.job is None:
            record.group = name
            self._non_members.setdefault(name, {})[record.uid] = record, record.queue
            record.queue = queue_in(name, self._group_of(name)) or record.queue

    def leave_group(self, pod: PodRecord) -> None:
        """Forgets which PodGroup the pod names in a profile without Coscheduling."""
        if pod.group is None:
            return
        there = self._non_members[pod.group]
        del there[pod.uid]
        if not there:
            del self._non_members[pod.group]
        pod.group = None

    def is_leaving(self, record: PodRecord, pod: Pod) -> bool:
        """Whether a member names another job now, or none."""
        return record.job is not None and record.job != named_by(pod)

    def join(self, pod: PodRecord, meta: ObjectMeta, namespace: str = "") -> None:
        """Makes the reserve pod a member of the job the metadata names, or of none."""
        self._join(pod, named_in(meta, namespace), meta)

    def _join(self, pod: PodRecord, name: JobName | None, meta: ObjectMeta) -> None:
        """Also reads the settings of the job in the metadata."""
        if pod.scheduler in self._settings.without_gangs:
            name = None
        if pod.job is not None and pod.job != name:
            self.leave(pod)
        if name is None:
            return
        job = self._job(name)
        pod.job = job.name
        self.touch(job)
        if pod.uid not in job.members:
            job.add(pod)
            if self.queues and pod.row >= 0:
                self.queues.changed()
            job.declare(pod, declared_in(meta, name.gang))
        elif job.declare(pod, declared_in(meta, name.gang)):
            self._notify(job)

    def leave(self, pod: PodRecord) -> None:
        """Removes the pod from its job."""
        job, pod.job = self.of(pod), None
        if job is None:
            return
        job.remove(pod)
        self.touch(job)
        self._drop_if_empty(job)
        if job.members:
            self.changed(job)

    def pod_ended(self, pod: Pod, bound: float | None) -> None:
        """Notes that a pod succeeded or failed. `bound` is when it was bound, if known."""
        self._ended(named_by(pod), pod.metadata, pod.status.phase == "Succeeded", bound)

    def ended(self, meta: ObjectMeta, namespace: str) -> None:
        """Notes that the reserve pod of a reservation has ended."""
        self._ended(named_in(meta, namespace), meta, True, None)

    def _ended(
        self, name: JobName | None, meta: ObjectMeta, succeeded: bool, bound: float | None
    ) -> None:
        if name is None:
            return
        job = self._job(name)
        self._ended_in[meta.uid] = name
        if bound is not None:
            job.ended_bound[meta.uid] = bound
        if not succeeded:
            job.failed[meta.uid] = None
        elif meta.uid not in job.done:
            member = job.members.get(meta.uid)
            job.done[meta.uid] = task_of(member) if member is not None else task_in(meta)
        self.touch(job)

    def has_ended(self, uid: str) -> bool:
        """Whether it is the uid of a member that is known to have succeeded or failed."""
        return uid in self._ended_in

    def gone(self, uid: str) -> None:
        """Forgets a member that has ended, after its object was deleted."""
        name = self._ended_in.pop(uid, None)
        job = self.known.get(name) if name is not None else None
        if job is not None:
            job.done.pop(uid, None)
            job.failed.pop(uid, None)
            job.ended_bound.pop(uid, None)
            self.touch(job)
            self._drop_if_empty(job)

    def deadline(self, job: Job) -> float | None:
        """When the job's schedule timeout ends, counted from its first waiting member; None if it has
        no timeout or no waiting members, or is ready."""
        waiting = job.waiting()
        if not waiting or not (
            timeout := job.timeout or self._settings.gang_timeouts.get(waiting[0].scheduler)
        ):
            return None
        return None if job.is_ready else job.waits_since + timeout

    def partners(self, job: Job) -> list[Job]:
        """The jobs that must be ready together with it, itself first: those that it names, and those
        that these name unless they have started."""
        found, named = {job.name.gang: job}, [job]
        for each in named:
            for name in sorted(each.gang.partners) if each is job or not each.is_bound else ():
                partner = self._partner(each, name) if name not in found else None
                if partner is not None:
                    found[name] = partner
                    named.append(partner)
        return named

    def _partner(self, job: Job, name: GangName) -> Job | None:
        """The gang that the job names as a partner. Of several of this name those come first of which
        it is known how many members they need, then one of the job's own API group. PodGroups of
        `scheduling.k8s.io` are scheduled by rules that know no partners."""
        families = (job.name.family, _OTHER[job.name.family])
        jobs = (self.known.get(JobName(family, *name)) for family in families)
        found = [each for each in jobs if each is not None and self.owns_status(each)]
        return min(found, key=lambda each: not each.is_known, default=None)

    def is_queued_with(self, job: Job, other: Job) -> bool:
        """Whether one leader is queued for members of both jobs: they are the same, or name the same
        partners. A partner that names others is ready without this one, so it has its own leader."""
        return job is other or job.gang.partners == other.gang.partners

    def look_for_interruption(self, job: Job) -> bool:
        """Sets `Job.interrupted`: whether the start of the job was interrupted, by a restart of the
        scheduler or by a failed bind. Returns whether that changed. A pending member that existed when
        others were bound was to be bound with them; one created later replaces a lost member, and is
        scheduled in normal order."""
        before = job.interrupted
        job.interrupted = not job.is_ready and self._is_interrupted(job)
        if job.interrupted:
            self.interrupted[job.name] = None
        else:
            self.interrupted.pop(job.name, None)
        return job.interrupted != before

    def is_interrupted(self, pod: PodRecord) -> bool:
        """Whether the pod is a member of a job whose start is known to be interrupted."""
        job = self.of(pod)
        return job is not None and job.interrupted

    def has_start_to_finish(self) -> bool:
        """Whether a job that changed since its status was last reconciled has an interrupted start. Its
        members are tried before a Waiting reservation gets what is free: after a restart that is the
        capacity which they had been assigned."""
        found = (self.known.get(name) for name in self.dirty)
        return any(self._has_to_finish(job) for job in found if job is not None)

    def is_finishing_start(self, pod: PodRecord) -> bool:
        """Whether the pod is a member of a job with an interrupted start."""
        job = self.of(pod)
        return job is not None and self._has_to_finish(job)

    def _has_to_finish(self, job: Job) -> bool:
        if job.is_ready or job.seen_ready:
            return False
        return job.interrupted or self._is_interrupted(job)

    def _is_interrupted(self, job: Job) -> bool:
        bound = [
            member.since if member.bound_at is None else member.bound_at
            for each in self.partners(job)
            for member in each.placed()
            if member.phase is Phase.ASSIGNED
        ]
        if not bound:
            return False
        last = max(bound)
        early = [member for member in job.waiting() if member.since <= last]
        if not early:
            return False
        never_started = not job.started and not job.seen_ready and not self._was_ready(job, early)
        return job.interrupted or never_started or any(member.errors for member in early)

    def _was_ready(self, job: Job, waiting: list[PodRecord]) -> bool:
        """Whether as many members as the job needs were bound while these waited, even if some have
        ended since: then it started without these."""
        since = min(member.since for member in waiting)
        placed = [member for member in job.placed() if member.phase is Phase.ASSIGNED]
        bound = [m.since if m.bound_at is None else m.bound_at for m in placed]
        bound += job.ended_bound.values()
        return not job.min_tasks and sum(at >= since for at in bound) >= job.min_member

    def missing_partners(self, job: Job) -> list[GangName]:
        """The names of the job's partners that neither a PodGroup nor a pod has."""
        others = job.gang.partners.difference([job.name.gang])
        return sorted(name for name in others if self._partner(job, name) is None)

    def held_for(self, job: Job, slot: int) -> int:
        """How much of a slot is reserved for members of the job, by starvation holds, preemption holds
        and matching reservations. Virtual ones do not count: members of jobs cannot use them."""
        reservations, holds = self._reservations, self._reservations.starvation_holds
        if not reservations.members and not reservations.preemption_holds:
            return 0
        found: dict[str, ReservationInfo] = {}
        classes = {member.cls.id: member.cls for member in job.members.values()}
        for spec in {spec for cls in classes.values() for spec in reservations.matching(cls)}:
            for reservation in reservations.members.get(spec, {}).values():
                if not reservation.virtual and reservations.is_usable(reservation):
                    found[reservation.uid] = reservation
        for uid, member in job.members.items():
            hold = holds.of(member) if holds else None
            if hold is not None:
                found[hold.uid] = hold
            found.update(reservations.preemption_holds.get(uid, {}))
        return sum(holds.left(reservation, slot) for reservation in found.values())

    def owns_status(self, job: Job) -> bool:
        """Whether the PodGroup's status is about this job. Where there is one PodGroup, pods may name
        it in either API group, which makes two jobs; the status is then about the one with members,
        else the one with ended members, else the one of the PodGroup's own API group."""
        other = self._other(job.name)
        if other is None or job.group is None or other.group is not job.group:
            return True
        return _status_rank(job) > _status_rank(other)

    def touch(self, job: Job) -> None:
        """Notes that the job's status may have to change."""
        self.dirty[job.name] = None
        self.victims.job_changed(job.name)

    def take_dirty(self) -> dict[JobName, None]:
        """The jobs in `dirty`, which is empty then."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def touch_job_of(self, pod: PodRecord) -> None:
        """The same for the job of a pod, if it has one."""
        if pod.job is not None:
            self.dirty[pod.job] = None
            self.victims.job_changed(pod.job)

    def changed(self, job: Job) -> None:
        """Notifies that a job may be schedulable now, or that its condition may change."""
        for notify in self.on_changed:
            notify(job)
        self.wake_waiting_for(job)

    def wait_for(self, job: Job, partners: Iterable[GangName]) -> None:
        """Has the job woken up when one of these partners changes or becomes ready."""
        for name in partners:
            if name != job.name.gang:
                self._waiting_for.setdefault(name, {})[job.name] = None

    def wake_waiting_for(self, partner: Job) -> None:
        """Wakes up the jobs that wait for a partner."""
        if not self._waiting_for:
            return
        waiting = (self.known.get(name) for name in self._waiting_for.pop(partner.name.gang, ()))
        for job in [each for each in waiting if each is not None]:
            for notify in self.on_changed:
                notify(job)

    def not_written(self, uid: str) -> None:
        """Notes that writing the status of a PodGroup failed, so that it is written again."""
        for job in self.known.values():
            if job.group is not None and job.group.metadata.uid == uid:
                job.last_status = None
                self.touch(job)

    # PodGroups

    def put_group(self, group: PodGroup) -> None:
        """Applies an added or updated PodGroup."""
        name = _named(group)
        before = self._groups.get(name)
        self._groups[name] = group
        job = self._job(name)
        gang = job.gang
        self._assign(job)
        other = self._other(name)
        if other is not None:
            self._assign(other)
        self._assign_queue(name)
        if self.queues and (before is None or _queue_in(before) != _queue_in(group)):
            self.queues.changed()
        same = before is not None and before.metadata.uid == group.metadata.uid and gang == job.gang
        if before is None or not same or before.spec != group.spec:
            self._notify(job, other)

    def drop_group(self, group: PodGroup) -> None:
        """Applies the deletion of a PodGroup; the job stays if it has members."""
        name = _named(group)
        known = self._groups.get(name)
        if known is None or known.metadata.uid != group.metadata.uid:
            return
        del self._groups[name]
        self._assign_queue(name)
        if self.queues and _queue_in(group):
            self.queues.changed()
        jobs = [self.known.get(name), self._other(name)]
        for job in jobs:
            if job is not None:
                self._assign(job)
                self._drop_if_empty(job)
        self._notify(*jobs)

    def put_priority_class(self, given: PriorityClass, there: bool) -> None:
        """Applies a PriorityClass, or its deletion, to the jobs whose PodGroup names one."""
        self._classes.pop(given.metadata.name, None)
        if there:
            self._classes[given.metadata.name] = given.value
        for job in self.known.values():
            if job.group is not None and job.group.spec.priority_class_name:
                self._assign(job)

    def _job(self, name: JobName) -> Job:
        job = self.known.get(name)
        if job is None:
            job = self.known[name] = Job(name, self._cluster.now)
            self._assign(job)
        return job

    def _assign(self, job: Job) -> None:
        """Assigns the job its PodGroup, and what follows from it."""
        name = job.name
        group = self._group_of(name)
        before, job.group = (job.priority_class, job.non_preemptible, job.membership), group
        job.group_gang = NO_GANG_SETTINGS
        if group is not None:
            since = queued_since(group.metadata.creation_timestamp, self._cluster.now)
            job.queued_since = min(job.queued_since, since)
            job.note_creation(group.metadata.creation_timestamp or "")
        if group is not None and group.metadata.annotations:
            job.group_gang = gang_in(group.metadata.annotations, name.gang)
        job.priority_class = None
        if isinstance(group, CorePodGroup) and group.spec.priority is not None:
            job.priority_class = group.spec.priority
        elif group is not None and group.spec.priority_class_name:
            job.priority_class = self._classes.get(group.spec.priority_class_name)
        elif isinstance(group, CorePodGroup):
            job.priority_class = 0
        job.non_preemptible = group is not None and _is_non_preemptible(group.metadata)
        job.membership = self.membership(name) if self._reservations.names_groups else None
        if (job.priority_class, job.non_preemptible, job.membership) != before:
            self._prioritized |= (job.priority_class, job.non_preemptible) != before[:2]
            job.reprioritized()
            for member in job.members.values():
                if member.reservation is None:
                    self._reprioritized(member)
        self.touch(job)

    def _assign_queue(self, name: JobName) -> None:
        """Assigns the queue of a PodGroup to pods that name it in a profile without Coscheduling."""
        names = [name, name._replace(family=_OTHER[name.family])] if name.family in _OTHER else [name]
        for each in names if self._non_members else ():
            queue = queue_in(each, self._group_of(each))
            for pod, own in list(self._non_members.get(each, {}).values()):
                if pod.queue == (queue or own):
                    continue
                pod.queue = queue or own
                self._cluster.epoch.inputs += 1
                if self.queues:
                    self.queues.changed()
                listener = self._cluster.listener
                if listener is not None and pod.phase is Phase.PENDING and not pod.deletion_pending:
                    listener.pod_pending(pod)

    def _drop_if_empty(self, job: Job) -> None:
        if not (job.members or job.done or job.failed) and job.name not in self._groups:
            self.known.pop(job.name, None)
            self.interrupted.pop(job.name, None)
            for name, waiting in list(self._waiting_for.items()):
                waiting.pop(job.name, None)
                if not waiting:
                    del self._waiting_for[name]

    def _notify(self, *jobs: Job | None) -> None:
        """Notifies of jobs after a change of their PodGroup."""
        self._cluster.epoch.inputs += 1
        for job in jobs:
            if job is not None and job.members:
                self.changed(job)


def _is_non_preemptible(meta: ObjectMeta) -> bool:
    return (meta.annotations.get(PREEMPTABLE) or meta.labels.get(PREEMPTABLE)) == NO


def _queue_in(group: PodGroup) -> str:
    return group.spec.queue or group.metadata.annotations.get(QUEUE_NAME_ANNOTATION, "")


def _named(group: PodGroup) -> JobName:
    meta = group.metadata
    return JobName(group.api_version.partition("/")[0], meta.namespace, meta.name)


def _status_rank(job: Job) -> tuple[bool, bool, bool]:
    """The order of two jobs that share a PodGroup; see `JobIndex.owns_status`. Never equal for both."""
    own = job.group is not None and job.group.api_version.startswith(job.name.family)
    return bool(job.members), bool(job.done or job.failed), own
