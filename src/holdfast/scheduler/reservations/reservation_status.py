"""What a reservation's status should say, given what is known of it."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from holdfast.api.meta import Condition, ObjectReference, ResourceList
from holdfast.api.quantity import format_amount
from holdfast.api.reservation import ReservationPhase, ReservationStatus
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.cluster.reservation_table import Amounts
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.reservations.reservation_info import ReservationInfo

if TYPE_CHECKING:
    from holdfast.scheduler.reservations.reservation_cache import ReservationCache

SCHEDULED, READY, RESIZED = "Scheduled", "Ready", "Resized"
_UID = attrgetter("uid")
SUCCEEDED, EXPIRED = "Succeeded", "Expired"
_SCHEDULED = (SCHEDULED, "True", "Scheduled", "")
_AVAILABLE = (READY, "True", "Available", "")
_PHASE_AVAILABLE = ReservationPhase.AVAILABLE


def status_of(
    promises: ReservationCache, promise: ReservationInfo, node: str, now: float
) -> ReservationStatus:
    """The whole status. Times of conditions that say what they said before are kept."""
    before = promise.final or promise.object.status
    if node and _is_as_said(promise, before, node):
        return _with_owners(promises, promise, before)
    conditions = {c.type: c for c in before.conditions}

    def say(kind: str, true: bool, reason: str, message: str = "") -> None:
        known = conditions.get(kind)
        status = "True" if true else "False"
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

    status = msgspec.structs.replace(before, phase=_phase(promise, node))
    if promise.finished:
        say(READY, False, promise.finished, promise.message)
    elif not node:
        if promise.error:
            say(SCHEDULED, False, "Invalid", promise.error)
        elif promise.message:
            say(SCHEDULED, False, "Unschedulable", promise.message)
    else:
        status.node_name = node
        status = _with_owners(promises, promise, status)
        say(SCHEDULED, True, "Scheduled")
        if promise.waiting:
            say(READY, False, "Waiting", promise.message)
        else:
            say(READY, True, "Available")
        if promise.resize_problem:
            say(RESIZED, False, "Unschedulable", promise.resize_problem)
        elif RESIZED in conditions or promise.resized:
            say(RESIZED, True, "Resized")
    status.conditions = list(conditions.values())
    return status


def _is_as_said(promise: ReservationInfo, before: ReservationStatus, node: str) -> bool:
    """Whether nothing but the owners of an available reservation can be other than it says."""
    if promise.finished or promise.waiting or promise.resize_problem or promise.resized:
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
    promises: ReservationCache, promise: ReservationInfo, before: ReservationStatus
) -> ReservationStatus:
    """The same with the owners there are now, and what it holds."""
    drawing = promises.drawing(promise)
    owners = _bound(drawing)
    allocated: ResourceList = {}
    if owners and promise.hold is not None and len(owners) == len(drawing):
        taken = promise.hold.taken
        allocated = _told(promise, taken)
    elif owners:
        allocated = _allocated(promise, owners)
    return ReservationStatus(
        phase=before.phase,
        conditions=before.conditions,
        current_owners=[
            ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in owners
        ],
        node_name=before.node_name,
        allocatable=_listed(promise),
        allocated=allocated,
    )


def bound_owners(promises: ReservationCache, promise: ReservationInfo) -> list[PodRecord]:
    """The pods bound through it, in the order of their uids."""
    return _bound(promises.drawing(promise))


def _bound(drawing: list[PodRecord]) -> list[PodRecord]:
    bound = [pod for pod in drawing if pod.phase is Phase.ASSIGNED]
    if len(bound) > 1:
        bound.sort(key=_UID)
    return bound


def _phase(promise: ReservationInfo, node: str) -> str:
    if promise.finished == SUCCEEDED:
        return ReservationPhase.SUCCEEDED
    if promise.finished:
        return ReservationPhase.FAILED
    if not node:
        return ReservationPhase.PENDING
    return ReservationPhase.WAITING if promise.waiting else ReservationPhase.AVAILABLE


def _listed(promise: ReservationInfo) -> ResourceList:
    """What it holds, by name."""
    amounts = promise.amounts
    return {name: _text(name, amounts[slot]) for slot, name in promise.listed}


def _allocated(promise: ReservationInfo, owners: list[PodRecord]) -> ResourceList:
    taken = dict.fromkeys(promise.amounts, 0)
    for pod in owners:
        for slot, amount in pod.cls.usage:
            if slot in taken:
                taken[slot] += amount
    return _told(promise, taken)


def _told(promise: ReservationInfo, taken: Amounts) -> ResourceList:
    """What owners ask for of what it holds, by name; nobody asks for the slot of a pod."""
    return {
        name: _text(name, taken[slot])
        for slot, name in promise.listed
        if slot != PODS and taken.get(slot)
    }


_text = lru_cache(maxsize=4096)(format_amount)
