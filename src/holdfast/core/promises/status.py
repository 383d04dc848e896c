"""What a reservation's status should say, given what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.api.meta import Condition, ObjectReference, ResourceList
from holdfast.api.quantity import format_amount
from holdfast.api.reservation import ReservationPhase, ReservationStatus
from holdfast.api.timestamps import format_time
from holdfast.core.pods import Phase, PodRecord
from holdfast.core.promises.promise import Promise
from holdfast.core.slots import PODS

if TYPE_CHECKING:
    from holdfast.core.promises.promises import Promises

SCHEDULED, READY, RESIZED = "Scheduled", "Ready", "Resized"
SUCCEEDED, EXPIRED = "Succeeded", "Expired"


def status_of(promises: Promises, promise: Promise, node: str, now: float) -> ReservationStatus:
    """The whole status. Times of conditions that say what they said before are kept."""
    before = promise.final or promise.object.status
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
        status.allocatable = _listed(promise)
        owners = bound_owners(promises, promise)
        status.current_owners = [
            ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in owners
        ]
        status.allocated = _allocated(promises, promise, owners) if owners else {}
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


def bound_owners(promises: Promises, promise: Promise) -> list[PodRecord]:
    """The pods bound through it, in the order of their uids."""
    bound = [pod for pod in promises.drawing(promise) if pod.phase is Phase.ASSIGNED]
    if len(bound) > 1:
        bound.sort(key=lambda pod: pod.uid)
    return bound


def _phase(promise: Promise, node: str) -> str:
    if promise.finished == SUCCEEDED:
        return ReservationPhase.SUCCEEDED
    if promise.finished:
        return ReservationPhase.FAILED
    if not node:
        return ReservationPhase.PENDING
    return ReservationPhase.WAITING if promise.waiting else ReservationPhase.AVAILABLE


def _listed(promise: Promise) -> ResourceList:
    """What it holds, by name. The one pod slot every reservation has is not worth telling."""
    return {
        name: format_amount(name, amount)
        for name, amount in sorted(promise.amounts_by_name.items())
        if name != "pods" or amount > 1
    }


def _allocated(promises: Promises, promise: Promise, owners: list[PodRecord]) -> ResourceList:
    taken = dict.fromkeys(promise.amounts, 0)
    for pod in owners:
        for slot, amount in pod.cls.usage:
            if slot in taken:
                taken[slot] += amount
    several = promise.amounts.get(PODS, 0) > 1
    return {
        name: format_amount(name, amount)
        for name, amount in sorted(promises.by_name(taken.items()).items())
        if name != "pods" or several
    }
