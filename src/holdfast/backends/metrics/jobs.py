"""Figures about jobs, queues, and what is held for the starving."""

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.actions.scheduler import Scheduler
from holdfast.api.names import CPU
from holdfast.backends.metrics.figures import Counter, Histogram, exponential
from holdfast.core.decisions import Decision, Emit
from holdfast.core.jobs.job import Job

_TOLD = ("Starving", "Reserved", "Released", "Ready", "Overrun", "ScheduleTimeout")


class JobFigures:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._told = Counter(
            "holdfast_job_events_total",
            "What happened to jobs: starving, room held or released, ready, running too long, late.",
            ("event",),
        )
        for event in _TOLD:
            self._told.add((event,), 0)
        self._waits = Histogram(
            "holdfast_job_wait_seconds",
            "From when a job of several pods is there, or lost its place, to when it is ready.",
            exponential(1, 4, 12),
        )

    def round_done(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Emit) and decision.reason in _TOLD:
                self._told.add((decision.reason,))
                about = decision.about
                job = self._cluster.jobs.get(about.namespace, about.name)
                if decision.reason == "Ready" and about.kind == "PodGroup" and job is not None:
                    self._waits.observe(job.waited)

    def collect(self) -> Iterator[Metric]:
        yield self._told.family()
        yield self._waits.family()
        yield self._jobs()
        yield from self._holds()
        yield from self._queues()
        backfilled = GaugeMetricFamily(
            "holdfast_backfilled_pods", "Pods let into held room since the start."
        )
        backfilled.add_metric([], self._scheduler.backfilled)
        yield backfilled

    def _jobs(self) -> Metric:
        family = GaugeMetricFamily("holdfast_jobs", "Jobs of several pods by state.", labels=["state"])
        counts = Count(_state(job) for job in self._cluster.jobs.known.values())
        for state in ("waiting", "ready", "done"):
            family.add_metric([state], counts[state])
        return family

    def _holds(self) -> Iterator[Metric]:
        holds, slots = self._cluster.jobs.holds, self._cluster.nodes.slots
        count = GaugeMetricFamily("holdfast_holds", "What is held for starving jobs.", labels=["state"])
        states = Count("waiting" if hold.waiting else "free" for hold in holds)
        for state in ("waiting", "free"):
            count.add_metric([state], states[state])
        yield count
        held: Count[str] = Count()
        for promise in holds:
            held.update(
                {slots.name(s): holds.left(promise, s) for s in promise.amounts if slots.name(s)}
            )
        amounts = GaugeMetricFamily(
            "holdfast_held_capacity", "How much is held for starving jobs.", labels=["resource"]
        )
        for name, amount in sorted(held.items()):
            amounts.add_metric([name], amount / 1000 if name == CPU else amount)
        yield amounts

    def _queues(self) -> Iterator[Metric]:
        slots = self._cluster.nodes.slots
        has = GaugeMetricFamily(
            "holdfast_queue_allocated", "What pods of a queue have.", labels=["queue", "resource"]
        )
        share = GaugeMetricFamily(
            "holdfast_queue_share", "How much of what it deserves a queue has.", labels=["queue"]
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
