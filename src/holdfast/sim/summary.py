"""The summary of a run: counts, waiting times, reservations, starvation, and why pods are pending.

Times are seconds of virtual time. docs/simulate.md defines every figure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from holdfast.api.decode import object_name
from holdfast.api.pod import Pod
from holdfast.local.component import ENDED
from holdfast.local.store.objects import Raw
from holdfast.local.timeline import BOUND, DELETED, EVICTED, PREEMPTED, TimelineEntry
from holdfast.machinery.strategies.pods import GATED_REASON
from holdfast.scheduler.actions.reserve import RESERVED, STARVING
from holdfast.scheduler.framework.diagnosis import reasons_in
from holdfast.scheduler.framework.gang_permit import READY
from holdfast.scheduler.jobs.job import named_in
from holdfast.sim.forecast.run_times import time_or_none
from holdfast.sim.node_usage import NodeUsage
from holdfast.sim.reservation_lives import reservation_figures

_PHASES = ("Pending", "Running", "Succeeded", "Failed")
_REFUSED = ("Unschedulable", "SchedulerError")
"""The reasons of pods that the scheduler has refused; the second one is that of invalid pods."""


class RunFigures:
    """Figures that the final objects do not show. `begin` is the start of the run, in seconds since the
    epoch."""

    def __init__(self, begin: float) -> None:
        self.pods = 0
        self._waiting: dict[str, float] = {}
        self.waits: list[float] = []
        self.jobs: dict[str, float] = {}
        """When the first pod of each job was created."""
        self.created_before: dict[str, float] = {}
        """When pods that were pending at the start already were created, by their names in a timeline:
        less than 0."""
        self._begin = begin

    def pod_created(self, pod: Pod, t: float) -> None:
        """A pod that is there at the start may have been created, and waited, before it."""
        self.pods += 1
        if not pod.spec.node_name and pod.status.phase not in ENDED:
            created = time_or_none(pod.metadata.creation_timestamp) if t == 0 else None
            since = t if created is None else min(t, round(created - self._begin, 6))
            if since < t:
                self.created_before[object_name(pod)] = since
            self._waiting[pod.metadata.uid] = since
            job = named_in(pod.metadata)
            if job is not None:
                name = f"PodGroup/{job.namespace}/{job.name}"
                self.jobs[name] = min(self.jobs.get(name, since), since)

    def pod_bound(self, uid: str, t: float) -> None:
        since = self._waiting.pop(uid, None)
        if since is not None:
            self.waits.append(t - since)


class SummarizedObjects(Protocol):
    """The objects at the end of a run, like those of an ObjectWriter."""

    def all(self) -> Iterable[Raw]: ...

    def scan(self, group: str, kind: str, /) -> Iterable[Raw]: ...


def summary(
    objects: SummarizedObjects,
    node_usage: NodeUsage,
    figures: RunFigures,
    timeline: Sequence[TimelineEntry],
    end: float,
    detects_starvation: bool,
) -> dict[str, Any]:
    kinds = Counter(raw["kind"] for raw in objects.all())
    pods = list(objects.scan("", "Pod"))
    phases = Counter(pod["status"].get("phase") or "Pending" for pod in pods)
    scheduled = [_pod_scheduled(pod) for pod in pods if not pod["spec"].get("nodeName")]
    unschedulable = [each for each in scheduled if each.get("reason") in _REFUSED]
    node_usage.reservations.close(end)
    return {
        "objects": dict(kinds),
        "pods": {
            "created": figures.pods,
            "bound": len(figures.waits),
            "pending": len(scheduled),
            "unschedulable": len(unschedulable),
            "gated": sum(each.get("reason") == GATED_REASON for each in scheduled),
            "phases": {phase: phases[phase] for phase in _PHASES if phases[phase]},
        },
        "wait": wait_figures(figures.waits),
        "jobs": _job_figures(figures.jobs, timeline),
        "nodes": {
            "total": kinds["Node"],
            "used": node_usage.nodes_in_use,
            "peak": node_usage.peak_nodes,
        },
        "utilisation": node_usage.utilisation(end),
        "reservations": reservation_figures(node_usage.reservations.lives, node_usage.capacity(end)),
        "starvation": {
            "detected": detects_starvation,
            **_starvation_figures(starvation_episodes(timeline), end),
        },
        "evictions": _eviction_figures(timeline),
        "unschedulable": _reasons(unschedulable),
    }


# Waiting times


def wait_figures(waits: Sequence[float]) -> dict[str, float | None]:
    """None if there are no waits, which are not short waits."""
    ordered = sorted(waits)
    return {
        "mean": round(sum(waits) / len(waits), 6) if waits else None,
        "max": percentile(ordered, 100),
        "median": percentile(ordered, 50),
        "p95": percentile(ordered, 95),
        "p99": percentile(ordered, 99),
    }


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The nearest rank: the smallest value that at least this percentage does not exceed."""
    return round(ordered[ceil(len(ordered) * percent / 100) - 1], 6) if ordered else None


def _job_figures(created: dict[str, float], timeline: Iterable[TimelineEntry]) -> dict[str, Any]:
    ready: dict[str, float] = {}
    if created:
        for entry in timeline:
            if entry.event == READY and entry.object in created:
                ready.setdefault(entry.object, entry.t)
    waits = [t - created[name] for name, t in ready.items()]
    return {"created": len(created), "ready": len(ready), "wait": wait_figures(waits)}


# Starvation, evictions


@dataclass(slots=True)
class StarvationEpisode:
    """A job from when it is starving until it starts."""

    job: str
    starving: float
    reserved: float | None = None
    """When it got holds, if it did."""
    ended: float | None = None
    """When it started or was deleted; None if it is still starving at the end."""
    started: bool = False

    def seconds(self, end: float) -> float:
        return (end if self.ended is None else self.ended) - self.starving


def starvation_episodes(timeline: Iterable[TimelineEntry]) -> list[StarvationEpisode]:
    found: list[StarvationEpisode] = []
    current: dict[str, StarvationEpisode] = {}
    for entry in timeline:
        if entry.event == STARVING:
            if entry.object not in current:
                current[entry.object] = episode = StarvationEpisode(entry.object, entry.t)
                found.append(episode)
        elif current and entry.event in (RESERVED, READY, BOUND, DELETED):
            known = current.get(entry.object)
            if known is None:
                continue
            if entry.event == RESERVED:
                known.reserved = entry.t if known.reserved is None else known.reserved
            else:
                known.ended, known.started = entry.t, entry.event != DELETED
                del current[entry.object]
    return found


def _starvation_figures(episodes: Sequence[StarvationEpisode], end: float) -> dict[str, Any]:
    lengths = [each.seconds(end) for each in episodes]
    return {
        "jobs": len({each.job for each in episodes}),
        "reserved": sum(each.reserved is not None for each in episodes),
        "started": sum(each.started for each in episodes),
        "starving": sum(each.ended is None for each in episodes),
        "mean": round(sum(lengths) / len(lengths), 6) if lengths else 0.0,
        "longest": round(max(lengths, default=0.0), 6),
    }


def _eviction_figures(timeline: Iterable[TimelineEntry]) -> dict[str, int]:
    events = Counter(
        (entry.object.partition("/")[0], entry.event)
        for entry in timeline
        if entry.event in (PREEMPTED, EVICTED)
    )
    return {
        "preempted": events["Pod", PREEMPTED],
        "evicted": events["Pod", EVICTED],
        "reservations": events["Reservation", PREEMPTED],
    }


# Why pods are pending


def _pod_scheduled(pod: Raw) -> Raw:
    for condition in pod["status"].get("conditions") or []:
        if condition.get("type") == "PodScheduled" and isinstance(condition, dict):
            return condition
    return {}


def _reasons(conditions: list[Raw]) -> dict[str, int]:
    """How many pods each reason keeps pending, most frequent first."""
    counts: Counter[str] = Counter()
    for condition in conditions:
        counts.update(set(reasons_in(str(condition.get("message") or ""))))
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
