"""Metrics of API requests, reflectors and leader election, under client-go's names where it has
them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.kube.writer.write_queue import Lane
from holdfast.metrics.figures import Counter, Histogram

if TYPE_CHECKING:
    from holdfast.kube.runner import Runner

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Requests:
    """Request counts and latencies; a client calls it as its observer."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._total = Counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            _SECONDS,
            ("verb", "host"),
        )

    def __call__(self, method: str, code: str, seconds: float) -> None:
        self._total.add((code, method, self._host))
        self._seconds.observe(seconds, (method, self._host))

    def collect(self) -> Iterator[Metric]:
        yield self._total.family()
        yield self._seconds.family()


class RunnerFigures:
    """Collects the metrics of a runner's parts at scrape time."""

    def __init__(
        self,
        runner: "Callable[[], Runner | None]",
        lease_name: str,
        leaderships_lost: Callable[[], int] = int,
    ) -> None:
        self._runner = runner
        self._lease_name = lease_name
        self._leaderships_lost = leaderships_lost

    def collect(self) -> Iterator[Metric]:
        runner = self._runner()
        if runner is None:
            return
        kinds = [reflector.watched.name for reflector in runner.reflectors]
        yield _gauge(
            "holdfast_reflector_objects",
            "Objects of each kind in the cache.",
            zip(kinds, map(len, runner.reflectors), strict=True),
        )
        yield _gauge(
            "holdfast_reflector_in_step",
            "Whether the cache of a kind is in sync with the server.",
            ((kind, not r.problem) for kind, r in zip(kinds, runner.reflectors, strict=True)),
        )
        lists = Counter("holdfast_reflector_lists_total", "How often a kind was listed.", ("resource",))
        for kind, reflector in zip(kinds, runner.reflectors, strict=True):
            lists.add((kind,), reflector.lists)
        yield lists.family()
        waiting = GaugeMetricFamily(
            "holdfast_writes_waiting", "Writes waiting in the queue.", labels=["lane"]
        )
        for lane in Lane:
            waiting.add_metric([lane.name.lower()], runner.writer.queue.length(lane))
        yield waiting
        lost = Counter("holdfast_events_lost_total", "Events dropped because too many were waiting.")
        lost.add(amount=runner.writer.events_lost)
        yield lost.family()
        master = GaugeMetricFamily(
            "leader_election_master_status",
            "Whether this process leads: 1 if it does, 0 if not.",
            labels=["name"],
        )
        master.add_metric([self._lease_name], float(runner.fence.is_open))
        yield master
        leaderships = Counter(
            "holdfast_leadership_lost_total", "How often a lease was not renewed in time."
        )
        leaderships.add(amount=self._leaderships_lost())
        yield leaderships.family()


def _gauge(
    name: str, about: str, values: "Sequence[tuple[str, float]] | Iterator[tuple[str, float]]"
) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["resource"])
    for label, value in values:
        family.add_metric([label], float(value))
    return family
