"""How long pods ran that have ended, and whose estimates were exceeded; by the job or controller.

Everything is read from pods that exist: those that have ended, and those with the annotation
`holdfast.io/overran`. So it is the same after a restart. That a job overran is also remembered after
its pods are deleted, until the scheduler restarts.
"""

import re
from typing import NamedTuple

from holdfast.api.errors import TimeError
from holdfast.api.meta import condition
from holdfast.api.names import OVERRAN
from holdfast.api.pod import Pod
from holdfast.api.times import parse_time
from holdfast.scheduler.cluster.records import JobName, PodRecord
from holdfast.scheduler.jobs.job import named_by

LENIENCE = 1.0
"""Seconds by which a pod may exceed its estimate: start times have whole seconds."""
_RUNS = 10
"""How many of the last runs count."""
_LEAST_RUNS = 3
_NUMBERS = re.compile(r"\d+")

RunKey = JobName | tuple[str, str, str]
"""The job; else namespace, kind and name of the controller, with `*` for numbers in the name, as the
Jobs of a CronJob have them."""


class FinishedRun(NamedTuple):
    """A pod that has ended. Runs are in the order of time."""

    end: float
    uid: str
    seconds: float
    estimate: float

    @property
    def overran(self) -> bool:
        return self.seconds > self.estimate + LENIENCE


class FinishedRuns:
    def __init__(self) -> None:
        self._runs: dict[RunKey, dict[str, FinishedRun]] = {}
        self._key_of: dict[str, RunKey] = {}
        """By the uid of a pod that has ended."""
        self._overran: set[object] = set()
        """Jobs and uids of controllers."""
        self.reported: set[str] = set()
        """The uids of pods with the annotation."""

    # Jobs that overran where capacity was held

    def read(self, pod: Pod) -> None:
        """Reads the annotation of a pod."""
        if OVERRAN in pod.metadata.annotations:
            self.reported.add(pod.metadata.uid)
            owners = pod.metadata.owner_references
            uid = next((owner.uid for owner in owners if owner.controller), "")
            if key := named_by(pod) or uid:
                self._overran.add(key)

    def note_overran(self, pod: PodRecord) -> None:
        self.reported.add(pod.uid)
        if key := _block_key(pod):
            self._overran.add(key)

    def has_overrun(self, pod: PodRecord) -> bool:
        """Whether a pod of the same job or controller overran where capacity was held."""
        return bool(self._overran) and _block_key(pod) in self._overran

    # Real lengths

    def ended(self, pod: Pod, estimate: float | None) -> bool:
        """Notes a pod that has ended; returns whether lengths may be other than before."""
        self.read(pod)
        seconds = _ran(pod)
        key = _key(named_by(pod), pod)
        if estimate is None or seconds is None or key is None:
            return False
        uid, length, end = pod.metadata.uid, seconds[0], seconds[1]
        runs = self._runs.setdefault(key, {})
        run = FinishedRun(end, uid, length, estimate)
        if runs.get(uid) == run:
            return False
        runs[uid] = run
        self._key_of[uid] = key
        return True

    def gone(self, uid: str) -> bool:
        """Forgets a pod that was deleted; returns whether lengths may be other than before."""
        self.reported.discard(uid)
        key = self._key_of.pop(uid, None)
        if key is None:
            return False
        runs = self._runs[key]
        del runs[uid]
        if not runs:
            del self._runs[key]
        return True

    def real_length(self, pod: PodRecord) -> float | None:
        """The longest of the last runs of its job, if most of them exceeded their estimates."""
        key = _record_key(pod) if self._runs else None
        runs = self._runs.get(key) if key is not None else None
        if not runs or len(runs) < _LEAST_RUNS:
            return None
        last = sorted(runs.values())[-_RUNS:]
        if 2 * sum(run.overran for run in last) <= len(last):
            return None
        return max(run.seconds for run in last)


def _block_key(pod: PodRecord) -> object:
    """What stays the same when a job's pods are recreated; empty if there is no such thing."""
    if pod.job is not None:
        return pod.job
    return next((owner.uid for owner in pod.cls.owners if owner.controller), "")


def _record_key(pod: PodRecord) -> RunKey | None:
    if pod.job is not None:
        return pod.job
    owner = next((owner for owner in pod.cls.owners if owner.controller), None)
    return None if owner is None else (pod.namespace, owner.kind, _NUMBERS.sub("*", owner.name))


def _key(job: JobName | None, pod: Pod) -> RunKey | None:
    if job is not None:
        return job
    owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    if owner is None:
        return None
    return pod.metadata.namespace, owner.kind, _NUMBERS.sub("*", owner.name)


def _ran(pod: Pod) -> tuple[float, float] | None:
    """How long a pod that has ended ran, and when it ended, by its condition Ready."""
    ready = condition(pod.status.conditions, "Ready")
    if pod.status.start_time is None or ready is None or not ready.last_transition_time:
        return None
    try:
        start, end = parse_time(pod.status.start_time), parse_time(ready.last_transition_time)
    except TimeError:
        return None
    return max(0.0, end - start), end
