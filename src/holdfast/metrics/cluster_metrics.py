"""Metrics of jobs, queues, starvation holds, limits and reservations (Koordinator's names where it has
them), and the counters and histograms that all metrics are made of.
"""

from bisect import bisect_left
from collections import Counter as Count
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.api.names import CPU
from holdfast.api.quantity import NANO, QuantityError, parse, whole
from holdfast.api.reservation import Reservation, ReservationPhase
from holdfast.scheduler.cluster.decisions import Decision, Emit, SetReservationStatus
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.jobs.job import Job
from holdfast.scheduler.reservations.reservation_status import EXPIRED, SUCCEEDED
from holdfast.scheduler.reservations.virtual_reservations import VirtualFigures
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster

Labels = tuple[str, ...]


def exponential(start: float, factor: float, count: int) -> list[float]:
    return [start * factor**i for i in range(count)]


class Histogram:
    def __init__(
        self, name: str, about: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._about = about
        self._labels = list(labels)
        self._bounds = list(buckets)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, labels: Labels = (), times: int = 1) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += times
        self._sums[labels] += value * times

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        names = [*(f"{bound:.12g}" for bound in self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        return family


class Counter:
    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._about = about
        self._labels = list(labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def family(self) -> CounterMetricFamily:
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


# Jobs, queues and starvation holds


_COUNTED_EVENTS = ("Starving", "Reserved", "Released", "Ready", "Overrun", "ScheduleTimeout")


class JobFigures:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._events = Counter(
            "holdfast_job_events_total",
            "Number of job events: starving, capacity held or released, ready, over its estimate, "
            "timed out.",
            ("event",),
        )
        for event in _COUNTED_EVENTS:
            self._events.add((event,), 0)
        self._waits = Histogram(
            "holdfast_job_wait_seconds",
            "Time from the creation of a job, or the loss of its placement, until it is ready.",
            exponential(1, 4, 12),
        )

    def round_done(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Emit) and decision.reason in _COUNTED_EVENTS:
                self._events.add((decision.reason,))
                about = decision.about
                job = self._cluster.jobs.get(about.namespace, about.name)
                if decision.reason == "Ready" and about.kind == "PodGroup" and job is not None:
                    self._waits.observe(job.waited)

    def collect(self) -> Iterator[Metric]:
        yield self._events.family()
        yield self._waits.family()
        yield self._jobs()
        yield from self._holds()
        yield from self._queues()
        backfilled = GaugeMetricFamily(
            "holdfast_backfilled_pods", "Number of pods backfilled onto nodes with starvation holds."
        )
        backfilled.add_metric([], self._scheduler.backfilled)
        yield backfilled

    def _jobs(self) -> Metric:
        family = GaugeMetricFamily("holdfast_jobs", "Number of jobs by state.", labels=["state"])
        counts = Count(_state(job) for job in self._cluster.jobs.known.values())
        for state in ("waiting", "ready", "done"):
            family.add_metric([state], counts[state])
        return family

    def _holds(self) -> Iterator[Metric]:
        holds, slots = self._cluster.reservations.starvation_holds, self._cluster.nodes.slots
        count = GaugeMetricFamily(
            "holdfast_holds", "Number of starvation holds by state.", labels=["state"]
        )
        states = Count("waiting" if hold.waiting else "free" for hold in holds)
        for state in ("waiting", "free"):
            count.add_metric([state], states[state])
        yield count
        held: Count[str] = Count()
        for reservation in holds:
            held.update(
                {
                    slots.name(s): holds.left(reservation, s)
                    for s in reservation.amounts
                    if slots.name(s)
                }
            )
        amounts = GaugeMetricFamily(
            "holdfast_held_capacity", "Capacity in starvation holds.", labels=["resource"]
        )
        for name, amount in sorted(held.items()):
            amounts.add_metric([name], amount / 1000 if name == CPU else amount)
        yield amounts

    def _queues(self) -> Iterator[Metric]:
        slots = self._cluster.nodes.slots
        has = GaugeMetricFamily(
            "holdfast_queue_allocated",
            "Resources allocated to pods of a queue.",
            labels=["queue", "resource"],
        )
        share = GaugeMetricFamily(
            "holdfast_queue_share", "Allocated share of what the queue deserves.", labels=["queue"]
        )
        queues = self._cluster.jobs.queues
        for record in queues:
            for slot, amount in sorted(record.allocated.items()):
                name = slots.name(slot)
                has.add_metric([record.name, name], amount / 1000 if name == CPU else amount)
            if len(record.share):
                share.add_metric([record.name], queues.share_of(record))
        yield has
        yield share


def _state(job: Job) -> str:
    if job.done and not job.members:
        return "done"
    return "ready" if job.is_ready else "waiting"


# Limits


def limit_ratios(cluster: Cluster) -> Metric:
    gauge = GaugeMetricFamily(
        "holdfast_node_limit_to_allocatable_ratio",
        "Limits of the pods and reservations on a node, as a ratio of its allocatable.",
        labels=["node", "resource"],
    )
    for node, ratios in cluster.limits.ratios().items():
        for resource, ratio in ratios.items():
            gauge.add_metric([node, resource], ratio)
    return gauge


class ProvisioningFigures:
    """Dynamic reservations, collected from the scheduler's counters at scrape time."""

    def __init__(self, figures: VirtualFigures) -> None:
        self._figures = figures
        self._latency = Histogram(
            "scheduler_reservation_creation_duration_seconds",
            "Time from requesting a reservation for a pod until it was created.",
            exponential(0.01, 2, 18),
        )
        self._pending = Histogram(
            "scheduler_reservation_pending_duration_seconds",
            "Time from the creation of a requested reservation until it was available.",
            exponential(0.01, 2, 18),
        )

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        for name, about, total in (
            (
                "scheduler_reservation_requests_total",
                "Number of reservations requested for pods.",
                figures.requests,
            ),
            (
                "scheduler_reservation_created_total",
                "Number of requested reservations that were created and accepted.",
                figures.created,
            ),
            (
                "scheduler_reservation_creation_failures_total",
                "Number of requested reservations that were not created, late, or rejected.",
                figures.failures,
            ),
        ):
            yield CounterMetricFamily(name, about, total)
        _take(figures.latencies, self._latency)
        _take(figures.pendings, self._pending)
        yield self._latency.family()
        yield self._pending.family()


def _take(observed: deque[float], histogram: Histogram) -> None:
    while observed:
        histogram.observe(observed.popleft())


_GI = 1024**3


class ReservationFigures:
    """Reservations: phase, amounts and utilization are read from their status at scrape time; events
    are counted as they are decided.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduled = Counter(
            "holdfast_reservations_scheduled_total", "Number of reservations that were scheduled."
        )
        self._finished = Counter(
            "holdfast_reservations_finished_total",
            "Number of reservations that ended: Succeeded (allocated once) or Expired (time, "
            "node deleted, or released because unused).",
            ("reason",),
        )
        self._allocations = Counter(
            "holdfast_reservation_draws_total", "Number of pods bound through a reservation."
        )
        for reason in (SUCCEEDED, EXPIRED):
            self._finished.add((reason,), 0)

    def round_done(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, SetReservationStatus):
                if decision.binds:
                    self._scheduled.add()
            elif isinstance(decision, Emit) and _is_end(decision):
                self._finished.add((decision.reason,))

    def pod_bound(self, pod: PodRecord) -> None:
        if pod.reservation_uid:
            self._allocations.add()

    def collect(self) -> Iterator[Metric]:
        for figure in (self._scheduled, self._finished, self._allocations):
            yield figure.family()
        reservations = self._cluster.reservations.known.values()
        known = [reservation.object for reservation in reservations if not reservation.virtual]
        yield _phases(known)
        yield _resources(known)
        total = GaugeMetricFamily(
            "holdfast_reservations", "Number of reservations by phase.", labels=["phase"]
        )
        counts = Count(_phase(each) for each in known)
        for phase in ReservationPhase:
            total.add_metric([phase], counts[phase])
        yield total


def _is_end(event: Emit) -> bool:
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
        "Resources of each reservation: reserved (allocatable), used by its owners (allocated), "
        "and the ratio of the two (utilization).",
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
    """The unit of the resource in metrics, and the amount."""
    try:
        if resource == "cpu":
            return "core", parse(quantity) / NANO
        if resource == "memory":
            return "Gi", whole(quantity) / _GI
        return "raw", float(whole(quantity))
    except QuantityError:
        return "raw", 0.0
