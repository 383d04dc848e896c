"""One job: its members, and what it needs to start.

    waiting for members ──► waiting for room ──► ready ──► (members end, or are lost) ──► …

A job is *ready* when enough of its members have a place, or have done their work. Nothing of it is
bound before; once it is, further members are placed like any pod.
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
from holdfast.api.names import ONCE_SATISFIED, TASK_SPEC, WAITING_AND_RUNNING
from holdfast.api.selectors import as_integer
from holdfast.api.times import TimeError, parse_duration, parse_time
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.pods import Phase, PodRecord

SCHEDULED = "Scheduled"
NOT_ENOUGH_TASKS = "NotEnoughTasks"
NOT_ENOUGH_OF_TASK = "NotEnoughPodsOfTask"


class JobProblem(NamedTuple):
    """Why a job waits, as its condition says it."""

    reason: str
    message: str


NOTHING = JobProblem("", "")


class Job:
    __slots__ = (
        "_top",
        "admitted",
        "declared",
        "done",
        "ended_bound",
        "failed",
        "first_seen",
        "group",
        "group_bond",
        "has_enough",
        "interrupted",
        "last_status",
        "leader",
        "lost_at",
        "members",
        "name",
        "overdue",
        "priority_class",
        "problem",
        "queued_since",
        "seen_ready",
        "spares",
        "tried",
        "waited",
    )

    def __init__(self, name: JobName, now: float) -> None:
        self.name = name
        self.group: PodGroup | None = None
        self.group_bond = UNBOUND
        """What its PodGroup says of how it hangs together."""
        self.declared: Declared | None = None
        self.members: dict[str, PodRecord] = {}
        """Pods, and reserve pods of reservations, by uid."""
        self.done: dict[str, str] = {}
        """Members that did their work, by uid, with the task they were of."""
        self.failed: dict[str, None] = {}
        """Members that failed, by uid."""
        self.ended_bound: dict[str, float] = {}
        """When members that have ended were bound, by uid."""
        self.priority_class: int | None = None
        """The priority its PodGroup's class gives it."""
        self.spares = False
        """Whether its PodGroup says that its pods are nobody's victims."""
        self.leader: PodRecord | None = None
        """The member that stands in the scheduling queue for all that wait."""
        self.problem = NOTHING
        self.overdue = NOTHING
        """That it took longer than it may, once it has."""
        self.admitted = False
        """Whether its pods may be made, of which there are none yet."""
        self.has_enough = False
        """Whether it got what it needs in this round: those it has besides come after all others."""
        self.interrupted = False
        """Whether too few of the members it was started with are bound: the others come before all
        other pods."""
        self.seen_ready = False
        """Whether it was ready when last looked at."""
        self.lost_at: float | None = None
        """When it ceased to be ready, if it ever was."""
        self.tried = False
        """Whether places were looked for."""
        self.last_status: object = None
        """The status last written, until it is seen."""
        self.waited = 0.0
        """How long it waited before it was last ready."""
        self.first_seen = now
        self.queued_since = now
        """The time that decides its place in the queue: its oldest object's."""
        self._top: int | None = None

    @property
    def ref(self) -> ObjectRef:
        if self.group is None:
            return ObjectRef("PodGroup", self.name.namespace, self.name.name, "")
        uid, api_version = self.group.metadata.uid, self.group.api_version
        return ObjectRef("PodGroup", self.name.namespace, self.name.name, uid, api_version)

    @property
    def is_known(self) -> bool:
        """Whether anything says how many members it needs."""
        return self.group is not None or self.declared is not None

    @property
    def min_member(self) -> int:
        if self.group is not None:
            return max(0, self.group.spec.min_member)
        return self.declared.min_member if self.declared is not None else 1

    @property
    def bond(self) -> Bond:
        """How it hangs together: what its PodGroup says, else its members."""
        if self.group_bond != UNBOUND or self.declared is None:
            return self.group_bond
        return self.declared.bond

    @property
    def still_needs(self) -> int:
        """How many must have a place: by some gangs' wish only until they had it once."""
        if self.bond.policy == ONCE_SATISFIED and (self.done or self._has_bound()):
            return 0
        return self.min_member

    def _has_bound(self) -> bool:
        return any(member.phase is Phase.ASSIGNED for member in self.members.values())

    @property
    def min_tasks(self) -> dict[str, int]:
        """How many it needs of each task; more than it needs at all does not count."""
        tasks = self.group.spec.min_task_member if self.group is not None else {}
        return tasks if sum(tasks.values()) <= self.min_member else {}

    @property
    def timeout(self) -> float | None:
        """How long it may take to be placed, as far as it says so itself. 0 says nothing."""
        seconds = self.group.spec.schedule_timeout_seconds if self.group is not None else None
        if seconds is None or seconds <= 0:
            return (self.declared.timeout if self.declared is not None else None) or None
        return float(seconds)

    @property
    def trouble(self) -> JobProblem:
        """Why it waits; once it is overdue, that it is."""
        if not self.overdue.reason or not self.problem.message:
            return self.overdue if self.overdue.reason else self.problem
        why = self.problem.message.removeprefix(f"{self.name} ")
        return JobProblem(self.overdue.reason, f"{self.overdue.message}: {why}")

    @property
    def queue(self) -> str:
        if self.group is not None and self.group.spec.queue:
            return self.group.spec.queue
        return next((member.queue for member in self.members.values() if member.queue), "")

    @property
    def priority(self) -> int:
        """Its PodGroup's, else that of its most important member."""
        if self.priority_class is not None:
            return self.priority_class
        if self._top is None:
            self._top = max((member.cls.priority for member in self.members.values()), default=0)
        return self._top

    def reprioritized(self) -> None:
        """Its members may be more or less important than before."""
        self._top = None

    def add(self, member: PodRecord) -> None:
        if self._top is not None and (not self.members or member.cls.priority > self._top):
            self._top = member.cls.priority
        self.members[member.uid] = member
        self.queued_since = min(self.queued_since, member.queued_since)

    def remove(self, member: PodRecord) -> None:
        self.members.pop(member.uid, None)
        if self.leader is member:
            self.leader = None
        if member.cls.priority == self._top:
            self._top = None

    @property
    def pending_since(self) -> float:
        """Since when it waits: its creation, or when it ceased to be ready."""
        if self.lost_at is not None:
            return self.lost_at
        if self.group is not None:
            lost = condition(list(self.group.status.conditions), SCHEDULED)
            if lost is not None and lost.status == "False" and lost.last_transition_time:
                return _time(lost.last_transition_time, self.created)
        return self.created

    @property
    def waits_since(self) -> float:
        """Since when there are members that wait."""
        return max(self.pending_since, min((m.since for m in self.waiting()), default=0.0))

    @property
    def created(self) -> float:
        if self.group is not None:
            return _time(self.group.metadata.creation_timestamp or "", self.first_seen)
        return min((m.since for m in self.members.values()), default=self.first_seen)

    def waiting(self) -> list[PodRecord]:
        """The members that want a place, gated ones too."""
        return [
            member
            for member in self.members.values()
            if member.phase is Phase.PENDING and not member.deletion_pending
        ]

    def placed(self) -> list[PodRecord]:
        """The members that have a node and keep it: those being deleted, or about to be to make room
        for others, do no more for the job."""
        return [
            member
            for member in self.members.values()
            if member.row >= 0 and not (member.cls.terminating or member.being_preempted)
        ]

    @property
    def ready_members(self) -> int:
        """How many have a place, or have done their work."""
        return len(self.placed()) + self._done_members

    @property
    def _done_members(self) -> int:
        """How many count as there because they have done their work."""
        if not self.done or self.bond.policy == WAITING_AND_RUNNING:
            return 0
        return len(self.done)

    @property
    def is_ready(self) -> bool:
        return self.would_be_ready(())

    def would_be_ready(self, more: Iterable[PodRecord]) -> bool:
        """Whether it is ready, had these members a place too."""
        more = list(more)
        have = self.ready_members + len(more)
        return 0 < have >= self.still_needs and not self.lacks_of_tasks(more)

    def lacks(self, more: Iterable[PodRecord]) -> str:
        """What is missing to be ready, had these members a place too; empty if nothing is."""
        more = list(more)
        have, least = self.ready_members + len(more), self.still_needs
        if have < least:
            return f"{have} of the {least} pods it needs"
        return self.lacks_of_tasks(more)

    def lacks_of_tasks(self, more: Iterable[PodRecord]) -> str:
        """The same, of what it needs of its tasks."""
        if not self.min_tasks:
            return ""
        tasks = Counter(self.done.values())
        tasks.update(task_of(member) for member in self.placed())
        tasks.update(task_of(member) for member in more)
        for task, needed in sorted(self.min_tasks.items()):
            if tasks[task] < needed:
                return f"{tasks[task]} of the {needed} pods it needs of task {task}"
        return ""

    def can_do_without(self, gone: Collection[str]) -> bool:
        """Whether it would still be ready if these members, by uid, were gone."""
        rest = [member for member in self.placed() if member.uid not in gone]
        if len(rest) + self._done_members < self.still_needs:
            return False
        if not self.min_tasks:
            return True
        tasks = Counter(self.done.values())
        tasks.update(map(task_of, rest))
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


# Which job a pod, or a reservation, says it belongs to, and what it says of that job.
#
# A PodGroup is named by label or annotation; those of the two API groups by different ones. A gang by
# annotations, or by the labels of lightweight coscheduling, needs no PodGroup: its members say how many
# of them must be there.


VOLCANO = names.VOLCANO_API.partition("/")[0]
SIGS = names.SIGS_PODGROUP_API.partition("/")[0]

_VOLCANO_KEYS = (names.VOLCANO_GROUP_NAME_ANNOTATION, names.GROUP_NAME_ANNOTATION)
KEYS = frozenset((*_VOLCANO_KEYS, names.GANG_NAME, names.POD_GROUP_LABEL, names.LIGHT_GROUP_NAME))
"""Labels and annotations by which a job may be named."""


class JobName(NamedTuple):
    family: str
    """The API group whose PodGroup is meant; the other one's will do where there is none."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"PodGroup/{self.namespace}/{self.name}"


class Bond(NamedTuple):
    """How a gang hangs together."""

    partners: frozenset[JobName] = frozenset()
    """The gangs that must be ready together with it, itself among them."""
    policy: str = ""
    """Which members count: all that have a place or did their work, unless it says otherwise."""


UNBOUND = Bond()


class Declared(NamedTuple):
    """What the annotations of a gang's members say."""

    min_member: int
    total: int
    """How many there will be; 0 if that is not said."""
    timeout: float | None
    bond: Bond


def named_in(meta: ObjectMeta, namespace: str = "") -> JobName | None:
    """The job, if one is named."""
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


def declared_in(meta: ObjectMeta, namespace: str) -> Declared | None:
    """What a member says of its gang; None if it leaves that to a PodGroup."""
    annotations = meta.annotations
    given = meta.labels.get(names.LIGHT_GROUP_MIN_AVAILABLE)
    least = as_integer(given or annotations.get(names.GANG_MIN_AVAILABLE, ""))
    if least is None or least < 0:
        return None
    total = as_integer(annotations.get(names.GANG_TOTAL_NUMBER, "")) or 0
    return Declared(least, max(0, total), _timeout(annotations), bond_in(annotations, namespace))


def bond_in(annotations: Mapping[str, str], namespace: str) -> Bond:
    """What the annotations of members, or of a PodGroup, say of it."""
    keys = (names.GANG_MATCH_POLICY, names.LIGHT_GROUP_MATCH_POLICY)
    policy = next((annotations[key] for key in keys if annotations.get(key)), "")
    return Bond(_partners(annotations, namespace), policy)


def _timeout(annotations: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, parse_duration(annotations.get(names.GANG_WAITING_TIME, "")))
    except DurationError:
        return None


def _partners(annotations: Mapping[str, str], namespace: str) -> frozenset[JobName]:
    text = annotations.get(names.GANG_GROUPS)
    if text is None:
        return frozenset()
    try:
        listed = decode_json(text, list[str])
    except InvalidObject:
        return frozenset()
    split = [each.rpartition("/") for each in listed]
    return frozenset(JobName(SIGS, ns or namespace, name) for ns, _, name in split if name)
