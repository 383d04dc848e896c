"""Run-time estimates of pods, and where they come from. Nothing is made up: a pod of which nothing is
known has no estimate.

In order of precedence:

    sim.holdfast.io/runs-for      a simulated pod: exact
    holdfast.io/run-estimate      what its author states
    runningEstimate               of its Volcano job
    history                       how long earlier pods of the same owner ran: a distribution
    activeDeadlineSeconds         of the pod or its Job: an upper bound, of all others too; alone it
                                  gives no earliest end

An estimate is of the whole run. A pod that has run longer than its statement falls back to the history,
and of a history only the runs that took longer than the pod has run count.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

from holdfast.api import names
from holdfast.api.errors import TimeError
from holdfast.api.times import parse_time
from holdfast.scheduler.jobs.estimates import ENDLESS_OWNERS, duration_or_none, estimate_problem

Raw = dict[str, Any]

STATED_BY_SIMULATION = names.SIM_RUNS_FOR
STATED = names.RUN_ESTIMATE
VOLCANO = "runningEstimate"
HISTORY = "history"
DEADLINE = "activeDeadlineSeconds"

LEAST_SAMPLES = 3
"""Fewer earlier runs say too little about the spread."""
MANY_SAMPLES = 30
"""From so many on, quantiles are those of the samples; below, of a log-normal distribution fitted to
them, with the uncertainty of the fit."""
_ENOUGH_LEFT = 5
LOW, MEDIAN, HIGH = 0.1, 0.5, 0.9
_NORMAL = NormalDist()
_SMALLEST = 1e-300
_LEAST_SECONDS = 0.5
"""Timestamps have whole seconds, so a run of less is one of about this."""
_ENDED = ("Succeeded", "Failed")


class RunTimeSpread(Protocol):
    """A distribution of run times."""

    def earliest(self, ran: float) -> float | None: ...

    def quantile(self, q: float, ran: float, fit: Fit | None = None) -> float | None:
        """The run time that a share `q` of pods does not exceed, of those that run longer than `ran`;
        None if none is known to."""


class Fit(NamedTuple):
    """A log-normal distribution that the samples may come from."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class ExactTime:
    seconds: float

    def earliest(self, ran: float) -> float | None:
        return self.seconds

    def quantile(self, q: float, ran: float, fit: Fit | None = None) -> float | None:
        return self.seconds


@dataclass(frozen=True, slots=True)
class UpperBound:
    """Known is only when the pod is ended at the latest."""

    seconds: float

    def earliest(self, ran: float) -> float | None:
        return min(ran, self.seconds)

    def quantile(self, q: float, ran: float, fit: Fit | None = None) -> float | None:
        return self.seconds


class LearnedTimes:
    """The run times of earlier pods."""

    def __init__(self, samples: Iterable[float]) -> None:
        self.samples = sorted(max(each, _LEAST_SECONDS) for each in samples)
        logs = [math.log(each) for each in self.samples]
        self._count = len(logs)
        self._mean = sum(logs) / len(logs)
        squares = sum((each - self._mean) ** 2 for each in logs)
        self._deviation = math.sqrt(squares / (len(logs) - 1)) if len(logs) > 1 else 0.0

    def fit(self, rng: random.Random) -> Fit:
        """One of the distributions that the samples may come from, as likely as they make it."""
        if self._deviation == 0.0:
            return Fit(self._mean, 0.0)
        freedom = self._count - 1
        scale = math.sqrt(freedom / max(rng.gammavariate(freedom / 2, 2.0), 1e-9))
        deviation = self._deviation * scale
        return Fit(rng.gauss(self._mean, deviation / math.sqrt(self._count)), deviation)

    def earliest(self, ran: float) -> float | None:
        return self.quantile(LOW, ran)

    def quantile(self, q: float, ran: float, fit: Fit | None = None) -> float | None:
        if self._deviation == 0.0:
            return self.samples[0] if self.samples[0] > ran else None
        left = [each for each in self.samples if each > ran] if ran > 0 else self.samples
        if self._count >= MANY_SAMPLES and len(left) >= _ENOUGH_LEFT:
            return _of_samples(left, q)
        widened = self._deviation * math.sqrt(1 + 1 / self._count)
        mean, deviation = fit if fit is not None else (self._mean, widened)
        longer = _share_above((math.log(ran) - mean) / deviation) if ran > 0 else 1.0
        above = longer * (1 - q)
        if above < _SMALLEST:
            return None
        z = -_NORMAL.inv_cdf(min(above, 1 - 1e-16))
        return max(math.exp(min(mean + deviation * z, 700.0)), ran)


def _share_above(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2


def _of_samples(ordered: list[float], q: float) -> float:
    """Interpolated between the samples on either side."""
    place = min(max(q * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True, slots=True)
class RunTimeEstimate:
    source: str
    spread: RunTimeSpread
    samples: int = 0
    of: str = ""
    """Whose history it is, or the name of the job that states it."""

    @property
    def is_exact(self) -> bool:
        return isinstance(self.spread, ExactTime)

    @property
    def is_of_job(self) -> bool:
        """Whether it is the deadline of the pod's Job, which the Job takes care of."""
        return self.source == DEADLINE and bool(self.of)

    def describe(self) -> str:
        if self.source == HISTORY:
            return f"history of {self.of}, {self.samples} runs"
        if self.source == VOLCANO:
            return f"{VOLCANO} of {self.of}"
        if self.source == DEADLINE:
            return f"at the latest by {DEADLINE}" + (f" of {self.of}" if self.of else "")
        return self.source


# Earlier runs


Owner = tuple[str, str, str]
"""Namespace, kind and name, or a pattern of names."""
_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""The suffix of a generated name, in the alphabet of Kubernetes."""
_DIGITS = re.compile(r"[0-9]+")


def name_pattern(name: str) -> str:
    """What names of a series have in common: `etl-29384950` and `etl-29384955` are `etl-*`, and so is a
    generated name."""
    return _DIGITS.sub("*", _GENERATED.sub("-*", name))


def owners_of(pod: Raw) -> Iterator[Owner]:
    """The owners whose earlier pods tell how long this one runs, the closest first. None for pods that
    run until they are deleted."""
    metadata = pod["metadata"]
    namespace = metadata.get("namespace") or names.DEFAULT_NAMESPACE
    controller = controller_in(pod)
    if controller is None:
        generated = metadata.get("generateName")
        yield namespace, "Pod", name_pattern(f"{generated}*" if generated else metadata["name"])
    elif controller.get("kind") not in ENDLESS_OWNERS:
        kind, name = str(controller.get("kind")), str(controller.get("name"))
        yield namespace, kind, name
        if name_pattern(name) != name:
            yield namespace, kind, name_pattern(name)


def controller_in(pod: Raw) -> Raw | None:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and isinstance(reference, dict):
            return reference
    return None


def is_endless(pod: Raw) -> bool:
    """Whether the pod runs until someone deletes it."""
    controller = controller_in(pod)
    return controller is not None and controller.get("kind") in ENDLESS_OWNERS


def finished_run(pod: Raw) -> float | None:
    """How long a pod ran that has ended."""
    status = pod.get("status") or {}
    if status.get("phase") not in _ENDED:
        return None
    start, end = time_or_none(status.get("startTime")), finished_at(pod)
    return max(end - start, 0.0) if start is not None and end is not None else None


def finished_at(pod: Raw) -> float | None:
    """When a pod that has ended did, by its containers or its conditions."""
    status = pod.get("status") or {}
    ends = [
        time_or_none(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in status.get("containerStatuses") or ()
    ]
    if not any(ends):
        ends = [
            time_or_none(each.get("lastTransitionTime"))
            for each in status.get("conditions") or ()
            if each.get("type") == "Ready" and each.get("status") == "False"
        ]
    return max((end for end in ends if end is not None), default=None)


def time_or_none(text: Any) -> float | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except TimeError:
        return None


class DurationHistory:
    """How long pods ran, by owner."""

    def __init__(self) -> None:
        self._runs: dict[Owner, dict[str, float]] = {}
        self._learned: dict[Owner, LearnedTimes] = {}

    def add(self, pod: Raw, seconds: float) -> None:
        uid = str(pod["metadata"].get("uid") or pod["metadata"]["name"])
        for owner in owners_of(pod):
            self._runs.setdefault(owner, {})[uid] = seconds
            self._learned.pop(owner, None)

    def add_ended(self, pods: Iterable[Raw]) -> None:
        for pod in pods:
            seconds = finished_run(pod)
            if seconds is not None:
                self.add(pod, seconds)

    def of(self, pod: Raw) -> tuple[Owner, LearnedTimes] | None:
        """The history of the closest owner with enough runs."""
        for owner in owners_of(pod):
            runs = self._runs.get(owner, {})
            if len(runs) >= LEAST_SAMPLES:
                if owner not in self._learned:
                    self._learned[owner] = LearnedTimes(runs.values())
                return owner, self._learned[owner]
        return None

    def count(self, pod: Raw) -> int:
        """The number of known runs of the pod's owners."""
        return max((len(self._runs.get(owner, ())) for owner in owners_of(pod)), default=0)


# Estimates


class RunTimeEstimator:
    def __init__(self, history: DurationHistory | None = None, jobs: Iterable[Raw] = ()) -> None:
        """`jobs` are those of Kubernetes and of Volcano."""
        self.history = history or DurationHistory()
        self.jobs: dict[tuple[str, str], Raw] = {}
        """Those of Kubernetes, by namespace and name."""
        self._volcano: dict[tuple[str, str], float] = {}
        for job in jobs:
            metadata = job["metadata"]
            place = metadata.get("namespace") or names.DEFAULT_NAMESPACE, metadata["name"]
            if job.get("apiVersion") == "batch/v1":
                self.jobs[place] = job
            seconds = duration_or_none((job.get("spec") or {}).get(VOLCANO))
            if seconds is not None:
                self._volcano[place] = seconds

    def of(
        self, pod: Raw, ran: float = 0.0, job_deadline: float | None = None
    ) -> RunTimeEstimate | None:
        """The estimate for a pod that has run for `ran` seconds; None if its end is not known. The
        deadline of its Job is `job_deadline` seconds after its start."""
        annotations = pod["metadata"].get("annotations") or {}
        seconds = duration_or_none(annotations.get(names.SIM_RUNS_FOR))
        if seconds is not None:
            return RunTimeEstimate(STATED_BY_SIMULATION, ExactTime(seconds))
        if is_endless(pod):
            return None
        deadline = pod["spec"].get("activeDeadlineSeconds")
        found = self._stated(pod, annotations, ran) or self._learned(pod, ran)
        if found is not None:
            return found
        if job_deadline is not None and (deadline is None or job_deadline < deadline):
            job = f"Job {(controller_in(pod) or {}).get('name')}"
            return RunTimeEstimate(DEADLINE, UpperBound(job_deadline), of=job)
        return RunTimeEstimate(DEADLINE, UpperBound(float(deadline))) if deadline is not None else None

    def _stated(self, pod: Raw, annotations: Raw, ran: float) -> RunTimeEstimate | None:
        """What the pod or its Volcano job states, unless it has run longer."""
        seconds = duration_or_none(annotations.get(names.RUN_ESTIMATE))
        if seconds is not None and seconds > ran:
            return RunTimeEstimate(STATED, ExactTime(seconds))
        labels = pod["metadata"].get("labels") or {}
        name = annotations.get(names.VOLCANO_JOB_NAME) or labels.get(names.VOLCANO_JOB_NAME)
        namespace = pod["metadata"].get("namespace") or names.DEFAULT_NAMESPACE
        seconds = self._volcano.get((namespace, name)) if name else None
        if seconds is not None and seconds > ran:
            return RunTimeEstimate(VOLCANO, ExactTime(seconds), of=f"Job {name}")
        return None

    def _learned(self, pod: Raw, ran: float) -> RunTimeEstimate | None:
        known = self.history.of(pod)
        if known is None:
            return None
        owner, times = known
        if times.quantile(MEDIAN, ran) is None:
            return None
        return RunTimeEstimate(HISTORY, times, len(times.samples), f"{owner[1]} {owner[2]}")

    def remedy(self, pod: Raw, ran: float = 0.0) -> str:
        """What would make the end of the pod known."""
        annotations = pod["metadata"].get("annotations") or {}
        if problem := estimate_problem(annotations):
            return f"a valid run-time estimate: {problem}"
        stated = annotations.get(names.RUN_ESTIMATE)
        if stated is not None:
            return f"it has run longer than its {names.RUN_ESTIMATE} of {stated}"
        ways = f"the annotation {names.RUN_ESTIMATE} or {DEADLINE}"
        count = self.history.count(pod)
        runs = f"{count} known" if count else "none known"
        return f"{ways}, or {LEAST_SAMPLES} earlier runs of its owner ({runs})"
