"""One job (a PodGroup or gang): its members, and what it needs to be ready.

    waiting for members ──► waiting for capacity ──► ready ──► (members end, or are lost) ──► …

A job is *ready* when enough of its members are placed on nodes or have succeeded. None of its pods is
bound before; after that, further members are scheduled like any pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.decode import decode_json
from holdfast.api.errors import DurationError, InvalidObject
from holdfast.api.jobs import PodGroup
from holdfast.api.meta import ObjectMeta, condition
from holdfast.api.names import ONCE_SATISFIED, QUEUE_NAME_ANNOTATION, TASK_SPEC, WAITING_AND_RUNNING
from holdfast.api.pod import Pod
from holdfast.api.pod_groups import CorePodGroup
from holdfast.api.selectors import as_integer
from holdfast.api.times import TimeError, parse_duration, parse_time
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.pod_classes import GroupMembership
from holdfast.scheduler.cluster.records import GangName, JobName, Phase, PodRecord

SCHEDULED = "Scheduled"
NOT_ENOUGH_TASKS = "NotEnoughTasks"
NO_GROUP = "PodGroupNotFound"
NOT_ENOUGH_OF_TASK = "NotEnoughPodsOfTask"


class JobProblem(NamedTuple):
    """Why a job is not ready: reason and message of its condition."""

    reason: str
    message: str


NOTHING = JobProblem("", "")


class Job:
    """The state of one job."""

    __slots__ = (
        "_declarations",
        "_has_several_queues",
        "_top",
        "admitted",
        "declared",
        "done",
        "ended_bound",
        "failed",
        "first_created",
        "first_seen",
        "group",
        "group_gang",
        "has_enough",
        "interrupted",
        "lacked_nodes",
        "last_status",
        "leader",
        "lost_at",
        "members",
        "membership",
        "name",
        "non_preemptible",
        "overdue",
        "priority_class",
        "problem",
        "queued_since",
        "seen_ready",
        "started",
        "tried",
        "waited",
    )

    def __init__(self, name: JobName, now: float) -> None:
        self.name = name
        self.group: PodGroup | None = None
        self.group_gang = NO_GANG_SETTINGS
        """The gang settings in the annotations of its PodGroup."""
        self.declared: Declared | None = None
        """The settings in the metadata of its youngest member that has any."""
        self._declarations: dict[str, Declared] = {}
        """The settings in the metadata of members, by uid."""
        self.members: dict[str, PodRecord] = {}
        """Pods, and reserve pods of reservations, by uid."""
        self.done: dict[str, str] = {}
        """The tasks of members that succeeded, by uid."""
        self.failed: dict[str, None] = {}
        """Members that failed, by uid."""
        self.ended_bound: dict[str, float] = {}
        """When members that have ended were bound, by uid."""
        self.priority_class: int | None = None
        """The priority of its PodGroup's priority class."""
        self.non_preemptible = False
        """Whether its PodGroup sets that its pods cannot be preempted."""
        self.membership: GroupMembership | None = None
        """The trait of its members' classes that names its PodGroup, if they have it."""
        self.leader: PodRecord | None = None
        """The member that represents all waiting members in the scheduling queue."""
        self.problem = NOTHING
        self.lacked_nodes = False
        """Whether the conditions of its pending members come from an attempt to find nodes for them."""
        self.overdue = NOTHING
        """The problem that it exceeded its timeout, once it has."""
        self.admitted = False
        """Whether it may become Inqueue; it has no pods yet."""
        self.has_enough = False
        """Whether it became ready in this round: its further members come after all other pods."""
        self.interrupted = False
        """Whether its start was interrupted when only some of the members it started with were bound;
        the others come before all other pods."""
        self.seen_ready = False
        """Whether it was ready when it was last checked."""
        self.started = False
        """Whether as many members as it needs have been bound since the first of them was placed."""
        self.lost_at: float | None = None
        """When it ceased to be ready, if it ever was."""
        self.tried = False
        """Whether a scheduling attempt was made for it."""
        self.last_status: object = None
        """The status written last, until it is seen in an event."""
        self.waited = 0.0
        """How long it was pending before it was last ready."""
        self.first_seen = now
        self.queued_since = now
        self.first_created = ""
        """The creationTimestamp of the first member or of its PodGroup, whichever is older."""
        """The timestamp by which the queue orders it: that of its oldest object."""
        self._top: int | None = None
        self._has_several_queues = False
        """Whether members may name different queues."""

    @property
    def ref(self) -> ObjectRef:
        if self.group is None:
            return ObjectRef("PodGroup", self.name.namespace, self.name.name, "")
        uid, api_version = self.group.metadata.uid, self.group.api_version
        return ObjectRef("PodGroup", self.name.namespace, self.name.name, uid, api_version)

    @property
    def is_known(self) -> bool:
        """Whether a PodGroup or the annotations of a member set how many members it needs."""
        return self.group is not None or self.is_declared

    @property
    def is_declared(self) -> bool:
        """Whether the annotations of a member set how many members it needs."""
        return self.declared is not None and self.declared.min_member is not None

    @property
    def core(self) -> CorePodGroup | None:
        """Its PodGroup, if that is one of `scheduling.k8s.io`."""
        return self.group if isinstance(self.group, CorePodGroup) else None

    @property
    def topology_key(self) -> str:
        """The node label that must be equal for all members; empty if there is none."""
        return self.group.spec.topology_key if isinstance(self.group, CorePodGroup) else ""

    @property
    def min_member(self) -> int:
        if self.group is not None:
            return max(0, self.group.spec.min_member)
        least = self.declared.min_member if self.declared is not None else None
        return 1 if least is None else least

    @property
    def gang(self) -> GangSettings:
        """Each of the gang settings of its PodGroup, otherwise that of its members."""
        if self.name.family == CORE:
            return _CORE_GANG
        own, given = self.group_gang, self.declared
        if given is None:
            return own
        return GangSettings(own.partners or given.gang.partners, own.policy or given.gang.policy)

    @property
    def still_needs(self) -> int:
        """How many members must be placed or have succeeded. With the match policy once-satisfied it is
        0 once the gang was satisfied."""
        if self.gang.policy == ONCE_SATISFIED and (self.done or self._has_bound()):
            return 0
        return self.min_member

    def _has_bound(self) -> bool:
        return any(member.phase is Phase.ASSIGNED for member in self.members.values())

    @property
    def min_tasks(self) -> dict[str, int]:
        """How many members it needs of each task; ignored if that is more than minMember in total."""
        tasks = self.group.spec.min_task_member if self.group is not None else {}
        return tasks if sum(tasks.values()) <= self.min_member else {}

    @property
    def timeout(self) -> float | None:
        """Its own schedule timeout in seconds; 0 means not set."""
        seconds = self.group.spec.schedule_timeout_seconds if self.group is not None else None
        if seconds is None or seconds <= 0:
            return (self.declared.timeout if self.declared is not None else None) or None
        return float(seconds)

    @property
    def reported_problem(self) -> JobProblem:
        """Why it is not ready, with the timeout first once it is exceeded."""
        if not self.overdue.reason or not self.problem.message:
            return self.overdue if self.overdue.reason else self.problem
        why = self.problem.message.removeprefix(f"{self.name} ")
        return JobProblem(self.overdue.reason, f"{self.overdue.message}: {why}")

    @property
    def queue(self) -> str:
        """That of its PodGroup, otherwise the one that its oldest member names of those that name one,
        so that a restart makes no difference."""
        named = queue_in(self.name, self.group)
        if named:
            return named
        naming = (member for member in self.members.values() if member.queue)
        if self._has_several_queues:
            first = min(naming, key=lambda each: (each.created or "", each.name), default=None)
        else:
            first = next(naming, None)
        return first.queue if first is not None else ""

    def note_queue(self, member: PodRecord) -> None:
        """Notes which queue a member names."""
        if member.queue and not self._has_several_queues:
            others = (each.queue for each in self.members.values() if each.queue)
            self._has_several_queues = next(others, member.queue) != member.queue

    @property
    def priority(self) -> int:
        """The priority of its PodGroup, otherwise the highest priority of its members."""
        if self.priority_class is not None:
            return self.priority_class
        if self._top is None:
            self._top = max((member.cls.priority for member in self.members.values()), default=0)
        return self._top

    def reprioritized(self) -> None:
        """Notes that priorities of members may have changed."""
        self._top = None

    def add(self, member: PodRecord) -> None:
        if self._top is not None and (not self.members or member.cls.priority > self._top):
            self._top = member.cls.priority
        self.note_queue(member)
        self.members[member.uid] = member
        self.queued_since = min(self.queued_since, member.queued_since)
        self.note_creation(member.created or "")

    def note_creation(self, created: str) -> None:
        """Takes note of when a member or the PodGroup was created."""
        self.first_created = min(self.first_created or created, created)

    def declare(self, member: PodRecord, given: Declared | None) -> bool:
        """Applies the settings in a member's metadata, or that it has none; returns whether those of
        the job changed. If members differ, the youngest prevails rather than the one that was seen
        last, so that a restart makes no difference; those that set how many members the job needs come
        before those that do not."""
        if self._declarations.get(member.uid) == given:
            return False
        before = self.declared
        if given is None:
            del self._declarations[member.uid]
            self.declared = self._youngest_declaration()
        else:
            self._declarations[member.uid] = given
            if given != before:
                self.declared = self._youngest_declaration()
        return self.declared != before

    def _youngest_declaration(self) -> Declared | None:
        if not self._declarations:
            return None
        ages = {
            uid: (given.min_member is not None, self.members[uid].created or "", self.members[uid].name)
            for uid, given in self._declarations.items()
        }
        return self._declarations[max(ages, key=ages.__getitem__)]

    def remove(self, member: PodRecord) -> None:
        self.members.pop(member.uid, None)
        if self._declarations.pop(member.uid, None) is not None and self._declarations:
            self.declared = self._youngest_declaration()
        if self.leader is member:
            self.leader = None
        if member.cls.priority == self._top:
            self._top = None

    @property
    def pending_since(self) -> float:
        """Since when it is not ready: its creation, or when it ceased to be ready."""
        if self.lost_at is not None:
            return self.lost_at
        if self.group is not None:
            lost = condition(list(self.group.status.conditions), SCHEDULED)
            if lost is not None and lost.status == "False" and lost.last_transition_time:
                return _time(lost.last_transition_time, self.created)
        return self.created

    @property
    def waits_since(self) -> float:
        """Since when it has waiting members while it is not ready."""
        return max(self.pending_since, min((m.since for m in self.waiting()), default=0.0))

    @property
    def created(self) -> float:
        if self.group is not None:
            return _time(self.group.metadata.creation_timestamp or "", self.first_seen)
        return min((m.since for m in self.members.values()), default=self.first_seen)

    def waiting(self) -> list[PodRecord]:
        """The pending members, including gated ones. Reservations that start later are not pending
        yet."""
        return [
            member
            for member in self.members.values()
            if member.phase is Phase.PENDING
            and not member.deletion_pending
            and not (member.reservation is not None and member.reservation.is_planned)
        ]

    def placed(self) -> list[PodRecord]:
        """The members that are on a node and stay there: members that are being deleted or preempted
        no longer count for the job."""
        return [
            member
            for member in self.members.values()
            if member.row >= 0 and not (member.cls.terminating or member.being_preempted)
        ]

    @property
    def ready_members(self) -> int:
        """How many members are placed or have succeeded."""
        return len(self.placed()) + self._done_members

    @property
    def _done_members(self) -> int:
        """How many succeeded members count as ready."""
        if not self.done or self.gang.policy == WAITING_AND_RUNNING:
            return 0
        return len(self.done)

    @property
    def is_ready(self) -> bool:
        return self.would_be_ready(())

    def would_be_ready(self, more: Iterable[PodRecord]) -> bool:
        """Whether it would be ready if these members were placed too."""
        more = list(more)
        have = self.ready_members + len(more)
        return 0 < have >= self.still_needs and not self.lacks_of_tasks(more)

    def lacks(self, more: Iterable[PodRecord]) -> str:
        """What it would lack to be ready if these members were placed too; empty if nothing."""
        more = list(more)
        have, least = self.ready_members + len(more), self.still_needs
        if have < least:
            return f"{have} of the {least} pods it needs"
        return self.lacks_of_tasks(more)

    def lacks_of_tasks(self, more: Iterable[PodRecord]) -> str:
        """The same for the members it needs of each task."""
        if not self.min_tasks:
            return ""
        tasks = Counter(self.done.values())
        tasks.update(task_of(member) for member in self.placed())
        tasks.update(task_of(member) for member in more)
        for task, needed in sorted(self.min_tasks.items()):
            if tasks[task] < needed:
                return f"{tasks[task]} of the {needed} pods it needs of task {task}"
        return ""

    def is_preempted_with(self, gone: Collection[str]) -> bool:
        """Whether all its members are preempted if these are: if it is ready, or its start was
        interrupted, and it is not ready without them. A PodGroup of `scheduling.k8s.io` states it."""
        if self.core is not None:
            return self.core.spec.is_disrupted_whole
        return (self.is_ready or self.interrupted) and not self.stays_ready_without(gone)

    def stays_ready_without(self, gone: Collection[str]) -> bool:
        """As `can_do_without`. Once some of the others are bound or being bound, those that wait in
        Permit do not count either: they may be refused, and the job would be half bound."""
        left = [each for each in self.placed() if each.uid not in gone]
        has_started = any(each.phase is Phase.ASSIGNED or each.is_being_bound for each in left)
        return self._is_enough(
            [each for each in left if each.phase is Phase.ASSIGNED] if has_started else left
        )

    def can_do_without(self, gone: Collection[str]) -> bool:
        """Whether it would still be ready without these members (uids). Members whose bind is not
        confirmed do not count: it may still fail."""
        return self._is_enough(
            [each for each in self.placed() if each.uid not in gone and not each.is_being_bound]
        )

    @property
    def is_bound(self) -> bool:
        """Whether as many members as it needs are bound."""
        return self._is_enough([each for each in self.placed() if each.phase is Phase.ASSIGNED])

    def _is_enough(self, placed: list[PodRecord]) -> bool:
        """Whether it is ready with these members and those that have succeeded."""
        if len(placed) + self._done_members < self.still_needs:
            return False
        if not self.min_tasks:
            return True
        tasks = Counter(self.done.values())
        tasks.update(map(task_of, placed))
        return all(tasks[task] >= needed for task, needed in self.min_tasks.items())

    def __repr__(self) -> str:
        return f"<{self.name}>"


def task_in(meta: ObjectMeta) -> str:
    return meta.annotations.get(TASK_SPEC) or meta.labels.get(TASK_SPEC, "")


def task_of(member: PodRecord) -> str:
    return member.cls.annotations.get(TASK_SPEC) or member.cls.labels.get(TASK_SPEC, "")


def _time(text: str, otherwise: float) -> float:
    try:
        return parse_time(text)
    except TimeError:
        return otherwise


def queue_in(job: JobName, group: PodGroup | None) -> str:
    """The queue that the PodGroup of a job names; empty if it names none."""
    if group is None or group.spec.queue:
        return group.spec.queue if group is not None else ""
    return group.metadata.annotations.get(QUEUE_NAME_ANNOTATION, "") if job.family == CORE else ""


# The job that a pod or reservation names in its metadata, and its settings there.
#
# A PodGroup is named by a label or annotation, which differs between two API groups; one of
# `scheduling.k8s.io` by a field of the pod's spec. A gang that is named by Koordinator's annotations,
# or by the labels of lightweight coscheduling, needs no PodGroup: its members carry its settings.


VOLCANO = names.VOLCANO_API.partition("/")[0]
SIGS = names.SIGS_PODGROUP_API.partition("/")[0]
CORE = names.WORKLOAD_API.partition("/")[0]

_VOLCANO_KEYS = (names.VOLCANO_GROUP_NAME_ANNOTATION, names.GROUP_NAME_ANNOTATION)
KEYS = frozenset((*_VOLCANO_KEYS, names.GANG_NAME, names.POD_GROUP_LABEL, names.LIGHT_GROUP_NAME))
"""Labels and annotations that name a job."""


_SETTINGS = frozenset((*names.GANG_KEYS, names.LIGHT_GROUP_MATCH_POLICY))
"""Annotations of members that set something of their gang."""


class GangSettings(NamedTuple):
    """The settings of a gang in Koordinator's annotations: gang groups and match policy."""

    partners: frozenset[GangName] = frozenset()
    """The gangs that must be ready together with it, including itself; none if it lists no others."""
    policy: str = ""
    """The match policy: which members count. By default those that are placed or have succeeded."""


NO_GANG_SETTINGS = GangSettings()
_CORE_GANG = GangSettings(policy=WAITING_AND_RUNNING)
"""Of PodGroups of `scheduling.k8s.io`: as in kube-scheduler, members that have ended do not count."""


class Declared(NamedTuple):
    """The settings of a gang in the metadata of its members."""

    min_member: int | None
    """How many members it needs; None if that is left to a PodGroup."""
    total: int
    """The total number of members; 0 if not set."""
    timeout: float | None
    gang: GangSettings


def named_by(pod: Pod) -> JobName | None:
    """The job that the pod names, if any."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return JobName(CORE, pod.metadata.namespace, group.pod_group_name)
    return named_in(pod.metadata)


def named_in(meta: ObjectMeta, namespace: str = "") -> JobName | None:
    """The job that the metadata names, if any."""
    labels, annotations = meta.labels, meta.annotations
    if KEYS.isdisjoint(labels) and KEYS.isdisjoint(annotations):
        return None
    if annotations:
        name = annotations.get(names.GANG_NAME)
        if name:
            return JobName(SIGS, namespace or meta.namespace, name)
        for key in _VOLCANO_KEYS:
            name = annotations.get(key)
            if name:
                return JobName(VOLCANO, namespace or meta.namespace, name)
        name = annotations.get(names.POD_GROUP_LABEL)
        if name:
            return JobName(SIGS, namespace or meta.namespace, name)
    if labels:
        keys = (names.POD_GROUP_LABEL, names.LIGHT_GROUP_NAME, names.GANG_NAME)
        name = next((labels[key] for key in keys if labels.get(key)), "")
        if name:
            return JobName(SIGS, namespace or meta.namespace, name)
        name = labels.get(names.GROUP_NAME_ANNOTATION)
        if name:
            return JobName(VOLCANO, namespace or meta.namespace, name)
    return None


def declared_in(meta: ObjectMeta, job: GangName) -> Declared | None:
    """The settings of its gang in a member's metadata; None if they are left to a PodGroup."""
    annotations = meta.annotations
    if _SETTINGS.isdisjoint(annotations) and names.LIGHT_GROUP_MIN_AVAILABLE not in meta.labels:
        return None
    given = meta.labels.get(names.LIGHT_GROUP_MIN_AVAILABLE)
    least = as_integer(given or annotations.get(names.GANG_MIN_AVAILABLE, ""))
    timeout, gang = _timeout(annotations), gang_in(annotations, job)
    if least is None or least < 0:
        is_empty = timeout is None and gang == NO_GANG_SETTINGS
        return None if is_empty else Declared(None, 0, timeout, gang)
    total = as_integer(annotations.get(names.GANG_TOTAL_NUMBER, "")) or 0
    return Declared(least, max(0, total), timeout, gang)


def gang_in(annotations: Mapping[str, str], job: GangName) -> GangSettings:
    """The gang settings in the annotations of a member or the PodGroup of a job."""
    keys = (names.GANG_MATCH_POLICY, names.LIGHT_GROUP_MATCH_POLICY)
    policy = next((annotations[key] for key in keys if annotations.get(key)), "")
    return GangSettings(_partners(annotations, job), policy)


def _timeout(annotations: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, parse_duration(annotations.get(names.GANG_WAITING_TIME, "")))
    except DurationError:
        return None


def _partners(annotations: Mapping[str, str], job: GangName) -> frozenset[GangName]:
    text = annotations.get(names.GANG_GROUPS)
    if text is None:
        return frozenset()
    try:
        listed = decode_json(text, list[str])
    except InvalidObject:
        return frozenset()
    split = [each.rpartition("/") for each in listed]
    found = {GangName(ns or job.namespace, name) for ns, _, name in split if name} | {job}
    return frozenset(found) if len(found) > 1 else frozenset()
