"""What became of each object in a recording. Times are seconds from its beginning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.errors import TimeError
from holdfast.api.plurals import number_of
from holdfast.api.times import parse_time
from holdfast.recording.segments import DELETED, GAP, RecordedChange, Recording

Raw = dict[str, Any]
_Identity = tuple[str, str, str, str]

_ENDED = ("Succeeded", "Failed")
PREEMPTION = "PreemptionByScheduler"


@dataclass(slots=True)
class PodLife:
    """A pod from its arrival to its end."""

    first: Raw
    """As it was first seen."""
    arrived: float
    """0 if it existed at the beginning."""
    was_there: bool
    bound: float | None = None
    """When it got its node; before the beginning, less than 0."""
    node: str = ""
    ended: float | None = None
    phase: str = ""
    """Succeeded or Failed, of one that ended."""
    stopping: float | None = None
    """When its deletion began."""
    deleted: float | None = None
    disruption: str = ""
    """The reason of its condition DisruptionTarget."""
    pending_reason: str = ""
    """Why it is pending at the end: the reason of its condition PodScheduled, if that is False."""
    ungated: float | None = None
    """When its scheduling gates were removed."""
    seen_gated: bool = False

    @property
    def left(self) -> float | None:
        """When it left its node."""
        times = [each for each in (self.ended, self.deleted) if each is not None]
        return min(times) if times and self.bound is not None else None

    @property
    def run_time(self) -> float | None:
        """How long it was on its node; None if it still was at the end."""
        left = self.left
        return max(0.0, left - self.bound) if left is not None and self.bound is not None else None

    @property
    def stop_time(self) -> float:
        """How long it took to stop on its node after its deletion began; 0 if that is not known."""
        left = self.left
        return max(0.0, left - self.stopping) if left is not None and self.stopping is not None else 0.0


@dataclass(slots=True)
class ObjectLife:
    """The versions of another object."""

    versions: list[tuple[float, Raw]]
    was_there: bool
    deleted: float | None = None


@dataclass(slots=True)
class RecordedLives:
    begin: float
    """In seconds since the epoch."""
    end: float
    """In seconds from the beginning."""
    pods: list[PodLife] = field(default_factory=list)
    objects: list[ObjectLife] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is missing, a line each."""
    gaps: list[tuple[float, float, str]] = field(default_factory=list)


def read_lives(recording: Recording) -> RecordedLives:
    """Raises RecordingError."""
    reader = _LifeReader()
    for change in recording.changes():
        reader.take(change, recording.begin)
    lives = RecordedLives(
        recording.begin,
        recording.end - recording.begin,
        list(reader.all_pods),
        list(reader.all_objects),
        list(recording.notes),
        [(since - recording.begin, t - recording.begin, kind) for since, t, kind in recording.gaps],
    )
    if lives.gaps:
        longest = max(t - since for since, t, _ in lives.gaps)
        gaps = number_of(len(lives.gaps), "gap")
        lives.notes.append(f"{gaps} in the recording, the longest of {longest:.0f}s")
    return lives


class _LifeReader:
    def __init__(self) -> None:
        self.all_pods: list[PodLife] = []
        self.all_objects: list[ObjectLife] = []
        self._pods: dict[_Identity, PodLife] = {}
        self._objects: dict[_Identity, ObjectLife] = {}

    def take(self, change: RecordedChange, begin: float) -> None:
        raw = change.raw
        if change.type == GAP:
            return
        t = max(0.0, change.t - begin)
        metadata = raw["metadata"]
        identity = raw["apiVersion"], raw["kind"], metadata.get("namespace") or "", metadata["name"]
        if raw["kind"] == "Pod":
            self._take_pod(identity, change, t, begin)
            return
        life = self._objects.get(identity)
        if change.type == DELETED:
            if life is not None:
                life.deleted = t
                del self._objects[identity]
        elif life is None:
            life = self._objects[identity] = ObjectLife([(t, raw)], was_there=t == 0)
            self.all_objects.append(life)
        else:
            life.versions.append((t, raw))

    def _take_pod(self, identity: _Identity, change: RecordedChange, t: float, begin: float) -> None:
        life, raw = self._pods.get(identity), change.raw
        if change.type == DELETED:
            if life is not None:
                life.deleted = t
                del self._pods[identity]
            return
        if life is None:
            was_there = t == 0
            arrived = 0.0 if was_there else min(t, max(0.0, _created(raw, begin, t)))
            life = self._pods[identity] = PodLife(raw, arrived, was_there)
            self.all_pods.append(life)
        self._update(life, raw, t, begin)

    def _update(self, life: PodLife, raw: Raw, t: float, begin: float) -> None:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        node = spec.get("nodeName") or ""
        has_ended = status.get("phase") in _ENDED and life.ended is None
        if node and life.bound is None:
            life.node = node
            # Times of objects are in whole seconds, so the time of the change is the better one, but
            # for a pod that both started and ended since it was last seen.
            if life.was_there and t == 0:
                life.bound = min(0.0, _scheduled(raw, begin, 0.0))
            elif has_ended:
                life.bound = min(max(_scheduled(raw, begin, t), life.arrived), t)
                life.ended = min(max(_finished(raw, begin, t), life.bound), t)
            else:
                life.bound = t
        if has_ended:
            life.phase = status["phase"]
            life.ended = t if life.ended is None else life.ended
        if raw["metadata"].get("deletionTimestamp") and life.stopping is None:
            life.stopping = t
        if spec.get("schedulingGates"):
            life.seen_gated = True
        elif life.seen_gated and life.ungated is None:
            life.ungated = t
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled":
                is_pending = condition.get("status") == "False"
                life.pending_reason = str(condition.get("reason") or "") if is_pending else ""
            if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
                life.disruption = str(condition.get("reason") or "")


def _created(raw: Raw, begin: float, t: float) -> float:
    created = _time(raw["metadata"].get("creationTimestamp"))
    # A second of difference is the rounding of timestamps, a large one another clock.
    return created - begin if created is not None and 1.0 < t - (created - begin) < 60.0 else t


def _scheduled(raw: Raw, begin: float, t: float) -> float:
    """When a pod got its node, as it says itself; `t` if it does not."""
    status = raw.get("status") or {}
    times = [
        _time(each.get("lastTransitionTime"))
        for each in status.get("conditions") or ()
        if each.get("type") == "PodScheduled" and each.get("status") == "True"
    ]
    found = next((each for each in times if each is not None), None)
    if found is None:
        found = _time(status.get("startTime"))
    return found - begin if found is not None else t


def _finished(raw: Raw, begin: float, t: float) -> float:
    """When the last container of a pod ended; `t` if none says so."""
    times = [
        _time(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in (raw.get("status") or {}).get("containerStatuses") or ()
    ]
    return max((each - begin for each in times if each is not None), default=t)


def _time(text: Any) -> float | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except TimeError:
        return None


def ended_pods(lives: RecordedLives) -> Iterator[tuple[Raw, float]]:
    """The pods that came to their own end, and how long they ran."""
    for life in lives.pods:
        if life.ended is not None and life.run_time is not None and not life.disruption:
            yield life.first, life.run_time
