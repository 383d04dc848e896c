"""Preemption among reservations: its labels and annotations, and which reservation preempts which.

A reservation that preempts others is scheduled at once, and is Waiting on the node until its victims
are gone. Their uids are written to it together with its node, so that a restarted scheduler knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.api import names
from holdfast.api.annotations import Preempts, SoftEviction
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.reservation import Reservation
from holdfast.api.selectors import as_integer
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.records import ReservationInfo

INVALID_PRIORITY = "InvalidPriority"
INVALID_CAN_PREEMPT = "InvalidCanPreempt"
INCOMPLETE_GANG = "IncompleteGang"

_HIGHEST = 2**31 - 1


def labelled_priority(reservation: Reservation) -> int | None:
    """The priority in its label; None if there is none, or it is invalid."""
    value = as_integer(reservation.metadata.labels.get(names.RESERVATION_PRIORITY, ""))
    return value if value is not None and -_HIGHEST - 1 <= value <= _HIGHEST else None


def may_preempt(reservation: Reservation) -> bool:
    """Not with an invalid priority: without a valid one it would have the highest."""
    labels = reservation.metadata.labels
    is_valid = names.RESERVATION_PRIORITY not in labels or labelled_priority(reservation) is not None
    return labels.get(names.CAN_PREEMPT) == "true" and is_valid


def problems(reservation: Reservation) -> dict[str, str]:
    """The problems with its labels, by event reason; empty texts for those it does not have."""
    labels = reservation.metadata.labels
    priority, can = labels.get(names.RESERVATION_PRIORITY), labels.get(names.CAN_PREEMPT)
    bad_priority = bad_can = ""
    if priority is not None and labelled_priority(reservation) is None:
        bad_priority = (
            f"metadata.labels[{names.RESERVATION_PRIORITY}]: expected an integer of 32 bits, "
            f'got "{priority}"; it counts as not set, and the reservation does not preempt'
        )
    if can not in (None, "true", "false"):
        bad_can = (
            f'metadata.labels[{names.CAN_PREEMPT}]: expected "true" or "false", got "{can}"; '
            "it counts as not set"
        )
    return {INVALID_PRIORITY: bad_priority, INVALID_CAN_PREEMPT: bad_can}


def is_soft_evicted(reservation: Reservation) -> bool:
    return reservation.metadata.labels.get(names.SOFT_EVICTION) == "true"


def soft_eviction(initiator: str, reason: str, now: float) -> str:
    return msgspec.json.encode(SoftEviction(format_time(now), initiator, reason)).decode()


def victims_in(reservation: Reservation) -> frozenset[str]:
    """The uids of its victims, from its annotation."""
    text = reservation.metadata.annotations.get(names.PREEMPTS)
    if text is None:
        return frozenset()
    try:
        return frozenset(decode_json(text, Preempts).reservations)
    except InvalidObject:
        return frozenset()


def written(victims: Iterable[str]) -> str:
    return msgspec.json.encode(Preempts(sorted(victims))).decode()


class PreemptedReservations:
    """The reservations that are preempted, and by which."""

    def __init__(self) -> None:
        self._for: dict[str, dict[str, ReservationInfo]] = {}

    def __bool__(self) -> bool:
        return bool(self._for)

    def __contains__(self, uid: str) -> bool:
        return uid in self._for

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._for))

    def of(self, uid: str) -> ReservationInfo | None:
        """The reservation that preempts this one; the first if there are several."""
        return next(iter(self._for.get(uid, {}).values()), None)

    def begin(self, preemptor: ReservationInfo) -> None:
        for uid in sorted(preemptor.victims):
            self._for.setdefault(uid, {})[preemptor.uid] = preemptor

    def end(self, preemptor: ReservationInfo) -> None:
        for uid in sorted(preemptor.victims):
            waiting = self._for.get(uid, {})
            waiting.pop(preemptor.uid, None)
            if not waiting:
                self._for.pop(uid, None)
