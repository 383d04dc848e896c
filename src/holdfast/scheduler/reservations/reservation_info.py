"""One reservation as the scheduler keeps it.

                 assumed              status written, or read from the object
    PENDING ───────────────► ASSUMED ──────────────────────────────────────► ASSIGNED  (its reserve pod)
                                                        │
                    Waiting ◄── not all is free ────────┤
                       │ all is free                    │
                       └────────► Available ◄───────────┘
                                      │ allocated (allocateOnce), expired, node deleted
                                      ▼
                                  finished: holds no capacity, garbage collected later

The scheduler's decisions take precedence over the object, which is updated later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.api.affinity import Taint
from holdfast.api.annotations import ReservationAllocated
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
from holdfast.scheduler.cluster.reservation_table import Amounts

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.pods import PodRecord
    from holdfast.scheduler.cluster.reservation_table import ReservationRow
    from holdfast.scheduler.reservations.owners import OwnerSpec

LIVE = (ReservationPhase.AVAILABLE, ReservationPhase.WAITING)
FINISHED = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)


class ReservationInfo:
    """The state of one reservation. `ReservationCache` and the event handlers change it."""

    __slots__ = (
        "amounts",
        "amounts_by_name",
        "being_evicted",
        "counts_pods",
        "created",
        "deleting",
        "deletion_reason",
        "error",
        "expires",
        "expiring",
        "final",
        "finished",
        "hold",
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
        "pod",
        "preemptor",
        "ref",
        "released",
        "resize_problem",
        "resized",
        "restricted",
        "spec",
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
        self.expires = _expires(reservation.spec, created)
        """When it expires; None for never."""
        self.pod: PodRecord | None = None
        """Its reserve pod; None while the object is invalid, and once it is finished."""
        self.spec: OwnerSpec | None = None
        self.amounts: Amounts = {}
        """What it holds, or is to hold once scheduled, by slot."""
        self.amounts_by_name: dict[str, int] = {}
        self.listed: tuple[tuple[int, str], ...] = ()
        """The amounts that its status lists: slots and resource names, ordered by name."""
        self.counts_pods = False
        """Whether its template requests a number of pods."""
        self.hold: ReservationRow | None = None
        """What it holds on a row; None if it is on none."""
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
        return self.object.spec.pre_allocation

    def see(self, reservation: Reservation) -> bool:
        """Stores the object as it is now. Returns whether more than its status changed."""
        before, self.object = self.object, reservation
        if _same_spec(before, reservation) and _same(before.metadata, reservation.metadata):
            # The spec of before is kept, since other objects can reference it: this saves memory.
            self.object = msgspec.structs.replace(reservation, spec=before.spec)
            return False
        self.expires = _expires(reservation.spec, self.created)
        return True

    def is_before(self, other: ReservationInfo) -> bool:
        """Whether it comes first where both are Waiting."""
        return age(self) < age(other)

    def __repr__(self) -> str:
        return f"<{self.ref}>"


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
