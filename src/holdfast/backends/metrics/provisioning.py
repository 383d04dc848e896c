"""Figures about reservations made on demand."""

from collections import deque
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.backends.metrics.figures import Histogram, exponential
from holdfast.core.promises.virtual import Figures


class ProvisioningFigures:
    """What the scheduler counted, when somebody asks."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._latency = Histogram(
            "scheduler_reservation_creation_duration_seconds",
            "From asking for a reservation on behalf of a pod until there was one.",
            exponential(0.01, 2, 18),
        )
        self._pending = Histogram(
            "scheduler_reservation_pending_duration_seconds",
            "From a reservation made on demand being there until it was available.",
            exponential(0.01, 2, 18),
        )

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        for name, about, total in (
            (
                "scheduler_reservation_requests_total",
                "Number of pods on whose behalf a new reservation was asked for.",
                figures.requests,
            ),
            (
                "scheduler_reservation_created_total",
                "Number of reservations that were created and taken over.",
                figures.created,
            ),
            (
                "scheduler_reservation_creation_failures_total",
                "Number of times a reservation was not created, not in time, or would not do.",
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
