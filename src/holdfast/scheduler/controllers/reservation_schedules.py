"""The ReservationSchedule controller: creates a Reservation for each occurrence, and deletes old ones.

The next occurrence is created as soon as the one before has started, so that it is planned ahead. Its
name derives from its start, as a CronJob's Jobs are named: no occurrence is created twice, also after a
restart. An occurrence that was missed (no scheduler was running) is created if its time is not over.
A changed schedule replaces the reservation that has not started yet.
"""

from typing import NamedTuple

import msgspec

from holdfast.api import names
from holdfast.api.cron import CronError, CronSchedule
from holdfast.api.errors import DurationError, TimeError
from holdfast.api.meta import Condition, ObjectMeta, OwnerReference
from holdfast.api.reservation import Reservation
from holdfast.api.reservation_schedules import (
    DEFAULT_HISTORY,
    ConcurrencyPolicy,
    ReservationSchedule,
    ReservationScheduleStatus,
    parse_schedule,
)
from holdfast.api.times import format_time, parse_duration, parse_time
from holdfast.scheduler.cluster.decisions import (
    CreateReservation,
    Decision,
    Emit,
    ObjectRef,
    SetScheduleStatus,
)
from holdfast.scheduler.cluster.records import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster

KIND = "ReservationSchedule"
SCHEDULED = "Scheduled"
_SUSPENDED = "Suspended"
_CREATE_AGAIN = 10.0
"""Seconds until a reservation that was not seen after its creation is created again."""
_WRITE_AGAIN = 60.0
"""Seconds until a status that was not seen after it was written is written again."""
_MOST_MISSED = 1000


class _Terms(NamedTuple):
    """What a schedule says, parsed."""

    schedule: CronSchedule
    duration: float


class ReservationSchedules:
    """Reconciles ReservationSchedules."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: tuple[int, ...] = ()
        self._due: float | None = None
        self._decided: dict[str, float] = {}
        """When the creation of a reservation was last decided, by its name."""
        self._written: dict[str, tuple[ReservationScheduleStatus, float]] = {}
        """The status last written of each schedule and when, by uid, until the watch delivers it."""

    def run(self, now: float) -> list[Decision]:
        schedules = self._cluster.objects.get(KIND)
        if not schedules:
            return []
        epoch = self._cluster.epoch
        seen = epoch.kinds[KIND], epoch.reservations.end, self._cluster.reservations.calendar.revision
        if seen == self._seen and (self._due is None or now < self._due):
            return []
        self._seen, self._due = seen, None
        children: dict[str, list[ReservationInfo]] = {}
        for reservation in self._cluster.reservations.known.values():
            for owner in reservation.object.metadata.owner_references:
                if owner.kind == KIND and owner.controller:
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
            terms = _Terms(parse_schedule(spec.schedule, spec.time_zone), parse_duration(spec.duration))
        except (CronError, DurationError) as error:
            return self._set_status(schedule, children, None, str(error), now)
        if terms.duration <= 0:
            why = f"spec.duration: must be greater than 0: {spec.duration!r}"
            return self._set_status(schedule, children, None, why, now)
        live = [each for each in children if not each.finished and not each.deleting]
        decisions: list[Decision] = []
        for reservation in live:
            if _is_outdated(schedule, reservation, now):
                decisions += self._delete(reservation, f"{schedule.metadata.name} changed")
        live = [each for each in live if not each.deleting]
        start = None if spec.suspend else self._next(schedule, terms, live, children, now)
        if start is not None:
            decisions += self._create(schedule, terms, start, now)
        if spec.concurrency_policy == ConcurrencyPolicy.REPLACE:
            started = [each for each in live if each.since <= now]
            for reservation in started[:-1]:
                decisions += self._delete(reservation, "replaced by the next occurrence")
        decisions += self._delete_old(schedule, children)
        coming = [each.since for each in live if each.since > now]
        upcoming = min([*coming, *([start] if start is not None and start > now else [])], default=None)
        self._wake_at(upcoming)
        return decisions + self._set_status(schedule, children, upcoming, "", now)

    def _next(
        self,
        schedule: ReservationSchedule,
        terms: _Terms,
        live: list[ReservationInfo],
        children: list[ReservationInfo],
        now: float,
    ) -> float | None:
        """The start of the occurrence to create now; None if the next one exists, or never comes."""
        if any(each.since > now for each in live):
            return None
        last = max((each.since for each in children if each.since <= now), default=None)
        known = _time(schedule.status.last_start)
        if known is not None and (last is None or known > last):
            last = known
        created = _time(schedule.metadata.creation_timestamp) or now
        at = created if last is None else max(last, created)
        # Of the occurrences that were missed, only one whose time is not over counts.
        at = max(at, now - terms.duration)
        start = terms.schedule.next_after(at)
        missed = 0
        while start is not None and start <= now and missed < _MOST_MISSED:
            after = terms.schedule.next_after(start)
            if after is None or after > now:
                break
            start, missed = after, missed + 1
        if start is None:
            return None
        forbids = schedule.spec.concurrency_policy == ConcurrencyPolicy.FORBID
        while (
            forbids
            and start is not None
            and any(each.expires is None or each.expires > start for each in live)
        ):
            start = terms.schedule.next_after(start)
            missed += 1
            if missed > _MOST_MISSED:
                return None
        return start

    def _create(
        self, schedule: ReservationSchedule, terms: _Terms, start: float, now: float
    ) -> list[Decision]:
        name = occurrence_name(schedule, start)
        decided = self._decided.get(name)
        if decided is not None and now < decided + _CREATE_AGAIN:
            self._wake_at(decided + _CREATE_AGAIN)
            return []
        known = self._cluster.reservations.get(name)
        if known is not None:
            return []
        self._decided = {each: at for each, at in self._decided.items() if at + _CREATE_AGAIN > now}
        self._decided[name] = now
        self._wake_at(now + _CREATE_AGAIN)
        about = _ref(schedule)
        text = f"created reservation {name}, which starts at {format_time(start)}"
        return [
            CreateReservation(occurrence(schedule, name, start)),
            Emit(about, "Normal", "SuccessfulCreate", text, "Planning"),
        ]

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
        error: str,
        now: float,
    ) -> list[Decision]:
        """Writes the status if it differs, and an event for an error or a change of spec.suspend."""
        before = schedule.status
        known = before.conditions[0] if before.conditions else None
        started = [each.since for each in children if each.since <= now]
        last = max(
            [*started, *([t] if (t := _time(before.last_start)) is not None else [])], default=None
        )
        reason = "InvalidSchedule" if error else _SUSPENDED if schedule.spec.suspend else "Scheduled"
        true = "False" if reason != "Scheduled" else "True"
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
            decisions.append(Emit(_ref(schedule), "Warning", "InvalidSchedule", error, "Planning"))
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


def occurrence(schedule: ReservationSchedule, name: str, start: float) -> Reservation:
    """The reservation of an occurrence."""
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
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=ObjectMeta(
            name=name, labels=dict(given.labels), annotations=annotations, owner_references=[owner]
        ),
        spec=msgspec.structs.replace(spec.template.spec, ttl=spec.duration, expires=None),
    )


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
