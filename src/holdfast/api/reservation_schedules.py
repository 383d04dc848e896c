"""ReservationSchedules: reservations that recur, as a CronJob's Jobs do.

A schedule has the local time of its time zone. A start that daylight saving time skips comes at the
first moment after the gap, and a local time that it repeats comes once, the first time: a nightly
window is neither lost nor doubled twice a year. So an hourly schedule has no start in the hour that is
repeated.

`@every` counts from the creation of the schedule, in whole minutes: occurrences are named by the
minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import field

from holdfast.api.cron import CronError, CronSchedule, load_zone, parse_cron, parse_interval
from holdfast.api.errors import TimeError
from holdfast.api.meta import Condition, Object, OwnerReference, Struct
from holdfast.api.reservation import Reservation, ReservationTemplateSpec
from holdfast.api.times import parse_time

KIND = "ReservationSchedule"


class ConcurrencyPolicy(StrEnum):
    """What happens to an occurrence that starts before the one before it has ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    """It is left out."""
    REPLACE = "Replace"
    """The one before ends at its start."""


DEFAULT_HISTORY = 3


class ReservationScheduleSpec(Struct):
    schedule: str = ""
    time_zone: str | None = None
    duration: str = ""
    template: ReservationTemplateSpec = field(default_factory=ReservationTemplateSpec)
    lead: str | None = None
    before_start: str = ""
    at_end: str = ""
    release_if_unused_after: str | None = None
    suspend: bool = False
    history_limit: int | None = None
    concurrency_policy: str = ""


class ReservationScheduleStatus(Struct):
    last_start: str | None = None
    next_start: str | None = None
    active: list[str] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class ReservationSchedule(Object):
    spec: ReservationScheduleSpec = field(default_factory=ReservationScheduleSpec)
    status: ReservationScheduleStatus = field(default_factory=ReservationScheduleStatus)


class LocalSchedule:
    """A cron schedule in local time."""

    def __init__(self, schedule: CronSchedule, zone: ZoneInfo) -> None:
        """`schedule` takes local times for times in UTC."""
        self._schedule = schedule
        self._zone = zone

    def next_after(self, t: float) -> float | None:
        """The first start after `t`, both in seconds since the epoch."""
        local = _local(t, self._zone)
        while True:
            due = self._schedule.next_after(local)
            if due is None:
                return None
            found = _instant(due, self._zone)
            if found > t:
                return found
            local = due  # it was repeated, and this is the second time


@dataclass(frozen=True, slots=True)
class Interval:
    """`@every`: the same time again and again, whatever the clock shows."""

    first: float
    """What the starts are counted from; it is none of them."""
    seconds: float

    def next_after(self, t: float) -> float | None:
        passed = max(0.0, (t - self.first) // self.seconds)
        return self.first + (passed + 1) * self.seconds


def schedule_of(reservation: Reservation) -> OwnerReference | None:
    """The schedule that a reservation is an occurrence of."""
    for owner in reservation.metadata.owner_references:
        if owner.kind == KIND and owner.controller:
            return owner
    return None


def starts_of(schedule: ReservationSchedule) -> CronSchedule:
    """When the reservations of a schedule start. Raises CronError."""
    spec, text = schedule.spec, schedule.metadata.creation_timestamp
    try:
        created = parse_time(text) if text else 0.0
    except TimeError:
        created = 0.0
    return parse_schedule(spec.schedule, spec.time_zone, created)


def parse_schedule(text: str, time_zone: str | None, created: float = 0.0) -> CronSchedule:
    """Raises CronError."""
    seconds = parse_interval(text)
    if seconds is not None:
        if seconds < 60 or seconds % 60:
            raise CronError("the interval of @every must be a whole number of minutes, at least 1m")
        return Interval(float(int(created)), seconds)
    if time_zone:
        return LocalSchedule(parse_cron(text), load_zone(time_zone))
    return parse_cron(text)


def _local(t: float, zone: ZoneInfo) -> float:
    """The local time, as if it were in UTC."""
    return datetime.fromtimestamp(t, zone).replace(tzinfo=UTC).timestamp()


def _instant(local: float, zone: ZoneInfo) -> float:
    """When it is that local time: the first time where it is repeated, and the first moment after it
    where it is skipped."""
    wall = datetime.fromtimestamp(local, UTC).replace(tzinfo=zone, fold=0)
    found = wall.timestamp()
    if _local(found, zone) == local:
        return found
    before, after = wall.replace(fold=1).timestamp(), found
    while after - before > 1:
        middle = (before + after) // 2
        if _local(middle, zone) < local:
            before = middle
        else:
            after = middle
    return after
