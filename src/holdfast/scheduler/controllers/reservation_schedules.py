"""The ReservationSchedule controller: creates a Reservation for each occurrence, and deletes old ones.

The next occurrence is created as soon as the one before has started, so that it is planned ahead. Its
name derives from its start, as a CronJob's Jobs are named: no occurrence is created twice, also after a
restart. An occurrence that was missed (no scheduler was running) is created if its time is not over.
A changed schedule replaces the reservation that has not started yet.

An occurrence whose name another Reservation has is left out, for as long as that exists, and the ones
after it are created; one that the API server refuses is tried again, later each time. Both are in the
condition Scheduled, and in an event.
"""

from typing import NamedTuple

import msgspec

from holdfast.api import names
from holdfast.api.cron import CronError, CronSchedule, never_due_text
from holdfast.api.errors import DurationError, TimeError
from holdfast.api.meta import Condition, ObjectMeta, OwnerReference
from holdfast.api.reservation import Reservation
from holdfast.api.reservation_schedules import (
    DEFAULT_HISTORY,
    KIND,
    ConcurrencyPolicy,
    ReservationSchedule,
    ReservationScheduleStatus,
    schedule_of,
    starts_of,
)
from holdfast.api.times import format_duration, format_time, parse_duration, parse_time
from holdfast.scheduler.cluster.decisions import (
    CreateReservation,
    Decision,
    Emit,
    ObjectRef,
    SetScheduleStatus,
)
from holdfast.scheduler.cluster.records import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster

SCHEDULED = "Scheduled"
_SUSPENDED = "Suspended"
_CREATE_AGAIN = 10.0
"""Seconds until a reservation that was not seen after its creation is created again; twice as long
after each refusal."""
_MAX_CREATE_AGAIN = 600.0
_WRITE_AGAIN = 60.0
"""Seconds until a status that was not seen after it was written is written again."""
_MOST_MISSED = 1000
_FORGOTTEN = 3600.0
"""Seconds after which the creation of a reservation that nothing asks for any more is forgotten."""
_INVALID = "InvalidSchedule"


class _Terms(NamedTuple):
    """What a schedule says, parsed."""

    starts: CronSchedule
    duration: float


class _Problem(NamedTuple):
    """Why the condition Scheduled is False."""

    reason: str
    message: str


class _Attempt:
    """The creation of a reservation that was not seen yet."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.refused = 0
        self.message = ""
        """Why it was refused the last time."""
        self.again = 0.0
        """When it is tried again."""

    def begin(self, now: float) -> None:
        delay = _CREATE_AGAIN * 2.0 ** min(self.refused, 10)
        self.again = now + min(delay, _MAX_CREATE_AGAIN)


class _Next(NamedTuple):
    """The occurrence to create now."""

    start: float | None
    """None if it exists already, or never comes."""
    taken: ReservationInfo | None = None
    """Another reservation that has the name of an occurrence before, which is left out."""
    left_out: float | None = None
    """The start of that occurrence."""


class ReservationSchedules:
    """Reconciles ReservationSchedules."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: tuple[int, ...] = ()
        self._due: float | None = None
        self._attempts: dict[str, _Attempt] = {}
        """By the name of the reservation."""
        self._written: dict[str, tuple[ReservationScheduleStatus, float]] = {}
        """The status last written of each schedule and when, by uid, until the watch delivers it."""

    def run(self, now: float) -> list[Decision]:
        schedules = self._cluster.objects.get(KIND)
        if not schedules:
            self._seen, self._due = (), None
            return []
        epoch = self._cluster.epoch
        refused = self._cluster.reservations.take_not_created()
        seen = epoch.kinds[KIND], epoch.reservations.end, self._cluster.reservations.calendar.revision
        if seen == self._seen and not refused and (self._due is None or now < self._due):
            return []
        self._seen, self._due = seen, None
        for name, message in refused.items():
            if (attempt := self._attempts.get(name)) is not None:
                attempt.refused += 1
                attempt.message = message
        children: dict[str, list[ReservationInfo]] = {}
        for reservation in self._cluster.reservations.known.values():
            if (owner := schedule_of(reservation.object)) is not None:
                children.setdefault(owner.uid, []).append(reservation)
        decisions: list[Decision] = []
        for schedule in list(schedules.values()):
            if isinstance(schedule, ReservationSchedule):
                mine = sorted(children.get(schedule.metadata.uid, ()), key=lambda each: each.since)
                decisions += self._reconcile(schedule, mine, now)
        return decisions

    def next_timer(self) -> float | None:
        return self._due

    def _reconcile(
        self, schedule: ReservationSchedule, children: list[ReservationInfo], now: float
    ) -> list[Decision]:
        spec = schedule.spec
        if schedule.metadata.deletion_timestamp is not None:
            return []
        try:
            terms = _Terms(starts_of(schedule), parse_duration(spec.duration))
        except (CronError, DurationError) as error:
            problem = _Problem(_INVALID, str(error))
            return self._set_status(schedule, children, None, problem, now)
        if terms.duration <= 0:
            problem = _Problem(_INVALID, f"spec.duration: must be greater than 0: {spec.duration!r}")
            return self._set_status(schedule, children, None, problem, now)
        decisions = self._emit_created(schedule, children)
        live = [each for each in children if not each.finished and not each.deleting]
        for reservation in live:
            if _is_outdated(schedule, reservation, now):
                decisions += self._delete(reservation, f"{schedule.metadata.name} changed")
        live = [each for each in live if not each.deleting]
        following = _Next(None) if spec.suspend else self._next(schedule, terms, live, children, now)
        start = following.start
        if start is not None:
            decisions += self._create(schedule, terms, start, now)
        if spec.concurrency_policy == ConcurrencyPolicy.REPLACE:
            # Those that were made from this version of the schedule expire then.
            started = [each for each in live if each.since <= now]
            for reservation in started[:-1]:
                if reservation.expires is None or reservation.expires > now:
                    decisions += self._delete(reservation, "replaced by the next occurrence")
        decisions += self._delete_old(schedule, children)
        coming = [each.since for each in live if each.since > now]
        upcoming = min([*coming, *([start] if start is not None and start > now else [])], default=None)
        self._wake_at(upcoming)
        if following.left_out is not None:
            ends = following.left_out + terms.duration
            self._wake_at(following.left_out if following.left_out > now else ends)
        problem_now = None if spec.suspend else self._problem(schedule, terms, following, now)
        return decisions + self._set_status(schedule, children, upcoming, problem_now, now)

    def _next(
        self,
        schedule: ReservationSchedule,
        terms: _Terms,
        live: list[ReservationInfo],
        children: list[ReservationInfo],
        now: float,
    ) -> _Next:
        """The occurrence to create now."""
        last = max((each.since for each in children if each.since <= now), default=None)
        known = _time(schedule.status.last_start)
        if known is not None and (last is None or known > last):
            last = known
        created = _time(schedule.metadata.creation_timestamp) or now
        at = created if last is None else max(last, created)
        # Of the occurrences that were missed, only one whose time is not over counts.
        at = max(at, now - terms.duration)
        start = terms.starts.next_after(at)
        missed = 0
        while start is not None and start <= now and missed < _MOST_MISSED:
            after = terms.starts.next_after(start)
            if after is None or after > now:
                break
            start, missed = after, missed + 1
        taken: ReservationInfo | None = None
        left_out: float | None = None
        forbids = schedule.spec.concurrency_policy == ConcurrencyPolicy.FORBID
        while start is not None and missed <= _MOST_MISSED:
            other = self._cluster.reservations.get(occurrence_name(schedule, start))
            if other is not None and not _is_of(other, schedule):
                if taken is None:
                    taken, left_out = other, start
            elif not (forbids and any(_overlaps(each, start, terms.duration) for each in live)):
                break
            start, missed = terms.starts.next_after(start), missed + 1
        if start is None or missed > _MOST_MISSED or any(now < each.since <= start for each in live):
            return _Next(None, taken, left_out)
        return _Next(start, taken, left_out)

    def _create(
        self, schedule: ReservationSchedule, terms: _Terms, start: float, now: float
    ) -> list[Decision]:
        name = occurrence_name(schedule, start)
        if self._cluster.reservations.get(name) is not None:
            return []
        attempt = self._attempts.get(name)
        if attempt is None:
            attempts = self._attempts.items()
            self._attempts = {key: each for key, each in attempts if each.again + _FORGOTTEN > now}
            attempt = self._attempts[name] = _Attempt(start)
        if now < attempt.again:
            self._wake_at(attempt.again)
            return []
        attempt.begin(now)
        self._wake_at(attempt.again)
        return [CreateReservation(occurrence(schedule, start, terms.starts))]

    def _emit_created(
        self, schedule: ReservationSchedule, children: list[ReservationInfo]
    ) -> list[Decision]:
        """Events for reservations that were created and are seen now."""
        decisions: list[Decision] = []
        for child in children if self._attempts else ():
            attempt = self._attempts.pop(child.name, None)
            if attempt is not None:
                at = format_time(attempt.start)
                text = f"created reservation {child.name}, which starts at {at}"
                decisions.append(Emit(_ref(schedule), "Normal", "SuccessfulCreate", text, "Planning"))
        return decisions

    def _problem(
        self, schedule: ReservationSchedule, terms: _Terms, following: _Next, now: float
    ) -> _Problem | None:
        """Why the next occurrence has no reservation, if it has none."""
        if following.start is not None:
            name = occurrence_name(schedule, following.start)
            attempt = self._attempts.get(name)
            if attempt is not None and attempt.message:
                return _Problem(
                    "FailedCreate", f"reservation {name} was not created: {attempt.message}"
                )
        if following.taken is not None and following.left_out is not None:
            return _Problem("NameTaken", _taken_text(schedule, following.taken, following.left_out))
        if terms.starts.next_after(now) is None:
            return _Problem("NeverDue", f"spec.schedule: {never_due_text(schedule.spec.schedule)}")
        return None

    def _delete(self, reservation: ReservationInfo, why: str) -> list[Decision]:
        return self._cluster.reservations.delete(reservation, why)

    def _delete_old(
        self, schedule: ReservationSchedule, children: list[ReservationInfo]
    ) -> list[Decision]:
        """Deletes finished reservations beyond the history limit, the oldest first."""
        limit = schedule.spec.history_limit
        kept = DEFAULT_HISTORY if limit is None else limit
        finished = [each for each in children if each.finished and not each.deleting]
        decisions: list[Decision] = []
        for reservation in finished[: max(0, len(finished) - kept)]:
            decisions += self._delete(reservation, "beyond the history limit of its schedule")
        return decisions

    def _set_status(
        self,
        schedule: ReservationSchedule,
        children: list[ReservationInfo],
        upcoming: float | None,
        problem: _Problem | None,
        now: float,
    ) -> list[Decision]:
        """Writes the status if it differs, and an event for a problem or a change of spec.suspend."""
        before = schedule.status
        known = before.conditions[0] if before.conditions else None
        started = [each.since for each in children if each.since <= now]
        last = max(
            [*started, *([t] if (t := _time(before.last_start)) is not None else [])], default=None
        )
        reason = _SUSPENDED if schedule.spec.suspend else SCHEDULED
        reason, error = problem or _Problem(reason, "")
        true = "False" if reason != SCHEDULED else "True"
        condition = Condition(type=SCHEDULED, status=true, reason=reason, message=error)
        same = known is not None and (known.status, known.reason, known.message) == (
            true,
            reason,
            error,
        )
        condition.last_transition_time = (
            known.last_transition_time if known is not None and same else format_time(now)
        )
        status = ReservationScheduleStatus(
            last_start=None if last is None else format_time(last),
            next_start=None if upcoming is None else format_time(upcoming),
            active=[each.name for each in children if not each.finished and not each.deleting],
            conditions=[condition],
        )
        if status == before:
            self._written.pop(schedule.metadata.uid, None)
            return []
        written, at = self._written.get(schedule.metadata.uid, (None, 0.0))
        if written == status and now < at + _WRITE_AGAIN:
            return []
        self._written[schedule.metadata.uid] = status, now
        decisions: list[Decision] = [SetScheduleStatus(_ref(schedule), status)]
        if error and not same:
            decisions.append(Emit(_ref(schedule), "Warning", reason, error, "Planning"))
        last_known = (written or before).conditions
        was = last_known[0].reason if last_known else ""
        if reason == _SUSPENDED != was:
            text = "no reservations are created, and those that had not started are deleted"
            decisions.append(Emit(_ref(schedule), "Normal", _SUSPENDED, text, "Planning"))
        elif reason == SCHEDULED and was == _SUSPENDED:
            text = "reservations are created again"
            decisions.append(Emit(_ref(schedule), "Normal", "Resumed", text, "Planning"))
        return decisions

    def _wake_at(self, time: float | None) -> None:
        if time is not None:
            self._due = time if self._due is None else min(self._due, time)


def occurrence_name(schedule: ReservationSchedule, start: float) -> str:
    """The name of the reservation that starts then."""
    return f"{schedule.metadata.name}-{int(start // 60)}"


def occurrence(schedule: ReservationSchedule, start: float, starts: CronSchedule) -> Reservation:
    """The reservation of an occurrence. One that the next occurrence replaces ends when that starts."""
    spec, given = schedule.spec, schedule.spec.template.metadata
    settings = {
        names.LEAD: spec.lead,
        names.BEFORE_START: spec.before_start,
        names.AT_END: spec.at_end,
        names.RELEASE_IF_UNUSED_AFTER: spec.release_if_unused_after,
        names.SCHEDULE_GENERATION: str(schedule.metadata.generation or 0),
    }
    annotations = {**given.annotations, names.STARTS_AT: format_time(start)}
    annotations |= {key: value for key, value in settings.items() if value}
    owner = OwnerReference(
        api_version=names.HOLDFAST_API,
        kind=KIND,
        name=schedule.metadata.name,
        uid=schedule.metadata.uid,
        controller=True,
    )
    ttl = spec.duration
    if spec.concurrency_policy == ConcurrencyPolicy.REPLACE:
        following = starts.next_after(start)
        if following is not None and following < start + parse_duration(spec.duration):
            ttl = format_duration(following - start)
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=ObjectMeta(
            name=occurrence_name(schedule, start),
            labels=dict(given.labels),
            annotations=annotations,
            owner_references=[owner],
        ),
        spec=msgspec.structs.replace(spec.template.spec, ttl=ttl, expires=None),
    )


def _is_of(reservation: ReservationInfo, schedule: ReservationSchedule) -> bool:
    owner = schedule_of(reservation.object)
    return owner is not None and owner.uid == schedule.metadata.uid


def _taken_text(schedule: ReservationSchedule, other: ReservationInfo, start: float) -> str:
    owner = schedule_of(other.object)
    if owner is not None and owner.name == schedule.metadata.name:
        whose = "is of a deleted schedule of the same name"
    else:
        whose = "is not of this schedule"
    text = f"reservation {other.name} {whose}; delete it to have the occurrence created"
    return f"no reservation for {format_time(start)}: {text}"


def _overlaps(reservation: ReservationInfo, start: float, duration: float) -> bool:
    """Whether it is reserved at a time of the occurrence that starts then, and is not that one."""
    if reservation.since == start or reservation.since >= start + duration:
        return False
    return reservation.expires is None or reservation.expires > start


def _is_outdated(schedule: ReservationSchedule, reservation: ReservationInfo, now: float) -> bool:
    """Whether a reservation that has not started was made from another version of the schedule, or the
    schedule is suspended."""
    if reservation.since <= now:
        return False
    made_from = reservation.object.metadata.annotations.get(names.SCHEDULE_GENERATION, "")
    return schedule.spec.suspend or made_from != str(schedule.metadata.generation or 0)


def _ref(schedule: ReservationSchedule) -> ObjectRef:
    return ObjectRef(KIND, "", schedule.metadata.name, schedule.metadata.uid)


def _time(text: str | None) -> float | None:
    try:
        return parse_time(text) if text else None
    except TimeError:
        return None
