"""The records of pods and reservations, which refer to each other.

A reservation is scheduled as its reserve pod, which has a record like any pod. A pod:

                 decided            confirmed, or seen on its node
    PENDING ───────────────► ASSUMED ──────────────────────────────► ASSIGNED
       ▲                        │                                        │
       └────────────────────────┘  refused                               │
                                                  ended or deleted ──► forgotten

An assumed pod claims its requests on its node like an assigned one. A pod that another scheduler bound
is assigned without having been pending here. A reservation:

                       no node yet: Pending ──────────────────────────────────────┐
                                       │ its reserve pod is assigned              │
                ┌── not all is free ───┴─── all is free ──┐                       │
                ▼                                         ▼                       │ expired
             Waiting ───────── all is free ─────────► Available                   │
                │ expired, node deleted                   │ expired, node deleted,│
                │                                         │ allocated (once)      │
                └──────────────────────► finished ◄───────┴───────────────────────┘

A finished reservation holds no capacity: an allocate-once reservation that was allocated has succeeded,
any other has expired. It is garbage collected later.

The scheduler's decisions take precedence over the objects, which are updated later.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, NamedTuple

import msgspec

from holdfast.api.affinity import Taint
from holdfast.api.annotations import ReservationAllocated
from holdfast.api.calendar import NO_TERMS, CalendarTerms
from holdfast.api.errors import DurationError, TimeError
from holdfast.api.meta import ObjectMeta
from holdfast.api.reservation import (
    DEFAULT_TTL,
    AllocatePolicy,
    Reservation,
    ReservationPhase,
    ReservationSpec,
    ReservationStatus,
)
from holdfast.api.times import parse_duration, parse_time
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.reservation_usage import ReservationUsage
from holdfast.scheduler.cluster.slots import Amounts, Pairs

LIVE = (ReservationPhase.AVAILABLE, ReservationPhase.WAITING)
FINISHED = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)

_WATCH_DELAY = 2.0
"""Seconds from an object's creationTimestamp, which has whole seconds, until the watch delivers it."""


class GangName(NamedTuple):
    """The name by which gangs list each other, whatever kind of PodGroup a gang has."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"PodGroup/{self.namespace}/{self.name}"


class JobName(NamedTuple):
    """The name of a PodGroup or gang."""

    family: str
    """The API group of its PodGroup. If there is none, one of Volcano may be used in place of one of
    the sigs group, and the other way round."""
    namespace: str
    name: str

    @property
    def gang(self) -> GangName:
        return GangName(self.namespace, self.name)

    def __str__(self) -> str:
        return f"PodGroup/{self.namespace}/{self.name}"


class Phase:
    """The phase of a pod in the scheduler. A plain class, because `enum.Enum` is too slow for code that
    runs for every pod."""

    __slots__ = ("value",)

    PENDING: ClassVar[Phase]
    ASSUMED: ClassVar[Phase]
    ASSIGNED: ClassVar[Phase]

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<Phase {self.value}>"


Phase.PENDING, Phase.ASSUMED, Phase.ASSIGNED = Phase("pending"), Phase("assumed"), Phase("assigned")


class PodRecord:
    """A pod, or the reserve pod of a reservation."""

    __slots__ = (
        "attempts",
        "being_preempted",
        "bind_decided",
        "bind_retried",
        "bound_at",
        "cls",
        "condition_message",
        "created",
        "deletion_pending",
        "errors",
        "estimate",
        "evictions_refused",
        "first_seen",
        "gates",
        "gone",
        "group",
        "job",
        "name",
        "namespace",
        "nominated",
        "nominated_in_object",
        "nominated_reservation",
        "phase",
        "pinned_node",
        "preempted",
        "previous_nomination",
        "queue",
        "queued_since",
        "ready",
        "ref",
        "rejected_by",
        "reservation",
        "reservation_uid",
        "row",
        "scheduler",
        "started",
        "uid",
        "unseen_nominations",
        "wakes_on",
    )

    def __init__(
        self,
        ref: ObjectRef,
        cls: PodClass,
        scheduler: str,
        first_seen: float,
    ) -> None:
        self.ref = ref
        self.uid = ref.uid
        self.namespace = ref.namespace
        self.name = ref.name
        self.cls = cls
        self.scheduler = scheduler
        self.first_seen = first_seen
        self.queued_since = first_seen
        """The timestamp by which the queue orders it; see the function `queued_since`."""
        self.phase = Phase.PENDING
        self.row = -1
        """Its row in the node table; -1 while it is pending."""
        self.pinned_node: str | None = None
        """Of a DaemonSet pod: the node its affinity names, which is not part of its class."""
        self.gates: tuple[str, ...] = ()
        """The names of its scheduling gates."""
        self.gone = False
        """Whether its object was deleted, or the pod has ended."""
        self.deletion_pending = False
        """Of a pod without a node: whether it is being deleted, or is a victim of preemption."""
        self.attempts = 0
        """How many scheduling attempts found no node."""
        self.errors = 0
        """How many binds in a row failed, for reasons other than the node."""
        self.condition_message = ""
        """The message of the PodScheduled condition written last."""
        self.wakes_on = 0
        """The kinds of change that may make it schedulable, as of the last attempt with a diagnosis."""
        self.rejected_by: Collection[str] = ()
        """The plugins that rejected nodes in the last attempt."""
        self.bind_decided = False
        """Of an assumed pod: whether its bind is decided; until then it waits in Permit."""
        self.bind_retried = False
        """Of an assumed pod: whether its bind has failed and is decided again later."""
        self.previous_nomination = ""
        """Of an assumed pod: its nominated node before it was assumed."""
        self.nominated = ""
        """The name of its nominated node."""
        self.nominated_in_object = ""
        """The status.nominatedNodeName of its object when that was last seen."""
        self.unseen_nominations: tuple[str, ...] = ()
        """The nominated nodes that were decided and not seen in its object since, oldest first."""
        self.nominated_reservation = ""
        """The uid of the reservation on its nominated node that it will be allocated from, if known."""
        self.bound_at: float | None = None
        """When it was bound, by its PodScheduled condition; of a member of a job, and of a pod that has
        not started."""
        self.started: float | None = None
        """Its status.startTime."""
        self.reservation_uid = ""
        """The uid of the reservation it is allocated from; no effect unless both are on one node."""
        self.reservation: ReservationInfo | None = None
        """Of a reserve pod: its reservation."""
        self.being_preempted = False
        """Whether it is a victim: from the decision on, until it is gone or the decision is refused."""
        self.preempted = False
        """Whether it has the condition DisruptionTarget of preemption, and is not being deleted yet."""
        self.evictions_refused = 0
        """How many evictions of it as a victim were refused."""
        self.ready = False
        """Whether its condition Ready is True."""
        self.created: str | None = None
        """Its creationTimestamp."""
        self.job: JobName | None = None
        """The job it is a member of (`Jobs.of`); None for a pod without a group."""
        self.group: JobName | None = None
        """In a profile without Coscheduling, the job it names and is no member of."""
        self.queue = ""
        """The queue its annotation names, or its `group`; the queue of its job takes precedence."""
        self.estimate: float | None = None
        """Its own run-time estimate in seconds; see `RunEstimates`."""

    @property
    def since(self) -> float:
        """When it was created, or first seen if its object has no valid timestamp."""
        try:
            return parse_time(self.created or "")
        except TimeError:
            return self.first_seen

    @property
    def job_name(self) -> str:
        """The name of its job; empty for a pod without a group."""
        return str(self.job) if self.job is not None else ""

    @property
    def is_being_bound(self) -> bool:
        """Whether its bind is decided, or retried, and not confirmed."""
        return self.phase is Phase.ASSUMED and (self.bind_decided or self.bind_retried)

    def __repr__(self) -> str:
        return f"<{self.ref} {self.phase.value}>"


def queued_since(created: str | None, first_seen: float) -> float:
    """The timestamp by which the queue orders an object: when it was first seen, or, if it was created
    clearly before that, its creation. So the order is the same after a restart of the scheduler."""
    try:
        since = parse_time(created) if created else first_seen
    except TimeError:
        return first_seen
    return since if since + _WATCH_DELAY < first_seen else first_seen


class ReservationInfo:
    """The state of one reservation. `ReservationCache` and the event handlers change it."""

    __slots__ = (
        "amounts",
        "amounts_by_name",
        "being_evicted",
        "calendar",
        "claim_entries",
        "claims_changed",
        "counts_pods",
        "created",
        "deleting",
        "deletion_reason",
        "devices_problem",
        "entry",
        "error",
        "expires",
        "expiring",
        "final",
        "finished",
        "holds_more",
        "last_status",
        "listed",
        "mark",
        "marked",
        "message",
        "name",
        "node_gone",
        "object",
        "once",
        "order",
        "owner_spec_id",
        "pod",
        "preemptor",
        "ref",
        "released",
        "replaces_virtual",
        "resize_problem",
        "resized",
        "restricted",
        "started",
        "taken_early",
        "uid",
        "victims",
        "virtual",
        "waiting",
        "wanted",
        "wants_node",
        "withheld",
    )

    def __init__(self, reservation: Reservation, created: float) -> None:
        meta = reservation.metadata
        self.ref = ObjectRef("Reservation", "", meta.name, meta.uid)
        self.uid = meta.uid
        self.name = meta.name
        self.mark = msgspec.json.encode(ReservationAllocated(name=meta.name, uid=meta.uid)).decode()
        """The reservation-allocated annotation of pods that are allocated from it."""
        self.object = reservation
        """As last seen."""
        self.created = created
        self.calendar = NO_TERMS
        """Its calendar annotations."""
        self.expires = _expires(reservation.spec, created)
        """When it expires; None for never."""
        self.pod: PodRecord | None = None
        """Its reserve pod; None while the object is invalid, and once it is finished."""
        self.owner_spec_id = -1
        """The id of its owner spec (see `OwnerSpecs`); -1 while it has none."""
        self.amounts: Amounts = {}
        """What it holds, or is to hold once scheduled, by slot."""
        self.amounts_by_name: dict[str, int] = {}
        self.listed: tuple[tuple[int, str], ...] = ()
        """The amounts that its status lists: slots and resource names, ordered by name."""
        self.counts_pods = False
        """Whether its template requests a number of pods."""
        self.holds_more = False
        """Whether it holds host ports, volumes or devices by claim, which are no amounts."""
        self.entry: ReservationEntry | None = None
        """Its entry in the reservation table, with its amounts; None if it is on no node."""
        self.wanted: Amounts = {}
        """What the object requests now, by slot; `amounts` follows when it is resized."""
        self.once = reservation.spec.once
        self.order = 0
        """The order label: the lowest is nominated first; 0 without a label."""
        self.restricted: frozenset[int] | None = None
        """The slots of which owners can be allocated from the reservation only; None if the policy is
        not Restricted."""
        self.withheld: Amounts = {}
        """The part of its amounts that is not allocatable to owners, by slot."""
        self.virtual = False
        """Whether it has no object; see `holdfast.scheduler.reservations.virtual_reservations`."""
        self.replaces_virtual = False
        """Whether it takes the place of a virtual reservation, whose capacity it gets."""
        self.waiting = False
        """Whether it is Waiting: it is on a node where not all it reserves is free yet."""
        self.finished = ""
        """How it ended, as the reason of its Ready condition: Succeeded or Expired."""
        self.final: ReservationStatus | None = None
        """Its status when it ended."""
        self.message = ""
        """The message of its condition: why it is not scheduled, what it waits for, or how it ended."""
        self.error = ""
        """Why the object is invalid."""
        self.resize_problem = ""
        """Why it could not be resized to what its template requests now."""
        self.resized = False
        """Whether it was resized."""
        self.node_gone = False
        """Whether its node was deleted; a node created again under the same name is another one."""
        self.wants_node = ""
        """The node its template names."""
        self.preemptor = ""
        """Of a preemption hold: the uid of the preemptor."""
        self.released = False
        """Of a preemption hold: whether the preemptor no longer needs it."""
        self.started = False
        """Of a reservation with a start: whether it was reached and the reservation is scheduled."""
        self.taken_early = False
        """Of a preemption hold: whether the preemptor was assumed before the hold was scheduled."""
        self.victims: frozenset[str] = frozenset()
        """The uids of its victims: reservations that must be gone before it is Available."""
        self.being_evicted = False
        """Whether it is preempted or softly evicted; then it is closed to owners."""
        self.marked = False
        """Whether the annotation for that was written."""
        self.deleting = False
        """Whether its deletion was decided; then it is closed to owners."""
        self.deletion_reason = ""
        """Why it is deleted, while bindings of its owners are in progress that must be done before."""
        self.expiring = False
        """Whether it expires once bindings of its owners that are in progress are done; it is closed to
        owners."""
        self.claim_entries: tuple[str, ...] = ()
        """The names of its template's `resourceClaims`; on a node they stay as they are."""
        self.claims_changed = False
        """Whether these were changed since it has its node."""
        self.devices_problem = ""
        """Why devices of its template's `resourceClaims` are not held."""
        self.last_status: ReservationStatus | None = None
        """The status last written, until the watch delivers it."""

    @property
    def ending(self) -> bool:
        """Whether it is about to end, and closed to owners."""
        return self.deleting or self.expiring or self.being_evicted

    @property
    def placed(self) -> bool:
        """Whether it has a node."""
        return self.pod is not None and self.pod.row >= 0

    @property
    def reusable(self) -> bool:
        return not self.once

    @property
    def policy(self) -> str:
        return self.object.spec.allocate_policy

    @property
    def plain(self) -> bool:
        """Whether it has the default allocate policy."""
        return self.policy == AllocatePolicy.DEFAULT

    @property
    def closed(self) -> bool:
        """Whether it is unschedulable or being deleted: closed to owners that do not tolerate this."""
        return self.object.spec.unschedulable or self.terminating

    @property
    def terminating(self) -> bool:
        return self.object.metadata.deletion_timestamp is not None

    @property
    def taints(self) -> list[Taint]:
        return self.object.spec.taints

    @property
    def pre_allocation(self) -> bool:
        """Whether it may wait on its node for pods that end, as one with a start may have to."""
        return self.object.spec.pre_allocation or self.calendar.start is not None

    @property
    def is_planned(self) -> bool:
        """Whether it has a start that is not reached: it is neither scheduled nor queued until then."""
        return self.calendar.start is not None and not self.started

    def see(self, reservation: Reservation) -> bool:
        """Stores the object as it is now. Returns whether more than its status changed."""
        before, self.object = self.object, reservation
        if _same_spec(before, reservation) and _same(before.metadata, reservation.metadata):
            # The spec of before is kept, since other objects can reference it: this saves memory.
            self.object = msgspec.structs.replace(reservation, spec=before.spec)
            return False
        self.expires = _expires(reservation.spec, self.since)
        return True

    def set_calendar(self, terms: CalendarTerms) -> None:
        """Sets its calendar annotations; `ttl` counts from the start."""
        self.calendar = terms
        self.expires = _expires(self.object.spec, self.since)

    @property
    def since(self) -> float:
        """When it starts; without a start, when it was created."""
        return self.created if self.calendar.start is None else self.calendar.start

    def is_before(self, other: ReservationInfo) -> bool:
        """Whether it comes first where both are Waiting."""
        return age(self) < age(other)

    def __repr__(self) -> str:
        return f"<{self.ref}>"


class ReservationEntry:
    """The entry of a reservation that is on a node in the reservation table."""

    __slots__ = ("index", "pod", "reservation", "row", "usage")

    def __init__(self, pod: PodRecord, index: int, row: int, usage: ReservationUsage) -> None:
        assert pod.reservation is not None
        self.pod = pod
        """The reserve pod."""
        self.reservation: ReservationInfo = pod.reservation
        self.index = index
        """Its column in the reservation table."""
        self.row = row
        """The row of its node."""
        self.usage = usage
        """Its reserved, allocated and remaining amounts."""

    @property
    def amounts(self) -> Amounts:
        """The reserved amounts, by slot; not to be written to."""
        return self.usage.amounts

    @property
    def named(self) -> Pairs:
        """The reserved amounts of resources: without the slot of pods and without derived sums."""
        return self.usage.named

    @property
    def taken(self) -> Amounts:
        """The requests of the pods allocated from it, for the slots it reserves; not capped."""
        return self.usage.taken

    @property
    def remaining(self) -> Amounts:
        """The reserved amounts that are not allocated, which the reservation itself claims."""
        return self.usage.remaining

    def left(self, slot: int) -> int:
        return self.usage.remaining.get(slot, 0)


def age(reservation: ReservationInfo) -> tuple[float, str]:
    """The order of Waiting reservations on one node: oldest first."""
    return reservation.created, reservation.name


def _same_spec(one: Reservation, other: Reservation) -> bool:
    generation = one.metadata.generation
    if generation and generation == other.metadata.generation:
        return True
    return one.spec == other.spec


def _same(one: ObjectMeta, other: ObjectMeta) -> bool:
    return (
        one.labels == other.labels
        and one.annotations == other.annotations
        and one.deletion_timestamp == other.deletion_timestamp
    )


def _expires(spec: ReservationSpec, created: float) -> float | None:
    try:
        if spec.expires is not None:
            return parse_time(spec.expires)
        ttl = parse_duration(spec.ttl if spec.ttl is not None else DEFAULT_TTL)
    except (TimeError, DurationError):
        return None
    return created + ttl if ttl > 0 else None
