"""Dynamic reservations: the provisioner that creates them, and the controller of the scheduler's side.

`Provisioner` creates the reservations that pods request, in the scheduler or as a process of its own:

    requirement seen ─► creating ─► created
                           │ the write is refused
                           ▼
                        error in the pod's annotation ─► removed by the scheduler ─► creating …

An id has one reservation: the provisioner looks for it before it creates one, and its name derives from
the id. `DynamicReservations` writes requirements to pods and drops virtual reservations that are not
needed.
"""

from collections.abc import Callable, Iterable

from holdfast.api import names
from holdfast.api.names import RESERVATION_PROVISION_ERROR
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.machinery.dynamic_reservations import reservation_for, reservation_name, write_requirement
from holdfast.scheduler.cluster.decisions import AnnotatePod, CreateReservation, Decision
from holdfast.scheduler.cluster.events import Added, CreateRefused, Deleted, Event, Malformed, Updated
from holdfast.scheduler.cluster.records import Phase, ReservationInfo
from holdfast.scheduler.reservations.provisioning_requests import Requirements, ReservationRequest
from holdfast.scheduler.reservations.virtual_reservations import Settings, Virtual
from holdfast.scheduler.state.cluster import Cluster


class Provisioner:
    """Creates the reservations that pods request."""

    def __init__(
        self,
        requirements: Requirements,
        is_current: Callable[[ReservationRequest], bool] = lambda request: True,
    ) -> None:
        """`is_current` returns whether a requirement is still the scheduler's; a separate process
        cannot know, and assumes so."""
        self._requirements = requirements
        self._is_current = is_current
        requirements.serve()
        self.created = 0
        """The number of reservations it decided to create."""
        self.failures = 0
        """The number that could not be created."""
        self._reported: dict[str, str] = {}
        """Errors written to pods, by id, until the watch delivers them."""

    @classmethod
    def of(cls, cluster: Cluster) -> "Provisioner":
        """A provisioner inside the scheduler."""
        return cls(cluster.virtuals.requirements, cluster.virtuals.has_reported)

    def feed(self, event: Event) -> None:
        """Handles an event, in a provisioner that is a process of its own."""
        requirements = self._requirements
        if isinstance(event, CreateRefused):
            requirements.not_created(event.decision.reservation.metadata.name, event.message)
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
        dirty = requirements.take_dirty()
        for id in dirty:
            decisions += self._reconcile(id, requirements.by_id.get(id, {}).values())
        return decisions

    def next_timer(self) -> float | None:
        return None

    def _reconcile(self, id: str, requests: Iterable[ReservationRequest]) -> Iterable[Decision]:
        """Creates the reservation of an id, or writes why it could not be created to the pod."""
        requirements = self._requirements
        request = min(requests, key=lambda each: each.pod.uid, default=None)
        if request is None or request.requirement is None or id in requirements.made:
            self._forget(id)
            return
        reservation = reservation_for(request.template, request.requirement)
        name = reservation.metadata.name
        refusal = requirements.refusals.pop(name, None)
        if refusal is not None:
            del requirements.making[name]
            self.failures += 1
            self._reported[id] = refusal
            yield AnnotatePod(request.pod, {RESERVATION_PROVISION_ERROR: refusal})
            return
        if request.error:
            self._reported.pop(id, None)
        elif not self._is_current(request):
            return
        elif name not in requirements.making and id not in self._reported:
            requirements.making[name] = id
            self.created += 1
            yield CreateReservation(reservation)

    def _forget(self, id: str) -> None:
        name = reservation_name(id)
        self._reported.pop(id, None)
        self._requirements.making.pop(name, None)
        self._requirements.refusals.pop(name, None)


class DynamicReservations:
    """The scheduler's side: writes requirements to pods, and drops virtual reservations that failed."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._virtuals = cluster.virtuals
        self._virtuals.enable(settings)

    def run(self, now: float) -> list[Decision]:
        virtuals = self._virtuals
        decisions: list[Decision] = []
        virtuals.ask_again()
        for id in list(virtuals.unreported):
            decisions += self._report(virtuals.by_id[id])
        virtuals.unreported.clear()
        for virtual in list(virtuals.by_id.values()):
            self._reconcile(virtual, now)
        for uid in list(virtuals.adopting):
            self._follow(uid, now)
        for uid in list(virtuals.refused):
            self._reconsider(uid)
        decisions += virtuals.take_reports()
        return decisions

    def next_timer(self) -> float | None:
        """When the next retention ends. The deadlines of waiting pods are timers of Permit."""
        kept = (v.keep_until for v in self._virtuals.by_id.values() if not v.waiting)
        return min((time for time in kept if time is not None), default=None)

    def _report(self, virtual: Virtual) -> list[Decision]:
        """Writes the requirement to the requester's annotation, and removes an error that was
        processed."""
        request = self._virtuals.requirements.requests.get(virtual.requester.uid)
        if request is None:
            return []
        annotations: dict[str, str | None] = {}
        if not (request.id == virtual.id and self._virtuals.has_reported(request)):
            labels = request.requirement.labels if request.requirement is not None else {}
            annotations[names.NEW_RESERVATION_REQUIREMENT] = write_requirement(
                {**labels, names.RESERVATION_ID: virtual.id}, virtual.resources
            )
        if request.error and request.error == request.processed_error:
            annotations[names.RESERVATION_PROVISION_ERROR] = None
        return [AnnotatePod(request.pod, annotations)] if annotations else []

    def _reconcile(self, virtual: Virtual, now: float) -> None:
        """Drops a virtual reservation that no pod waits for, once it is not to be kept."""
        if virtual.waiting or self._cluster.reservations.allocated_pods(virtual.reservation):
            return
        if self._virtuals.taken_over(virtual):
            return
        gone = virtual.requester.uid not in self._virtuals.requirements.requests
        over = virtual.keep_until is None or virtual.keep_until <= now
        lost = virtual.reservation.node_gone or not self._cluster.nodes.alive[virtual.row]
        if gone or over or lost:
            self._virtuals.drop(virtual)

    def _follow(self, uid: str, now: float) -> None:
        """Observes how long a reservation took to become Available."""
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
        """Requeues a reservation that was rejected, once the reason is gone: no event would wake it
        up."""
        reservation: ReservationInfo | None = self._cluster.reservations.known.get(uid)
        if reservation is None or reservation.pod is None or reservation.placed:
            del self._virtuals.refused[uid]
            return
        virtual = self._virtuals.of(reservation)
        if virtual is None or not self._virtuals.refusal(reservation, virtual):
            del self._virtuals.refused[uid]
            if self._cluster.listener is not None:
                self._cluster.listener.pod_pending(reservation.pod)
