"""kube-scheduler's metrics: attempts, latencies, queue sizes, plugin durations, cache sizes."""

import time
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from holdfast import __version__
from holdfast.metrics.calendar_metrics import CalendarFigures
from holdfast.metrics.claim_metrics import ClaimFigures
from holdfast.metrics.cluster_metrics import (
    Counter,
    Histogram,
    JobFigures,
    ProvisioningFigures,
    ReservationFigures,
    exponential,
    limit_ratios,
)
from holdfast.scheduler.cluster.decisions import Bind, Decision, Preempt
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.framework.config.plugin_sets import PREEMPTION
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.scheduler import Scheduler

_POINTS = {
    "filter": "PreFilter",
    "score": "PreScore",
    "post_filter": "PostFilter",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "pre_bind": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
}
"""The plugin's method and the name of its extension point."""

Observe = Callable[[str, str, float], None]
"""Called with the plugin, the extension point and the seconds."""


_MOST_ATTEMPTS = 15
"""More attempts than this are one label value, as in kube-scheduler."""


class SchedulingMetrics:
    """Observes rounds and binds, and reads the scheduler's state at scrape time. `more` collectors
    are exposed with the rest.
    """

    def __init__(self, scheduler: Scheduler, more: Iterable[Any] = ()) -> None:
        self._scheduler = scheduler
        self.attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            exponential(0.001, 2, 15),
            ("result", "profile"),
        )
        self.algorithm_seconds = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            exponential(0.001, 2, 15),
        )
        self.sli_seconds = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from when a pod is first seen pending until it is bound, in seconds.",
            exponential(0.01, 2, 20),
            ("attempts",),
        )
        self.attempts_per_pod = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            exponential(1, 2, 5),
        )
        self.victims = Histogram(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            exponential(1, 2, 7),
        )
        self.point_seconds = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            exponential(0.0001, 2, 12),
            ("extension_point", "status", "profile"),
        )
        self.plugin_seconds = Histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point.",
            exponential(0.00001, 1.5, 20),
            ("plugin", "extension_point", "status"),
        )
        self.plugin_calls = Counter(
            "scheduler_plugin_evaluation_total",
            "Number of calls of each plugin, by extension point.",
            ("plugin", "extension_point", "profile"),
        )
        self.round_seconds = Histogram(
            "holdfast_round_duration_seconds",
            "Duration of a scheduling round.",
            exponential(0.0001, 2, 16),
        )
        self._scheduled: Count[str] = Count()
        self._failed_before: dict[tuple[str, str], int] = {}
        self._spent: dict[tuple[str, str], float] = {}
        self._preemptions = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.registry.register(ProvisioningFigures(scheduler.cluster.virtuals.figures))
        self._jobs = JobFigures(scheduler)
        self.registry.register(self._jobs)
        self._reservations = ReservationFigures(scheduler.cluster)
        self.registry.register(self._reservations)
        self._calendar = CalendarFigures(scheduler.cluster)
        self.registry.register(self._calendar)
        self.registry.register(ClaimFigures(scheduler.cluster))
        ProcessCollector(registry=self.registry)
        for collector in more:
            self.registry.register(collector)
        for profile in scheduler.profiles:
            time_plugins(profile, self._observer(profile))

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    # What happens

    def round_done(self, seconds: float, decisions: list[Decision]) -> None:
        """A round took this long and decided this."""
        self.round_seconds.observe(seconds)
        self._reservations.round_done(decisions)
        self._calendar.round_done()
        self._jobs.round_done(decisions)
        results = self._results(decisions)
        attempts = sum(results.values())
        if not attempts:
            return
        each = seconds / attempts
        self.algorithm_seconds.observe(each, times=attempts)
        for (profile, result), times in results.items():
            self.attempt_seconds.observe(each, (result, profile), times)
        for (point, profile), spent in self._spent.items():
            self.point_seconds.observe(spent / attempts, (point, "Success", profile), attempts)
        self._spent.clear()

    def pod_bound(self, uid: str, now: float) -> None:
        """The server has taken a bind."""
        pod = self._scheduler.cluster.pods.get(uid)
        if pod is None:
            return
        attempts = pod.attempts + pod.errors + 1
        label = str(attempts) if attempts <= _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
        self.sli_seconds.observe(max(0.0, now - pod.first_seen), (label,))
        self.attempts_per_pod.observe(attempts)
        self._reservations.pod_bound(pod)

    def _results(self, decisions: list[Decision]) -> Count[tuple[str, str]]:
        """Attempts of one round by profile and result."""
        results: Count[tuple[str, str]] = Count()
        pods = self._scheduler.cluster.pods
        victims: Count[str] = Count()
        for decision in decisions:
            if isinstance(decision, Bind):
                pod = pods.get(decision.pod.uid)
                name = pod.scheduler if pod is not None else ""
                results[name, "scheduled"] += 1
                self._scheduled[name] += 1
            elif isinstance(decision, Preempt):
                victims[decision.preemptor.uid] += 1
        for rejected in self._scheduler.preemption.rejected_victims:
            victims[rejected.preemptor.uid] += 1
        for count in victims.values():
            self.victims.observe(count)
        for key, total in self._scheduler.queue.failures.items():
            new = total - self._failed_before.get(key, 0)
            if new:
                results[key] += new
                self._failed_before[key] = total
        return results

    def _observer(self, profile: Profile) -> Any:
        name = profile.scheduler_name

        def observe(plugin: str, point: str, seconds: float) -> None:
            self.plugin_seconds.observe(seconds, (plugin, point, "Success"))
            self.plugin_calls.add((plugin, point, name))
            key = (point, name)
            self._spent[key] = self._spent.get(key, 0.0) + seconds
            if point == "PostFilter" and plugin == PREEMPTION:
                self._preemptions += 1

        return observe

    # What is

    def collect(self) -> Iterator[Metric]:
        for figure in (
            self.attempt_seconds,
            self.algorithm_seconds,
            self.sli_seconds,
            self.attempts_per_pod,
            self.victims,
            self.point_seconds,
            self.plugin_seconds,
            self.plugin_calls,
            self.round_seconds,
        ):
            yield figure.family()
        yield self._attempts()
        yield self._preemption_attempts()
        yield from self._queues()
        yield self._unschedulable()
        yield self._cache()
        yield limit_ratios(self._scheduler.cluster)
        yield self._not_converging()
        yield self._plugin_errors()
        yield InfoMetricFamily("holdfast_build", "The running version.", {"version": __version__})

    def _not_converging(self) -> Metric:
        counter = Counter(
            "holdfast_not_converging_total",
            "Number of times an object was put in back-off because the same decision was repeated "
            "for it.",
            ("kind",),
        )
        for kind in ("Pod", "Reservation"):
            counter.add((kind,), 0)
        for kind, times in self._scheduler.guard.found.items():
            counter.add((kind,), times)
        return counter.family()

    def _plugin_errors(self) -> Metric:
        counter = Counter(
            "holdfast_plugin_errors_total",
            "Number of times a plugin raised an exception or returned an invalid result.",
            ("plugin", "extension_point"),
        )
        for labels, times in self._scheduler.cluster.plugin_errors.counts.items():
            counter.add(labels, times)
        return counter.family()

    def _attempts(self) -> Metric:
        counter = Counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not "
            "be scheduled, while 'error' means an internal scheduler problem.",
            ("result", "profile"),
        )
        for profile, times in self._scheduled.items():
            counter.add(("scheduled", profile), times)
        for (profile, result), times in self._scheduler.queue.failures.items():
            counter.add((result, profile), times)
        return counter.family()

    def _preemption_attempts(self) -> Metric:
        return CounterMetricFamily(
            "scheduler_preemption_attempts_total",
            "Total preemption attempts in the cluster till now",
            self._preemptions,
        )

    def _queues(self) -> Iterator[Metric]:
        queue = self._scheduler.queue
        pending = GaugeMetricFamily(
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type: active, backoff, unschedulable, gated.",
            labels=["queue"],
        )
        for name, count in queue.counts().items():
            pending.add_metric([name], count)
        yield pending
        incoming = Counter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ("queue", "event"),
        )
        for name, count in queue.entered.items():
            incoming.add((name, _INCOMING.get(name, "Change")), count)
        yield incoming.family()

    def _unschedulable(self) -> Metric:
        gauge = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name. A pod counts for every "
            "plugin that rejected it.",
            labels=["plugin", "profile"],
        )
        counts: Count[tuple[str, str]] = Count()
        for group in self._scheduler.queue.groups():
            for pod in group.pods.values():
                counts.update((plugin, pod.scheduler) for plugin in pod.rejected_by)
        for labels, count in sorted(counts.items()):
            gauge.add_metric(labels, count)
        return gauge

    def _cache(self) -> Metric:
        cluster = self._scheduler.cluster
        gauge = GaugeMetricFamily(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            labels=["type"],
        )
        phases = Count(pod.phase for pod in cluster.pods.values())
        gauge.add_metric(["nodes"], cluster.nodes.count)
        gauge.add_metric(["pods"], phases[Phase.ASSIGNED] + phases[Phase.ASSUMED])
        gauge.add_metric(["assumed_pods"], phases[Phase.ASSUMED])
        return gauge


def time_plugins(profile: Profile, observe: Observe) -> None:
    """Wraps the plugins of a profile so that `observe` gets the duration of every call.

    Holdfast calls a plugin for a class of pods, not for each pod: what kube-scheduler reports under
    Filter and Score for every pod and node is here the computation of a class's column, under PreFilter
    and PreScore.
    """
    for plugin in profile.plugins.values():
        for method, point in _POINTS.items():
            call = getattr(plugin, method, None)
            # A plugin that does not serve the point has what it inherits in its place.
            if call is not None and getattr(type(plugin), method, None) is not getattr(
                Plugin, method, None
            ):
                setattr(plugin, method, _timed(call, plugin.name, point, observe))


def _timed(call: Callable[..., Any], plugin: str, point: str, observe: Observe) -> Callable[..., Any]:
    clock = time.perf_counter

    def timed(*args: Any) -> Any:
        start = clock()
        try:
            return call(*args)
        finally:
            observe(plugin, point, clock() - start)

    return timed


_INCOMING = {"backoff": "ScheduleAttemptFailure", "unschedulable": "ScheduleAttemptFailure"}
