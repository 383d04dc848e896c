"""Makes the reservations pods ask for. Part of the scheduler, or a process of its own.

    requirement seen ─► creating ─► the reservation is there
                           │ refused
                           ▼
                        told on the pod ─► the scheduler takes that away ─► creating …

One id has one reservation: it is looked for before one is created, and its name follows from the id.
"""

from collections.abc import Callable, Iterable

from holdfast.api.dynamic_reservations import reservation_for, reservation_name
from holdfast.api.names import RESERVATION_PROVISION_ERROR
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import AnnotatePod, CreateReservation, Decision
from holdfast.core.events import Added, Deleted, Event, Malformed, Updated, WriteRefused
from holdfast.core.promises.requirements import Ask, Requirements


class Provisioner:
    def __init__(
        self, requirements: Requirements, is_current: Callable[[Ask], bool] = lambda ask: True
    ) -> None:
        """What a pod says may be of yesterday; where the scheduler is at hand it can be asked."""
        self._requirements = requirements
        self._is_current = is_current
        requirements.has_provisioner = True
        requirements.dirty.update(dict.fromkeys(requirements.by_id))
        self.created = 0
        """How many were decided to be."""
        self.failures = 0
        """How many could not be created."""
        self._told: dict[str, str] = {}
        """What was said of ids on their pods, until it is seen there."""

    @classmethod
    def of(cls, cluster: Cluster) -> "Provisioner":
        """As a part of the scheduler."""
        return cls(cluster.virtuals.requirements, cluster.virtuals.has_told)

    def feed(self, event: Event) -> None:
        """Takes note of something that happened, where the provisioner stands on its own."""
        requirements = self._requirements
        if isinstance(event, WriteRefused):
            if isinstance(event.decision, CreateReservation):
                name = event.decision.reservation.metadata.name
                requirements.not_created(name, event.message)
        elif isinstance(event, Malformed):
            requirements.forget_pod(event.uid)
        elif isinstance(event, Added | Updated | Deleted):
            obj, gone = event.object, isinstance(event, Deleted)
            if isinstance(obj, Pod):
                requirements.forget_pod(obj.metadata.uid) if gone else requirements.see_pod(obj)
            elif isinstance(obj, Reservation) and gone:
                requirements.forget_reservation(obj.metadata.uid)
            elif isinstance(obj, Reservation):
                requirements.see_reservation(obj)

    def run(self, now: float) -> list[Decision]:
        requirements = self._requirements
        decisions: list[Decision] = []
        dirty, requirements.dirty = requirements.dirty, {}
        for id in dirty:
            decisions += self._look_after(id, requirements.by_id.get(id, {}).values())
        return decisions

    def next_timer(self) -> float | None:
        return None

    def _look_after(self, id: str, asks: Iterable[Ask]) -> Iterable[Decision]:
        requirements = self._requirements
        ask = min(asks, key=lambda each: each.pod.uid, default=None)
        if ask is None or ask.requirement is None or id in requirements.made:
            self._forget(id)
            return
        reservation = reservation_for(ask.template, ask.requirement)
        name = reservation.metadata.name
        refusal = requirements.refusals.pop(name, None)
        if refusal is not None:
            del requirements.making[name]
            self.failures += 1
            self._told[id] = refusal
            yield AnnotatePod(ask.pod, {RESERVATION_PROVISION_ERROR: refusal})
            return
        if ask.error:
            self._told.pop(id, None)
        elif not self._is_current(ask):
            return
        elif name not in requirements.making and id not in self._told:
            requirements.making[name] = id
            self.created += 1
            yield CreateReservation(reservation)

    def _forget(self, id: str) -> None:
        name = reservation_name(id)
        self._told.pop(id, None)
        self._requirements.making.pop(name, None)
        self._requirements.refusals.pop(name, None)
