"""The convergence guard: whatever goes wrong, a round ends, and nothing is decided without end.

Decisions lead to events, and events to decisions. If two rules contradict each other (a plugin's two
answers, a controller and an action), the same is decided again and again. Three bounds stop that, each
so far from what is legal that no sound round meets it, however large:

* a pod that is tried many times in one round, while no pod at all finds a place, is set aside;
* a round that is woken up by its own changes many times without deciding anything ends, and goes on
  later;
* a decision that is repeated many times, although nothing else has changed (see `Epoch.inputs`), or
  more often than there are objects that could have changed, is delayed, and with it everything that is
  decided about the same object.

What is set aside is tried again after the queue's back-off, which doubles each time; nothing is lost.
Each case is reported: an event on the object, a metric, and in `reports` for the log.
"""

import re
from collections import Counter
from typing import NamedTuple

from holdfast.api.reservation import Reservation
from holdfast.api.times import format_duration
from holdfast.scheduler.cluster.cluster import Cluster
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
)
from holdfast.scheduler.cluster.pods import PodRecord

NOT_CONVERGING = "NotConverging"

_REPEATS = 8
"""A decision may be repeated so often though nothing has changed."""
_PER_OBJECT = 4
"""And so often for each object there is, whatever has changed at the same time."""
_AT_ONCE = 0.5
"""A decision that is made again later than so many seconds is a retry, and counts as new."""
_MEMORY = 60.0
"""Seconds after which the back-off of an object begins anew."""
_IN_VAIN = 20
"""A round may be woken up by its own changes so often without deciding anything."""
_PASSES = 1000
"""And so often, besides what objects there are, in any case."""
_VARIES = re.compile(r"uid='[^']*'|\d{4}-\d\d-\d\dT[\d:.]+Z")
"""What differs between decisions that are the same."""

Name = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class NotConverging(NamedTuple):
    about: ObjectRef
    message: str


class _Seen:
    """How often one decision was made, with all it says."""

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
    """What was decided about an object that is set aside."""

    until: float
    decisions: list[Decision]


class ConvergenceGuard:
    def __init__(self, cluster: Cluster, initial_backoff: float, max_backoff: float) -> None:
        self._cluster = cluster
        self._initial, self._most = initial_backoff, max_backoff
        self._kinds: dict[tuple[type, str, str, str], tuple[int, float]] = {}
        """How often a kind of decision was made about an object, and when it was last."""
        self._exactly: dict[tuple[Name, str], _Seen] = {}
        self._aside: dict[Name, _Aside] = {}
        self._backoffs: dict[Name, tuple[int, float]] = {}
        self._tidy_at = 0.0
        self._postponed = 0
        self._resume_at: float | None = None
        self.reports: list[NotConverging] = []
        """What was found since somebody last took them; see `take_reports`."""
        self.found: Counter[str] = Counter()
        """How many cases there were, by the kind of object."""
        self._events: list[Decision] = []

    def take_reports(self) -> list[NotConverging]:
        reports, self.reports = self.reports, []
        return reports

    def next_timer(self) -> float | None:
        """When something that was set aside is due."""
        times = [aside.until for aside in self._aside.values()]
        if self._resume_at is not None:
            times.append(self._resume_at)
        return min(times, default=None)

    # Rounds

    def begin(self, now: float) -> None:
        """A round begins: when it is time, changes that an earlier one left are its to deal with."""
        if self._resume_at is not None and self._resume_at <= now:
            self._cluster.changed(self._postponed)
            self._postponed, self._resume_at = 0, None

    def ends(self, passes: int, in_vain: int, tried: list[PodRecord], now: float) -> bool:
        """Whether a round has gone on for too long: woken up so often, the last times in vain. What
        changed is left to a later one."""
        objects = len(self._cluster.pods) + len(self._cluster.reservations.known)
        if in_vain <= _IN_VAIN and passes <= _PASSES + _PER_OBJECT * objects:
            return False
        self._postponed |= self._cluster.take_changes()
        whom = [pod.ref for pod in tried[:10]] or [ObjectRef("Scheduler", "", "round", "")]
        self._resume_at = now + max(self._backoff(ref, now) for ref in whom)
        for ref in whom:
            self._report(ref, f"tried again {passes} times in one round", self._resume_at, now)
        return True

    def tried_too_often(self, pod: PodRecord, times: int, now: float) -> None:
        """A pod was set aside by the queue."""
        self._report(pod.ref, f"tried {times} times in one round while no pod found a place", None, now)

    # Decisions

    def admit(self, decisions: list[Decision], now: float) -> list[Decision]:
        """What of the decisions of a round is to be carried out now, after what is due by now."""
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
                told = getattr(decision, about)
                key = (kind, told.kind, told.namespace, told.name)
            if self._aside and (aside := self._aside.get(key[1:])) is not None:
                aside.decisions.append(decision)
                continue
            times, last = kinds.get(key, (0, now))
            times = times + 1 if now - last <= _AT_ONCE else 1
            kinds[key] = times, now
            # What a decision says is looked at only where there were many of the kind.
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
            told = _owner(decision.reservation)
        else:
            told = getattr(decision, _ABOUT[type(decision)])
        until = now + self._backoff(told, now)
        self._aside[name] = _Aside(until, [decision])
        what = f"{type(decision).__name__} was decided again and again"
        what += f" for {name[2]}" if told.name != name[2] else ""
        self._report(told, what, until, now)

    def _is_repeated(self, decision: Decision, name: Name, now: float) -> bool:
        revision = self._cluster.epoch.inputs
        says = (name, _VARIES.sub("", repr(decision)))
        exactly = self._exactly.get(says)
        if exactly is None:
            exactly = self._exactly[says] = _Seen(now, revision)
        exactly.again(now, revision)
        objects = len(self._cluster.pods) + len(self._cluster.reservations.known)
        if exactly.unchanged <= _REPEATS and exactly.times <= _REPEATS + _PER_OBJECT * objects:
            return False
        del self._exactly[says]
        return True

    def _backoff(self, about: ObjectRef, now: float) -> float:
        name = (about.kind, about.namespace, about.name)
        times, last = self._backoffs.get(name, (0, now))
        times = times + 1 if now - last <= _MEMORY else 1
        self._backoffs[name] = times, now
        return float(min(self._initial * 2.0 ** min(times - 1, 30), self._most))

    def _report(self, about: ObjectRef, what: str, until: float | None, now: float) -> None:
        message = f"{what}, though nothing it depends on has changed; it is set aside"
        if until is not None:
            message += f" for {format_duration(until - now)}"
        self.found[about.kind] += 1
        self.reports.append(NotConverging(about, message))
        self._cluster.chronicle.note(now, about, NOT_CONVERGING, message)
        self._events.append(Emit(about, "Warning", NOT_CONVERGING, message, "Scheduling"))

    def _tidy(self, now: float) -> None:
        """Forgets what was decided long ago."""
        if now < self._tidy_at:
            return
        self._tidy_at = now + 2 * _AT_ONCE
        self._kinds = {key: seen for key, seen in self._kinds.items() if now - seen[1] <= _AT_ONCE}
        self._exactly = {key: seen for key, seen in self._exactly.items() if now - seen.at <= _AT_ONCE}
        self._backoffs = {key: seen for key, seen in self._backoffs.items() if now - seen[1] <= _MEMORY}


def _owner(reservation: Reservation) -> ObjectRef:
    """Whom it concerns that a reservation is made: the pod it names as its owner, or itself."""
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
}
"""What decisions are about. Binds are left out: each is confirmed or refused, and a refused one is
followed by a back-off; so are events, which follow from the others."""
