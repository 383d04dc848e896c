"""The status of a reservation, computed from the reservation cache."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

import msgspec

from holdfast.api.meta import Condition, ObjectReference, ResourceList, condition
from holdfast.api.quantity import format_amount
from holdfast.api.reservation import ReservationPhase, ReservationStatus
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.reservations.calendar import (
    DRAINING,
    FEASIBLE,
    NOT_PLANNED,
    PLANNED,
    STARTED,
    PlannedReservation,
)
from holdfast.scheduler.reservations.reservation_index import ReservationIndex

SCHEDULED, READY, RESIZED, DEVICES_HELD = "Scheduled", "Ready", "Resized", "DevicesHeld"
USED = "Used"
"""Of a reservation that is released if unused: whether it has owners, and since when."""
_UID = attrgetter("uid")
SUCCEEDED, EXPIRED = "Succeeded", "Expired"
_SCHEDULED = (SCHEDULED, "True", "Scheduled", "")
_AVAILABLE = (READY, "True", "Available", "")
_PHASE_AVAILABLE = ReservationPhase.AVAILABLE
_FEASIBILITY = {"True": "Fits", "False": "DoesNotFit", "Unknown": "EndsUnknown"}
"""The reasons of the condition Feasible."""


def status_of(
    reservations: ReservationIndex,
    reservation: ReservationInfo,
    node: str,
    now: float,
    planned: PlannedReservation | None = None,
) -> ReservationStatus:
    """The whole status. Conditions that did not change keep their times. `planned` is its plan, if it
    has not started yet."""
    before = reservation.final or reservation.object.status
    if node and _is_current(reservation, before, node):
        return _with_owners(reservations, reservation, before)
    conditions = {c.type: c for c in before.conditions}

    def set_condition(kind: str, true: bool | str, reason: str, message: str = "") -> None:
        known = conditions.get(kind)
        status = true if isinstance(true, str) else "True" if true else "False"
        if known is not None and (known.status, known.reason, known.message) == (
            status,
            reason,
            message,
        ):
            return
        time = format_time(now)
        kept = known.last_transition_time if known is not None and known.status == status else None
        conditions[kind] = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            last_probe_time=time,
            last_transition_time=kept or time,
        )

    expires = before.expires if reservation.finished else _expires(reservation)
    status = msgspec.structs.replace(before, phase=_phase(reservation, node), expires=expires)
    if planned is not None:
        status.node_name = planned.node
        reason = DRAINING if planned.draining and planned.node else PLANNED
        what = f"starts at {format_time(planned.start)}"
        if planned.node:
            set_condition(PLANNED, True, reason, f"{what} on {planned.node}")
        else:
            set_condition(PLANNED, False, NOT_PLANNED, what)
        set_condition(FEASIBLE, planned.feasible, _FEASIBILITY[planned.feasible], planned.message)
    elif PLANNED in conditions or _is_late(reservation, node):
        if not reservation.finished:
            status.node_name = node  # it is no longer the planned one
        conditions.pop(FEASIBLE, None)
        if reservation.calendar.start is None or (reservation.error and reservation.is_planned):
            del conditions[PLANNED]  # the start was removed, or it is not planned any more
        else:
            set_condition(PLANNED, False, STARTED)
    if reservation.finished:
        conditions.pop(USED, None)
        set_condition(READY, False, reservation.finished, reservation.message)
    elif not node:
        if reservation.error:
            set_condition(SCHEDULED, False, "Invalid", reservation.error)
        elif reservation.message:
            set_condition(SCHEDULED, False, "Unschedulable", reservation.message)
    else:
        status.node_name = node
        status = _with_owners(reservations, reservation, status)
        set_condition(SCHEDULED, True, "Scheduled")
        if reservation.waiting:
            set_condition(READY, False, "Waiting", reservation.message)
        else:
            set_condition(READY, True, "Available")
        if reservation.calendar.release_after is None or reservation.waiting:
            conditions.pop(USED, None)
        else:
            used = bool(reservations.allocated_pods(reservation))
            set_condition(USED, used, "HasOwners" if used else "NoOwner")
        if reservation.resize_problem:
            set_condition(RESIZED, False, "Unschedulable", reservation.resize_problem)
        elif RESIZED in conditions or reservation.resized:
            set_condition(RESIZED, True, "Resized")
        if reservation.devices_problem:
            set_condition(DEVICES_HELD, False, "NotHeld", reservation.devices_problem)
        elif DEVICES_HELD in conditions:
            set_condition(DEVICES_HELD, True, "Held")
    # The message of a reservation is that of the last condition that is False.
    status.conditions = sorted(conditions.values(), key=lambda each: each.type != USED)
    return status


def _is_late(reservation: ReservationInfo, node: str) -> bool:
    """Whether its start was reached and it has no node. Its start may have been in the past when it was
    first seen, so that the object need not have had a plan."""
    has_started = reservation.calendar.start is not None and reservation.started
    return has_started and not (node or reservation.finished or reservation.error)


def was_late(status: ReservationStatus) -> bool:
    """Whether a scheduler has written that the start was reached. The reservation is late if it has no
    node."""
    known = condition(status.conditions, PLANNED)
    return known is not None and (known.status, known.reason) == ("False", STARTED)


def _is_current(reservation: ReservationInfo, before: ReservationStatus, node: str) -> bool:
    """Whether nothing but the owners can have changed in the status of an Available reservation."""
    if reservation.finished or reservation.waiting or reservation.resize_problem or reservation.resized:
        return False
    if reservation.devices_problem or reservation.calendar.release_after is not None:
        return False
    if before.node_name != node or before.phase != _PHASE_AVAILABLE:
        return False
    conditions = before.conditions
    if len(conditions) != 2:
        return False
    one, two = conditions
    return (one.type, one.status, one.reason, one.message) == _SCHEDULED and (
        (two.type, two.status, two.reason, two.message) == _AVAILABLE
    )


def _with_owners(
    reservations: ReservationIndex, reservation: ReservationInfo, before: ReservationStatus
) -> ReservationStatus:
    """The status with the current owners and what is allocated to them."""
    allocated_pods = reservations.allocated_pods(reservation)
    owners = _bound(allocated_pods)
    allocated: ResourceList = {}
    if owners and reservation.entry is not None and len(owners) == len(allocated_pods):
        taken = reservation.entry.taken
        allocated = _amounts_list(reservation, taken)
    elif owners:
        allocated = _allocated(reservation, owners)
    return ReservationStatus(
        phase=before.phase,
        conditions=before.conditions,
        current_owners=[
            ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in owners
        ],
        node_name=before.node_name,
        allocatable=_listed(reservation),
        allocated=allocated,
        expires=_expires(reservation),
    )


def _expires(reservation: ReservationInfo) -> str | None:
    return format_time(reservation.expires) if reservation.expires is not None else None


def bound_owners(reservations: ReservationIndex, reservation: ReservationInfo) -> list[PodRecord]:
    """The bound pods that are allocated from it, ordered by uid."""
    return _bound(reservations.allocated_pods(reservation))


def _bound(allocated_pods: list[PodRecord]) -> list[PodRecord]:
    bound = [pod for pod in allocated_pods if pod.phase is Phase.ASSIGNED]
    if len(bound) > 1:
        bound.sort(key=_UID)
    return bound


def _phase(reservation: ReservationInfo, node: str) -> str:
    if reservation.finished == SUCCEEDED:
        return ReservationPhase.SUCCEEDED
    if reservation.finished:
        return ReservationPhase.FAILED
    if not node:
        return ReservationPhase.PENDING
    return ReservationPhase.WAITING if reservation.waiting else ReservationPhase.AVAILABLE


def _listed(reservation: ReservationInfo) -> ResourceList:
    """What it holds, by name."""
    amounts = reservation.amounts
    return {name: _text(name, amounts[slot]) for slot, name in reservation.listed}


def _allocated(reservation: ReservationInfo, owners: list[PodRecord]) -> ResourceList:
    taken = dict.fromkeys(reservation.amounts, 0)
    for pod in owners:
        for slot, amount in pod.cls.usage:
            if slot in taken:
                taken[slot] += amount
    return _amounts_list(reservation, taken)


def _amounts_list(reservation: ReservationInfo, taken: Amounts) -> ResourceList:
    """Amounts allocated to owners, by name, of the resources it holds; without pod slots."""
    return {
        name: _text(name, taken[slot])
        for slot, name in reservation.listed
        if slot != PODS and taken.get(slot)
    }


_text = lru_cache(maxsize=4096)(format_amount)
