"""Figures about reservations: Koordinator's, and ours.

What a reservation is (its phase, what it holds and how much of that is in use) is read from its status
when somebody asks; what happened to reservations is counted as it is decided.
"""

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.api.quantity import NANO, QuantityError, parse, whole
from holdfast.api.reservation import Reservation, ReservationPhase
from holdfast.backends.metrics.figures import Counter
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import Decision, Emit, SetReservationStatus
from holdfast.core.pods import PodRecord
from holdfast.core.promises.status import EXPIRED, SUCCEEDED

_GI = 1024**3


class ReservationFigures:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduled = Counter(
            "holdfast_reservations_scheduled_total", "Reservations that were given a node."
        )
        self._finished = Counter(
            "holdfast_reservations_finished_total",
            "Reservations that ended, by how: Succeeded (used up) or Expired (time or node gone).",
            ("reason",),
        )
        self._draws = Counter(
            "holdfast_reservation_draws_total", "Pods bound through a reservation of theirs."
        )
        for reason in (SUCCEEDED, EXPIRED):
            self._finished.add((reason,), 0)

    def round_done(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, SetReservationStatus):
                if decision.binds:
                    self._scheduled.add()
            elif isinstance(decision, Emit) and _tells_end(decision):
                self._finished.add((decision.reason,))

    def pod_bound(self, pod: PodRecord) -> None:
        if pod.draws_on:
            self._draws.add()

    def collect(self) -> Iterator[Metric]:
        for figure in (self._scheduled, self._finished, self._draws):
            yield figure.family()
        promises = self._cluster.promises.known.values()
        known = [promise.object for promise in promises if not promise.virtual]
        yield _phases(known)
        yield _resources(known)
        total = GaugeMetricFamily("holdfast_reservations", "Reservations by phase.", labels=["phase"])
        counts = Count(_phase(each) for each in known)
        for phase in ReservationPhase:
            total.add_metric([phase], counts[phase])
        yield total


def _tells_end(event: Emit) -> bool:
    return event.about.kind == "Reservation" and event.reason in (SUCCEEDED, EXPIRED)


def _phase(reservation: Reservation) -> str:
    return reservation.status.phase or ReservationPhase.PENDING


def _phases(known: list[Reservation]) -> Metric:
    gauge = GaugeMetricFamily(
        "scheduler_reservation_status_phase",
        "The current phase of each reservation: 1 for the one it is in, 0 for the others.",
        labels=["name", "phase"],
    )
    for reservation in known:
        current = _phase(reservation)
        for phase in ReservationPhase:
            gauge.add_metric([reservation.metadata.name, phase], float(phase == current))
    return gauge


def _resources(known: list[Reservation]) -> Metric:
    gauge = GaugeMetricFamily(
        "scheduler_reservation_resource",
        "What each reservation has (allocatable), how much of it its owners took (allocated), and the "
        "share of the two (utilization).",
        labels=["type", "name", "resource", "unit"],
    )
    for reservation in known:
        name, status = reservation.metadata.name, reservation.status
        for resource, quantity in status.allocatable.items():
            unit, has = _measured(resource, quantity)
            _, taken = _measured(resource, status.allocated.get(resource, 0))
            gauge.add_metric(["allocatable", name, resource, unit], has)
            gauge.add_metric(["allocated", name, resource, unit], taken)
            if has > 0:
                gauge.add_metric(["utilization", name, resource, "ratio"], taken / has)
    return gauge


def _measured(resource: str, quantity: str | int | float) -> tuple[str, float]:
    """The unit the resource is told in, and how much it is."""
    try:
        if resource == "cpu":
            return "core", parse(quantity) / NANO
        if resource == "memory":
            return "Gi", whole(quantity) / _GI
        return "raw", float(whole(quantity))
    except QuantityError:
        return "raw", 0.0
