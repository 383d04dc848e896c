"""One reservation as the scheduler knows it.

                 decided              written, or seen on its node
    PENDING ───────────────► ASSUMED ──────────────────────────────► ASSIGNED      (its reserve pod)
                                                        │
                    Waiting ◄── no room yet ────────────┤
                       │ room                           │
                       └────────► Available ◄───────────┘
                                      │ used up, expired, node gone
                                      ▼
                                  finished: holds nothing, collected later

What was decided of it stands before what its object says: objects come late.
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
    __slots__ = (
        "amounts",
        "amounts_by_name",
        "being_evicted",
        "clears",
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
        """What is written on pods that draw on it."""
        self.object = reservation
        """As last seen."""
        self.created = created
        self.expires = _expires(reservation.spec, created)
        """When it ends whatever happens; never if None."""
        self.pod: PodRecord | None = None
        """Its reserve pod; None while the object makes no sense."""
        self.spec: OwnerSpec | None = None
        self.amounts: Amounts = {}
        """What it holds, or wants to, by slot."""
        self.amounts_by_name: dict[str, int] = {}
        self.listed: tuple[tuple[int, str], ...] = ()
        """What of that its status tells: slots and their names, in the order of the names."""
        self.counts_pods = False
        """Whether it says how many pods it is for."""
        self.hold: ReservationRow | None = None
        """Its room on a node, if it has one."""
        self.wanted: Amounts = {}
        """What the object as it is now asks to hold, by slot."""
        self.once = reservation.spec.once
        self.order = 0
        """Lower is used first; 0 if it does not say."""
        self.restricted: frozenset[int] | None = None
        """The slots of which owners get nothing but what is reserved; None if the policy is another."""
        self.withheld: Amounts = {}
        """What is kept back inside it, by slot."""
        self.virtual = False
        """Whether it has no object; see `holdfast.scheduler.reservations.virtual_reservations`."""
        self.waiting = False
        """Whether it has a node but not yet the room."""
        self.finished = ""
        """How it ended, as the reason of its Ready condition: Succeeded or Expired."""
        self.final: ReservationStatus | None = None
        """Its status when it ended."""
        self.message = ""
        """Why it has no node, or how it ended."""
        self.error = ""
        """What is wrong with the object."""
        self.resize_problem = ""
        """Why it could not be given the size its template asks for by now."""
        self.resized = False
        """Whether it was given another size than it began with."""
        self.node_gone = False
        """Whether the node it has was deleted; one that is created again under its name is another."""
        self.wants_node = ""
        """The node its template names."""
        self.preemptor = ""
        """The uid of the pod whose preempted room it holds, if it was made for that."""
        self.released = False
        """Whether that pod needs it no more."""
        self.taken_early = False
        """Whether that pod took the room before it was held."""
        self.clears: frozenset[str] = frozenset()
        """The uids of reservations that have to go before it has the room it waits for."""
        self.being_evicted = False
        """Whether it has to go for another, or is evicted softly; then it takes no more owners."""
        self.marked = False
        """Whether that was told."""
        self.deleting = False
        """Whether its deletion was decided; then it takes no more owners."""
        self.deletion_reason = ""
        """Why it is to be deleted once the binds through it that are under way are done."""
        self.expiring = False
        """Whether it ends once the binds through it that are under way are done; until then it takes no
        more owners."""
        self.last_status: ReservationStatus | None = None
        """The status last written, until it is seen."""

    @property
    def ending(self) -> bool:
        """Whether it is about to end, and takes no more owners."""
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
        """Whether it has the policy that needs no name."""
        return self.policy == AllocatePolicy.DEFAULT

    @property
    def closed(self) -> bool:
        """Whether it takes no more owners, unless they tolerate that."""
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
        """Takes its object as it is now; whether more than its status is new."""
        before, self.object = self.object, reservation
        if _same_spec(before, reservation) and _same(before.metadata, reservation.metadata):
            # Of two that are alike the one is kept that more may have a hold of already.
            self.object = msgspec.structs.replace(reservation, spec=before.spec)
            return False
        self.expires = _expires(reservation.spec, self.created)
        return True

    def is_before(self, other: ReservationInfo) -> bool:
        """Whether it is served first where both wait."""
        return age(self) < age(other)

    def __repr__(self) -> str:
        return f"<{self.ref}>"


def age(reservation: ReservationInfo) -> tuple[float, str]:
    """Orders reservations that wait in one place: the oldest is served first."""
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
