"""Searches windows for reservations with a start, by asking the scheduler's own planner.

A start is tried by feeding the scheduler the reservations as they would be created, having it plan
them, and taking them away again. Between the starts and ends of other plans capacity only becomes free
as time goes on: a later start is as good as an earlier one, or better. So the search divides the time
there, and finds the first start of each kind by bisection. Starts are whole minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from holdfast.api.calendar import BeforeStart
from holdfast.api.cron import CronError
from holdfast.api.decode import convert
from holdfast.api.errors import DurationError
from holdfast.api.names import BEFORE_START, RESERVATION_API, STARTS_AT
from holdfast.api.reservation import Reservation
from holdfast.api.reservation_schedules import KIND as SCHEDULE
from holdfast.api.reservation_schedules import ReservationSchedule, starts_of
from holdfast.api.times import format_time, parse_duration
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.events import Added, Deleted
from holdfast.scheduler.controllers.reservation_schedules import occurrence
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.scheduler import Scheduler
from holdfast.sim.windows.node_sizes import larger_than_nodes
from holdfast.sim.windows.window_answers import (
    Confidence,
    EvictedPod,
    ReservationWindow,
    WindowReport,
)

Raw = dict[str, Any]

_STEP = 60.0
_SOONEST = 60.0
"""Seconds from now to the earliest start: the reservations have to be created."""
_MOST_OCCURRENCES = 200
_NAMED = 3
"""How many reservations a note names."""
_PROBE = "advised-window"
_QUALITY = {"True": 2, "Unknown": 1, "False": 0}


@dataclass(frozen=True, slots=True)
class WindowQuestion:
    """What is asked for."""

    reservations: Sequence[Raw]
    """As they would be created, without a start."""
    duration: float
    within: float
    lead: float
    """How long before the start pods are evicted, if any must be."""
    most_evictions: int | None = None
    """None: any number."""
    limit: int = 5
    """How many windows are listed."""


class TriedStart(NamedTuple):
    """What the planner says of one start."""

    quality: int
    nodes: tuple[str, ...]
    evicts: tuple[EvictedPod, ...]
    waits_for: tuple[str, ...]
    enough: tuple[str, ...]
    displaces: tuple[str, ...]
    message: str

    @property
    def cost(self) -> float:
        """Pods and plans that would have to make way; infinite if that does not help."""
        return len(self.evicts) + len(self.displaces) if self.quality == 2 else math.inf


class _CostlyRange(NamedTuple):
    """Starts at which as many pods and plans have to make way: the first and the last."""

    cost: float
    first: int
    last: int


class WindowSearch:
    """Of a scheduler that is at rest. It is as before afterwards, but for what it remembers."""

    def __init__(self, scheduler: Scheduler, now: float, question: WindowQuestion) -> None:
        self._scheduler = scheduler
        self._now = now
        self._question = question
        self._budgets = DisruptionBudgets(scheduler.cluster)
        self._known: dict[tuple[int, str], TriedStart] = {}
        self._first = math.ceil((now + _SOONEST) / _STEP) * _STEP
        self._last = int((now + question.within - self._first) // _STEP)
        self.notes: list[str] = []

    def report(self) -> WindowReport:
        question = self._question
        spec = question.reservations[0]["spec"]["template"]["spec"]
        report = WindowReport(
            time=format_time(self._now),
            within=question.within,
            duration=question.duration,
            replicas=len(question.reservations),
            requests=dict(spec["containers"][0].get("resources", {}).get("requests", {})),
            notes=self.notes,
        )
        if self._last < 0:
            report.message = "--within is too short"
            return report
        with self._occurrences():
            self._note_uncertain()
            report.windows = self._windows()
            if not any(each.confidence is Confidence.KNOWN for each in report.windows):
                report.message = self._attempt(self._last, BeforeStart.BACKFILL).message
                report.message = self._too_large() or report.message
        return report

    def is_free(self, start: float) -> bool:
        """Whether the reservations can start then without evictions."""
        return self._attempt(self._index(start), BeforeStart.BACKFILL).cost == 0

    def cost(self, start: float) -> float:
        """How many pods and plans would have to make way for the reservations to start then; infinite
        if that does not help."""
        return self._attempt(self._index(start), BeforeStart.PREEMPT).cost

    # The search

    def _windows(self) -> list[ReservationWindow]:
        segments = self._segments()
        free = self._free_windows(segments)
        until = free[0][0] if free else self._last + 1
        cheap = self._windows_with_evictions([s for s in segments if s[0] < until], until)
        found = [
            self._window(first, last, BeforeStart.BACKFILL, Confidence.KNOWN) for first, last in free
        ]
        found += [
            self._window(first, last, BeforeStart.PREEMPT, Confidence.KNOWN) for first, last in cheap
        ]
        found = found[: self._question.limit]
        unknown = self._first_unknown(segments, until)
        if unknown is not None and len(found) < self._question.limit:
            found.append(self._window(*unknown, BeforeStart.BACKFILL, Confidence.UNKNOWN))
        return found

    def _segments(self) -> list[tuple[int, int]]:
        """Ranges of starts that are beside the same plans: the first and last of each."""
        cuts = {0}
        for planned in self._scheduler.cluster.reservations.calendar:
            cuts.add(self._after(planned.start - self._question.duration))
            if planned.end < math.inf:
                cuts.add(self._index(planned.end))
        begins = sorted(cut for cut in cuts if 0 <= cut <= self._last)
        return [
            (begin, following - 1)
            for begin, following in zip(begins, [*begins[1:], self._last + 1], strict=True)
        ]

    def _after(self, time: float) -> int:
        return math.floor((time - self._first) / _STEP) + 1

    def _index(self, time: float) -> int:
        return math.ceil((time - self._first) / _STEP)

    def _free_windows(self, segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Ranges of starts without evictions, the earliest first."""
        found: list[tuple[int, int]] = []

        for begin, end in segments:
            first = _first(begin, end, lambda i: self.is_free(self._time(i)))
            if first is None:
                continue
            if found and found[-1][1] == first - 1:
                found[-1] = (found[-1][0], end)
            elif len(found) == self._question.limit:
                break
            else:
                found.append((first, end))
        return found

    def _windows_with_evictions(
        self, segments: Sequence[tuple[int, int]], until: int
    ) -> list[tuple[int, int]]:
        """Ranges of starts before `until` with evictions: the fewest first, and with each number the
        earliest. One is left out if an earlier start needs fewer."""
        limit, most = self._question.limit, self._question.most_evictions
        if most == 0:
            return []
        soonest = max(0, self._index(self._now + self._question.lead))

        def cost(i: int) -> float:
            return self.cost(self._time(i))

        found: list[_CostlyRange] = []
        for begin, end in segments:
            begin, end = max(begin, soonest), min(end, until - 1)
            fewest = min((each.cost for each in found), default=math.inf)
            taken = 0
            while begin <= end and taken < limit:
                least = cost(end)
                if least == math.inf or least > fewest or (most is not None and least > most):
                    break
                before = next((i for i, each in enumerate(found) if each.last == begin - 1), None)
                if before is None and sum(each.cost <= least for each in found) >= limit:
                    break  # it would not be listed
                first = _first(begin, end, partial(_costs_at_most, cost, least))
                assert first is not None
                if before is not None and first == begin and self._alike(found[before].first, first):
                    found[before] = found[before]._replace(last=end)
                else:
                    found.append(_CostlyRange(least, first, end))
                end, taken = first - 1, taken + 1
                # What is earlier in this segment needs more, which is an answer all the same.
        return [(each.first, each.last) for each in sorted(found)][:limit]

    def _alike(self, one: int, other: int) -> bool:
        """Whether the same pods and plans make way for both starts."""
        a, b = self._attempt(one, BeforeStart.PREEMPT), self._attempt(other, BeforeStart.PREEMPT)
        pods = [sorted(each.object for each in attempt.evicts) for attempt in (a, b)]
        return pods[0] == pods[1] and a.displaces == b.displaces

    def _first_unknown(self, segments: Sequence[tuple[int, int]], until: int) -> tuple[int, int] | None:
        """The earliest range of starts before `until` at which capacity may be free."""
        for begin, end in segments:
            end = min(end, until - 1)
            first = _first(begin, end, lambda i: self._quality(i) >= _QUALITY["Unknown"])
            if first is not None:
                return (first, end) if self._quality(first) == _QUALITY["Unknown"] else None
        return None

    def _quality(self, i: int) -> int:
        return self._attempt(i, BeforeStart.BACKFILL).quality

    def _window(
        self, first: int, last: int, policy: BeforeStart, confidence: Confidence
    ) -> ReservationWindow:
        attempt, start = self._attempt(first, policy), self._time(first)
        return ReservationWindow(
            start=format_time(start),
            latest_start=format_time(self._time(last)),
            end=format_time(start + self._question.duration),
            confidence=confidence,
            evictions=len(attempt.evicts),
            nodes=list(attempt.nodes),
            evicts=list(attempt.evicts),
            waits_for=list(attempt.waits_for),
            enough=list(attempt.enough),
            displaces=list(attempt.displaces),
            message=attempt.message if confidence is Confidence.UNKNOWN else "",
        )

    def _time(self, i: int) -> float:
        return self._first + i * _STEP

    def _note_uncertain(self) -> None:
        """Reservations that miss their start take capacity when they can, also what others plan."""
        late = [
            str(each.reservation.ref)
            for each in self._scheduler.cluster.reservations.calendar
            if each.feasible != "True"
        ]
        if late:
            more = f" and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
            names = ", ".join(late[:_NAMED])
            text = "may start late, and take capacity that is free in these windows"
            self.notes.append(f"{names}{more} {text}")

    def _too_large(self) -> str:
        """Why no start is possible on these nodes; empty if one may be."""
        made = self._reservation(
            self._question.reservations[0], _PROBE, self._time(self._last), BeforeStart.BACKFILL
        )
        with self._unchanged():
            self._scheduler.feed(Added(made), self._now)
            info = self._scheduler.cluster.reservations.get(_PROBE)
            found = ""
            if info is not None and info.pod is not None:
                count = len(self._question.reservations)
                found = larger_than_nodes(self._scheduler, info.pod.cls, count)
            self._scheduler.feed(Deleted(made), self._now)
            self._scheduler.cluster.take_reports()
        return found

    # Asking the planner

    def _attempt(self, i: int, policy: BeforeStart) -> TriedStart:
        found = self._known.get((i, policy))
        if found is None:
            with self._unchanged():
                found = self._known[i, policy] = self._ask(self._time(i), policy)
        return found

    def _ask(self, start: float, policy: BeforeStart) -> TriedStart:
        scheduler, calendar = self._scheduler, self._scheduler.cluster.reservations.calendar
        others = {each.reservation.uid: each.feasible for each in calendar}
        made = [
            self._reservation(raw, f"{_PROBE}-{number}", start, policy)
            for number, raw in enumerate(self._question.reservations)
        ]
        for each in made:
            scheduler.feed(Added(each), self._now)
        scheduler.calendar_planner.run(self._now)
        plans = [calendar.get(each.metadata.uid) for each in made]
        displaces = [
            str(each.reservation.ref)
            for each in calendar
            if _QUALITY[each.feasible] < _QUALITY[others.get(each.reservation.uid, "False")]
        ]
        found = self._answer([each for each in plans if each is not None], displaces)
        for each in made:
            scheduler.feed(Deleted(each), self._now)
        scheduler.cluster.take_reports()  # no round takes them
        return found

    def _answer(self, plans: Sequence[PlannedReservation], displaces: Sequence[str]) -> TriedStart:
        obstacles = [self._scheduler.calendar_planner.questions.obstacles(each) for each in plans]
        victims = {pod.uid: pod for each in obstacles for pod in each.victims}
        violating = {pod.uid for pod in self._budgets.split([*victims.values()])[0]}
        nodes = self._scheduler.cluster.nodes
        worst = min(plans, key=lambda each: _QUALITY[each.feasible])
        return TriedStart(
            _QUALITY[worst.feasible],
            tuple(each.node for each in plans if each.node),
            tuple(
                EvictedPod(str(pod.ref), nodes.name(pod.row), pod.cls.priority, uid not in violating)
                for uid, pod in victims.items()
            ),
            tuple(dict.fromkeys(str(pod.ref) for each in obstacles for pod in each.waited.helping)),
            tuple(dict.fromkeys(str(pod.ref) for each in obstacles for pod in each.waited.enough)),
            tuple(sorted(displaces)),
            worst.message,
        )

    def _reservation(self, raw: Raw, name: str, start: float, policy: BeforeStart) -> Reservation:
        metadata = raw["metadata"]
        annotations = {**metadata.get("annotations", {}), STARTS_AT: format_time(start)}
        return convert(
            {
                **raw,
                "metadata": {
                    **metadata,
                    "name": name,
                    "uid": name,
                    "creationTimestamp": format_time(self._now + 1),  # after all others
                    "annotations": {**annotations, BEFORE_START: str(policy)},
                },
            },
            Reservation,
        )

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Puts the plans back to what they were."""
        calendar = self._scheduler.cluster.reservations.calendar
        before = [(each, each.node, each.feasible, each.message) for each in calendar]
        try:
            yield
        finally:
            for planned, node, feasible, message in before:
                if planned.node != node:
                    calendar.assign(planned, node)
                planned.feasible, planned.message = feasible, message

    @contextmanager
    def _occurrences(self) -> Iterator[None]:
        """Adds the occurrences of ReservationSchedules that have no reservation yet."""
        scheduler = self._scheduler
        known = scheduler.cluster.objects.get(SCHEDULE) or {}
        made: list[Reservation] = []
        for schedule in known.values():
            if isinstance(schedule, ReservationSchedule) and not schedule.spec.suspend:
                made += self._occurrences_of(schedule, _MOST_OCCURRENCES - len(made))
        for each in made:
            scheduler.feed(Added(each), self._now)
        scheduler.calendar_planner.run(self._now)
        try:
            yield
        finally:
            for each in made:
                scheduler.feed(Deleted(each), self._now)
            scheduler.cluster.take_reports()

    def _occurrences_of(self, schedule: ReservationSchedule, most: int) -> list[Reservation]:
        spec, until = schedule.spec, self._now + self._question.within + self._question.duration
        try:
            cron, duration = starts_of(schedule), parse_duration(spec.duration)
        except (CronError, DurationError):
            return []
        if duration <= 0:
            return []
        planned = [
            each.start
            for each in self._scheduler.cluster.reservations.calendar
            if any(owner.uid == schedule.metadata.uid for owner in _owners(each))
        ]
        start = cron.next_after(max([self._now, *planned]))
        made: list[Reservation] = []
        while start is not None and start < until:
            if len(made) == most:
                name, at = schedule.metadata.name, format_time(start)
                self.notes.append(
                    f"occurrences of ReservationSchedule/{name} from {at} on do not count"
                )
                break
            each = occurrence(schedule, start, cron)
            identity = {"uid": each.metadata.name, "creation_timestamp": format_time(self._now)}
            metadata = structs.replace(each.metadata, **identity)
            made.append(structs.replace(each, api_version=RESERVATION_API, metadata=metadata))
            start = cron.next_after(start)
        return made


def _owners(planned: PlannedReservation) -> list[Any]:
    return list(planned.reservation.object.metadata.owner_references)


def _costs_at_most(cost: Callable[[int], float], most: float, start: int) -> bool:
    return cost(start) <= most


def _first(begin: int, end: int, holds: Callable[[int], bool]) -> int | None:
    """The first number for which it holds, if it holds for all after one for which it does."""
    if begin > end or not holds(end):
        return None
    while begin < end:
        middle = (begin + end) // 2
        if holds(middle):
            end = middle
        else:
            begin = middle + 1
    return end
