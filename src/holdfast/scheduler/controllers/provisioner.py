"""Makes the reservations pods ask for. Part of the scheduler, or a process of its own.

    requirement seen ─► creating ─► the reservation is there
                           │ refused
                           ▼
                        told on the pod ─► the scheduler takes that away ─► creating …

One id has one reservation: it is looked for before one is created, and its name follows from the id.
"""

from collections.abc import Callable, Iterable

from holdfast.api import names
from holdfast.api.names import RESERVATION_PROVISION_ERROR
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.machinery.dynamic_reservations import reservation_for, reservation_name, write_requirement
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import AnnotatePod, CreateReservation, Decision
from holdfast.scheduler.cluster.events import Added, Deleted, Event, Malformed, Updated, WriteRefused
from holdfast.scheduler.cluster.pods import Phase
from holdfast.scheduler.reservations.provisioning_requests import Ask, Requirements
from holdfast.scheduler.reservations.reservation_info import ReservationInfo
from holdfast.scheduler.reservations.virtual_reservations import Settings, Virtual


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
        return cls(cluster.virtuals.requirements, cluster.virtuals.has_reported)

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


# The scheduler's side of reservations made on demand: pods are told what is asked for on their behalf,
# and room that was set aside in vain is given back.


class DynamicReservations:
    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._virtuals = cluster.virtuals
        self._virtuals.settings = settings

    def run(self, now: float) -> list[Decision]:
        virtuals = self._virtuals
        decisions: list[Decision] = []
        virtuals.ask_again()
        for id in list(virtuals.unreported):
            decisions += self._told(virtuals.by_id[id])
        virtuals.unreported.clear()
        for virtual in list(virtuals.by_id.values()):
            self._look_after(virtual, now)
        for uid in list(virtuals.adopting):
            self._follow(uid, now)
        for uid in list(virtuals.refused):
            self._reconsider(uid)
        decisions += virtuals.reports
        virtuals.reports = []
        return decisions

    def next_timer(self) -> float | None:
        """Pods that wait have deadlines of their own."""
        kept = (v.keep_until for v in self._virtuals.by_id.values() if not v.waiting)
        return min((time for time in kept if time is not None), default=None)

    def _told(self, virtual: Virtual) -> list[Decision]:
        ask = self._virtuals.requirements.asks.get(virtual.requester.uid)
        if ask is None:
            return []
        annotations: dict[str, str | None] = {}
        if not (ask.id == virtual.id and self._virtuals.has_reported(ask)):
            labels = ask.requirement.labels if ask.requirement is not None else {}
            annotations[names.NEW_RESERVATION_REQUIREMENT] = write_requirement(
                {**labels, names.RESERVATION_ID: virtual.id}, virtual.resources
            )
        if ask.error and ask.error == ask.heeded:
            annotations[names.RESERVATION_PROVISION_ERROR] = None
        return [AnnotatePod(ask.pod, annotations)] if annotations else []

    def _look_after(self, virtual: Virtual, now: float) -> None:
        if virtual.waiting or self._cluster.reservations.allocated_pods(virtual.reservation):
            return
        if self._virtuals.taken_over(virtual):
            return
        gone = virtual.requester.uid not in self._virtuals.requirements.asks
        over = virtual.keep_until is None or virtual.keep_until <= now
        lost = virtual.reservation.node_gone or not self._cluster.nodes.alive[virtual.row]
        if gone or over or lost:
            self._virtuals.drop(virtual)

    def _follow(self, uid: str, now: float) -> None:
        """How long a reservation took to become available."""
        virtuals, reservation = self._virtuals, self._cluster.reservations.known.get(uid)
        if (
            reservation is not None
            and reservation.pod is not None
            and reservation.pod.phase is Phase.ASSUMED
        ):
            return
        seen = virtuals.adopting.pop(uid)
        if reservation is not None and reservation.placed:
            virtuals.figures.pendings.append(max(0.0, now - seen))

    def _reconsider(self, uid: str) -> None:
        """One that would not do may do by now, though nothing changed that would wake it."""
        reservation: ReservationInfo | None = self._cluster.reservations.known.get(uid)
        if reservation is None or reservation.pod is None or reservation.placed:
            del self._virtuals.refused[uid]
            return
        virtual = self._virtuals.of(reservation)
        if virtual is None or not self._virtuals.refusal(reservation, virtual):
            del self._virtuals.refused[uid]
            if self._cluster.watcher is not None:
                self._cluster.watcher.pod_pending(reservation.pod)
