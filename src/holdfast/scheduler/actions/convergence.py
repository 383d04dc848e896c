"""The convergence guard: every round ends, and no decision is repeated without end.

Decisions lead to events, and events to decisions. If two rules contradict each other (two answers of a
plugin, a controller and an action), the same decision is made again and again. Three bounds stop that;
they are so high that no correct round reaches them, however large it is:

* a pod that is tried many times in one round while no pod is placed is set aside;
* a round that is woken up many times by its own changes, without a decision, ends and resumes later;
* a decision that is repeated many times although nothing else has changed (see `Epoch.inputs`), or
  more often than there are objects that could have changed, is delayed, and with it all decisions about
  the same object.

What is set aside is tried again after the queue's back-off, which doubles each time; nothing is lost.
Each case is reported by an event on the object, by a metric, and in `reports` for the log.
"""

import re
from collections import Counter
from typing import NamedTuple

from holdfast.api.reservation import Reservation
from holdfast.api.times import format_duration
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    AnnotateReservation,
    CreateReservation,
    Decision,
    DeleteReservation,
    Emit,
    Evict,
    Nominate,
    ObjectRef,
    Preempt,
    PreemptReservation,
    SetMigrationStatus,
    SetPodGroupStatus,
    SetPodScheduled,
    SetQueueStatus,
    SetReservationStatus,
    SetScheduleStatus,
)
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.state.cluster import Cluster

NOT_CONVERGING = "NotConverging"

_REPEATS = 8
"""How often a decision may be repeated while nothing changes."""
_PER_OBJECT = 4
"""How often in addition for each object, even if something changes."""
_AT_ONCE = 0.5
"""Seconds after which a repeated decision is a retry and counts as new."""
_MEMORY = 60.0
"""Seconds after which the back-off of an object is reset."""
_MOST_UNSUCCESSFUL = 20
"""How often a round may be woken up by its own changes without a decision."""
_PASSES = 1000
"""How often a round may be woken up at all, in addition to a number per object."""
_VARIES = re.compile(r"uid='[^']*'|\d{4}-\d\d-\d\dT[\d:.]+Z")
"""What may differ between two decisions that count as the same."""

Name = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class NotConverging(NamedTuple):
    """A report: the object, and what was repeated."""

    about: ObjectRef
    message: str


class _Seen:
    """How often one decision was made with equal content."""

    __slots__ = ("at", "revision", "times", "unchanged")

    def __init__(self, at: float, revision: int) -> None:
        self.at, self.revision = at, revision
        self.times = self.unchanged = 0

    def again(self, now: float, revision: int) -> None:
        if now - self.at > _AT_ONCE:
            self.times = self.unchanged = 0
        elif revision != self.revision:
            self.unchanged = 0
        self.at, self.revision = now, revision
        self.times += 1
        self.unchanged += 1


class _Aside(NamedTuple):
    """The delayed decisions about an object."""

    until: float
    decisions: list[Decision]


class ConvergenceGuard:
    """Counts attempts, wake-ups and decisions, and delays those that do not converge."""

    def __init__(self, cluster: Cluster, initial_backoff: float, max_backoff: float) -> None:
        self._cluster = cluster
        self._initial, self._most = initial_backoff, max_backoff
        self._kinds: dict[tuple[type, str, str, str], tuple[int, float]] = {}
        """How often each kind of decision was made about an object, and when last."""
        self._exactly: dict[tuple[Name, str], _Seen] = {}
        self._aside: dict[Name, _Aside] = {}
        self._backoffs: dict[Name, tuple[int, float]] = {}
        self._tidy_at = 0.0
        self._postponed = 0
        self._resume_at: float | None = None
        self.reports: list[NotConverging] = []
        """The reports since `take_reports` was last called."""
        self.found: Counter[str] = Counter()
        """The number of cases by kind of object."""
        self._events: list[Decision] = []

    def take_reports(self) -> list[NotConverging]:
        reports, self.reports = self.reports, []
        return reports

    def next_timer(self) -> float | None:
        """When the first object or round that was set aside is due."""
        times = [aside.until for aside in self._aside.values()]
        if self._resume_at is not None:
            times.append(self._resume_at)
        return min(times, default=None)

    # Rounds

    def begin(self, now: float) -> None:
        """Called when a round begins: it takes over changes that an ended round left, once their
        back-off is over."""
        if self._resume_at is not None and self._resume_at <= now:
            self._cluster.changed(self._postponed)
            self._postponed, self._resume_at = 0, None

    def ends(self, passes: int, unsuccessful: int, tried: list[PodRecord], now: float) -> bool:
        """Whether the round must end: it was woken up `passes` times, the last `unsuccessful` times
        without a decision. Its changes are left to a later round."""
        objects = len(self._cluster.pods) + len(self._cluster.reservations.known)
        if unsuccessful <= _MOST_UNSUCCESSFUL and passes <= _PASSES + _PER_OBJECT * objects:
            return False
        self._postponed |= self._cluster.take_changes()
        refs = [pod.ref for pod in tried[:10]] or [ObjectRef("Scheduler", "", "round", "")]
        self._resume_at = now + max(self._backoff(ref, now) for ref in refs)
        for ref in refs:
            self._report(ref, f"tried again {passes} times in one round", self._resume_at, now)
        return True

    def tried_too_often(self, pod: PodRecord, times: int, now: float) -> None:
        """Reports a pod that the queue put in back-off."""
        self._report(pod.ref, f"tried {times} times in one round while no pod was placed", None, now)

    # Decisions

    def admit(self, decisions: list[Decision], now: float) -> list[Decision]:
        """The decisions to carry out now: delayed ones that are due, then those of the round that are
        not delayed."""
        due = [name for name, aside in self._aside.items() if aside.until <= now]
        if not due and not self._aside and not any(type(d) in _ABOUT for d in decisions):
            return self._with_events(decisions)
        admitted: list[Decision] = []
        for name in due:
            admitted += self._aside.pop(name).decisions
        kinds = self._kinds
        for decision in decisions:
            kind = type(decision)
            about = _ABOUT.get(kind)
            if about is None:
                admitted.append(decision)
                continue
            if isinstance(decision, CreateReservation):
                key = (kind, "Reservation", "", decision.reservation.metadata.name)
            else:
                ref = getattr(decision, about)
                key = (kind, ref.kind, ref.namespace, ref.name)
            if self._aside and (aside := self._aside.get(key[1:])) is not None:
                aside.decisions.append(decision)
                continue
            times, last = kinds.get(key, (0, now))
            times = times + 1 if now - last <= _AT_ONCE else 1
            kinds[key] = times, now
            # The content of a decision is compared only after many decisions of its kind.
            if times > _REPEATS and self._is_repeated(decision, key[1:], now):
                self._set_aside(decision, key[1:], now)
            else:
                admitted.append(decision)
        self._tidy(now)
        return self._with_events(admitted)

    def _with_events(self, decisions: list[Decision]) -> list[Decision]:
        events, self._events = self._events, []
        return decisions + events if events else decisions

    def _set_aside(self, decision: Decision, name: Name, now: float) -> None:
        if isinstance(decision, CreateReservation):
            ref = _owner(decision.reservation)
        else:
            ref = getattr(decision, _ABOUT[type(decision)])
        until = now + self._backoff(ref, now)
        self._aside[name] = _Aside(until, [decision])
        what = f"{type(decision).__name__} was decided repeatedly"
        what += f" for {name[2]}" if ref.name != name[2] else ""
        self._report(ref, what, until, now)

    def _is_repeated(self, decision: Decision, name: Name, now: float) -> bool:
        revision = self._cluster.epoch.inputs
        content = (name, _VARIES.sub("", repr(decision)))
        exactly = self._exactly.get(content)
        if exactly is None:
            exactly = self._exactly[content] = _Seen(now, revision)
        exactly.again(now, revision)
        objects = len(self._cluster.pods) + len(self._cluster.reservations.known)
        if exactly.unchanged <= _REPEATS and exactly.times <= _REPEATS + _PER_OBJECT * objects:
            return False
        del self._exactly[content]
        return True

    def _backoff(self, about: ObjectRef, now: float) -> float:
        name = (about.kind, about.namespace, about.name)
        times, last = self._backoffs.get(name, (0, now))
        times = times + 1 if now - last <= _MEMORY else 1
        self._backoffs[name] = times, now
        return float(min(self._initial * 2.0 ** min(times - 1, 30), self._most))

    def _report(self, about: ObjectRef, what: str, until: float | None, now: float) -> None:
        message = f"{what}, though nothing it depends on has changed; it is in back-off"
        if until is not None:
            message += f" for {format_duration(until - now)}"
        self.found[about.kind] += 1
        self.reports.append(NotConverging(about, message))
        self._cluster.chronicle.note(now, about, NOT_CONVERGING, message)
        self._events.append(Emit(about, "Warning", NOT_CONVERGING, message, "Scheduling"))

    def _tidy(self, now: float) -> None:
        """Drops the records of old decisions."""
        if now < self._tidy_at:
            return
        self._tidy_at = now + 2 * _AT_ONCE
        self._kinds = {key: seen for key, seen in self._kinds.items() if now - seen[1] <= _AT_ONCE}
        self._exactly = {key: seen for key, seen in self._exactly.items() if now - seen.at <= _AT_ONCE}
        self._backoffs = {key: seen for key, seen in self._backoffs.items() if now - seen[1] <= _MEMORY}


def _owner(reservation: Reservation) -> ObjectRef:
    """The object a new reservation is reported on: the pod it names as its owner, or itself."""
    for owner in reservation.spec.owners:
        named = owner.object
        if named is not None and named.uid:
            return ObjectRef("Pod", named.namespace, named.name, named.uid)
    return ObjectRef("Reservation", "", reservation.metadata.name, reservation.metadata.uid)


_ABOUT: dict[type, str] = {
    SetPodScheduled: "pod",
    Nominate: "pod",
    Preempt: "pod",
    AnnotatePod: "pod",
    Evict: "pod",
    CreateReservation: "reservation",
    AnnotateReservation: "reservation",
    SetReservationStatus: "reservation",
    DeleteReservation: "reservation",
    PreemptReservation: "reservation",
    SetMigrationStatus: "job",
    SetPodGroupStatus: "group",
    SetQueueStatus: "queue",
    SetScheduleStatus: "schedule",
}
"""The field of a decision that refers to its object. Binds are left out: each is confirmed or refused,
and a refused one is followed by a back-off. So are events, which follow from other decisions."""
