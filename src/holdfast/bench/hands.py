"""Carries decisions out as an API server would on a cluster without kubelets.

Nothing runs there, so that a pod that has to make room for another is gone at once.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.api.reservation import Reservation
from holdfast.bench.making import CREATED, PodMaker, number_of, seen, uid_of
from holdfast.core.decisions import (
    AnnotatePod,
    Bind,
    CreateReservation,
    Decision,
    DeleteReservation,
    Nominate,
    Preempt,
    SetPodScheduled,
    SetReservationStatus,
)
from holdfast.core.events import Added, BindConfirmed, Deleted, Event, Updated

Report = tuple[Callable[[Any], Event], Any]
"""An event still to be made, and what of."""


class Hands:
    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()
        """How many there were of each kind while measured pods came."""
        self.placed: dict[str, str] = {}
        """Node names of measured pods, by the pod's name."""
        self.waiting: set[str] = set()
        """The uids of pods a barrier waits for."""
        self._makers: dict[str, tuple[PodMaker, bool]] = {}
        """Who can write a pod anew, and whether its pods are measured."""
        self.reservations = ReservationHands()
        self._said: dict[str, SetPodScheduled] = {}
        self._nominated: dict[str, str] = {}
        self._annotations: dict[str, dict[str, str]] = {}

    def know(self, maker: PodMaker, measured: bool) -> None:
        self._makers[maker.key] = maker, measured

    def forget(self, uid: str) -> None:
        self._said.pop(uid, None)
        self._nominated.pop(uid, None)
        self._annotations.pop(uid, None)
        self.waiting.discard(uid)

    def carry_out(self, decisions: list[Decision], measured: bool) -> list[Report]:
        """What the watch shows then, last first."""
        if measured:
            self.decisions.update(type(decision).__name__ for decision in decisions)
        reports: list[Report] = []
        changed: dict[str, None] = {}
        for decision in decisions:
            match decision:
                case Bind():
                    changed.pop(decision.pod.uid, None)
                    reports += self._bind(decision)
                case SetPodScheduled():
                    self._said[decision.pod.uid] = decision
                    changed[decision.pod.uid] = None
                case Nominate():
                    self._nominated[decision.pod.uid] = decision.node
                    changed[decision.pod.uid] = None
                case Preempt():
                    reports += self._preempt(decision)
                case AnnotatePod():
                    reports += self._annotate(decision)
                case CreateReservation() | SetReservationStatus() | DeleteReservation():
                    reports += self.reservations.carry_out(decision)
        # A pod's condition and the node it is nominated for are written in one go.
        for uid in changed:
            maker, _ = self._makers[uid[:8]]
            nominated = self._nominated.get(uid, "")
            pod = maker.told(number_of(uid), self._said.get(uid), nominated)
            reports.append((Updated, pod))
        reports.reverse()
        return reports

    def _bind(self, decision: Bind) -> list[Report]:
        uid = decision.pod.uid
        maker, measured = self._makers[uid[:8]]
        annotations = {**self._annotations.get(uid, {}), **decision.annotations}
        self.forget(uid)
        if measured:
            self.placed[decision.pod.name] = decision.node
        pod = maker.bound(number_of(uid), decision.node, annotations)
        return [(BindConfirmed, uid), (Updated, pod)]

    def _annotate(self, decision: AnnotatePod) -> list[Report]:
        uid = decision.pod.uid
        maker, _ = self._makers[uid[:8]]
        given = {name: text for name, text in decision.annotations.items() if text is not None}
        annotations = self._annotations.setdefault(uid, {})
        annotations.update(given)
        return [(Updated, maker.annotated(number_of(uid), annotations))]

    def _preempt(self, decision: Preempt) -> list[Report]:
        uid = decision.pod.uid
        maker, measured = self._makers[uid[:8]]
        if measured:
            self.placed.pop(decision.pod.name, None)
        pod = maker.preempted(number_of(uid), decision.node, decision.message)
        return [(Updated, pod), (Deleted, pod)]


class ReservationHands:
    def __init__(self) -> None:
        self._known: dict[str, Reservation] = {}
        self._made = 0

    def know(self, reservation: Reservation) -> None:
        self._known[reservation.metadata.uid] = reservation

    def carry_out(
        self, decision: CreateReservation | SetReservationStatus | DeleteReservation
    ) -> list[Report]:
        if isinstance(decision, CreateReservation):
            return [(Added, self._create(decision.reservation))]
        uid = decision.reservation.uid
        before = self._known.get(uid)
        if before is None:
            return []
        if isinstance(decision, DeleteReservation):
            return [(Deleted, self._known.pop(uid))]
        after = self._known[uid] = seen(msgspec.structs.replace(before, status=decision.status))
        confirmed: list[Report] = [(BindConfirmed, uid)] if decision.binds else []
        return [*confirmed, (Updated, after)]

    def _create(self, wanted: Reservation) -> Reservation:
        self._made += 1
        metadata = msgspec.structs.replace(
            wanted.metadata,
            uid=uid_of(wanted.metadata.name, self._made),
            creation_timestamp=CREATED,
            generation=1,
        )
        made = seen(msgspec.structs.replace(wanted, metadata=metadata))
        self.know(made)
        return made
