"""Carries out what was decided of reservations."""

import msgspec

from holdfast.api.meta import condition
from holdfast.api.names import RESERVATION_API
from holdfast.api.reservation import ReservationPhase, ReservationStatus
from holdfast.api.validation import validate
from holdfast.backends.embedded.admission import admit
from holdfast.backends.embedded.telling import PREEMPTED, UNSCHEDULABLE
from holdfast.backends.embedded.world import World, deletion_event
from holdfast.core.decisions import (
    CreateReservation,
    DeleteReservation,
    ObjectRef,
    PreemptReservation,
    SetReservationStatus,
)
from holdfast.core.events import BindConfirmed, BindRefused, WriteRefused
from holdfast.store.objects import Key, Raw


class ReservationHands:
    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = world.objects

    def create(self, decision: CreateReservation) -> None:
        raw: Raw = msgspec.to_builtins(decision.reservation)
        name = decision.reservation.metadata.name
        if reservation_key(name) in self._objects:
            return
        if problems := validate(raw):
            self._world.feed(WriteRefused(decision, str(problems[0])))
        else:
            self._objects.create(admit(raw, self._objects.scan, self._world.clock.stamp()))

    def set_status(self, decision: SetReservationStatus) -> None:
        ref = decision.reservation
        raw = self._this(ref)
        if raw is None:
            if decision.binds:
                self._world.feed(BindRefused(ref.uid, f'reservations "{ref.name}" not found'))
            return
        if decision.binds:
            self._world.feed(BindConfirmed(ref.uid))
        self._tell(ref, raw, decision.status)
        status = msgspec.to_builtins(decision.status)
        written = {**raw, "status": status}
        if decision.annotations:
            metadata = raw["metadata"]
            annotations = {**(metadata.get("annotations") or {}), **decision.annotations}
            annotations = {key: value for key, value in annotations.items() if value}
            written["metadata"] = {**metadata, "annotations": annotations}
        self._objects.update(reservation_key(ref.name), written)

    def delete(self, decision: DeleteReservation) -> None:
        ref = decision.reservation
        raw = self._this(ref)
        if raw is None:
            return
        key = reservation_key(ref.name)
        if not raw["metadata"].get("finalizers"):
            self._world.tell(key, deletion_event(raw), message=decision.message)
        self._objects.end(key, self._world.clock.stamp())

    def preempt(self, decision: PreemptReservation) -> None:
        ref = decision.reservation
        raw = self._this(ref)
        if raw is None:
            return
        key, metadata = reservation_key(ref.name), raw["metadata"]
        self._world.tell(key, PREEMPTED, node=decision.node, message=f"by {decision.preemptor}")
        labels = {**(metadata.get("labels") or {}), **decision.labels}
        annotations = {**(metadata.get("annotations") or {}), **decision.annotations}
        marked = {**metadata, "labels": labels, "annotations": annotations}
        self._objects.update(key, {**raw, "metadata": marked})

    def _tell(self, ref: ObjectRef, raw: Raw, status: ReservationStatus) -> None:
        """What the new status means, if it means something new."""
        before = raw.get("status") or {}
        key = reservation_key(ref.name)
        if status.phase != before.get("phase") and status.phase != ReservationPhase.PENDING:
            ready = condition(status.conditions, "Ready")
            why = ready.message if ready is not None else ""
            self._world.tell(key, status.phase, node=status.node_name, message=why)
        scheduled = condition(status.conditions, "Scheduled")
        if scheduled is None or scheduled.status != "False":
            return
        known = [c for c in before.get("conditions", ()) if c["type"] == "Scheduled"]
        if not known or known[0].get("message") != scheduled.message:
            self._world.tell(key, UNSCHEDULABLE, message=scheduled.message)

    def _this(self, wanted: ObjectRef) -> Raw | None:
        """The reservation, unless another has its name by now."""
        raw = self._objects.get(reservation_key(wanted.name))
        return raw if raw is not None and raw["metadata"]["uid"] == wanted.uid else None


def reservation_key(name: str) -> Key:
    return Key(RESERVATION_API.partition("/")[0], "Reservation", "", name)
