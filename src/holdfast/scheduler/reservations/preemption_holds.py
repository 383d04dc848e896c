"""Preemption holds: reservations that keep what victims leave for their preemptor.

A preemption hold names the preemptor by its uid, in a label and as its only owner, and its node. As
only that pod is allocated from it, it makes no difference to pod classes: when the preemptor is
evaluated on that node, what is held there for it counts as free.
"""

from __future__ import annotations

from holdfast.api import names
from holdfast.api.reservation import AllocatePolicy, Reservation
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo


def preemptor_of(reservation: Reservation) -> str:
    """The uid of the preemptor; empty if this is not a preemption hold, or was edited to be something
    else."""
    uid, spec = reservation.metadata.labels.get(names.PREEMPTOR_UID, ""), reservation.spec
    if not uid or len(spec.owners) != 1 or not spec.once:
        return ""
    (owner,) = spec.owners
    if owner.controller is not None or owner.label_selector is not None or owner.object is None:
        return ""
    plain = spec.allocate_policy == AllocatePolicy.DEFAULT and spec.pre_allocation
    return uid if plain and owner.object.uid == uid else ""


class PreemptionHolds(dict[str, dict[str, ReservationInfo]]):
    """Preemption holds, by the uid of the preemptor and their own uid. A plain dictionary, since every
    pod that is scheduled is looked up in it."""

    def add(self, reservation: ReservationInfo) -> None:
        self.setdefault(reservation.preemptor, {})[reservation.uid] = reservation

    def remove(self, reservation: ReservationInfo) -> None:
        there = self.get(reservation.preemptor)
        if there is not None and there.pop(reservation.uid, None) is not None and not there:
            del self[reservation.preemptor]

    def of(self, pod: PodRecord, row: int) -> ReservationInfo | None:
        """The hold of the pod on this row; None too while it is being deleted, since it is closed to
        its owner then."""
        there = self.get(pod.uid)
        for reservation in there.values() if there else ():
            if reservation.pod is not None and reservation.pod.row == row and not reservation.ending:
                return reservation
        return None
