"""ReservationSchedules: reservations that recur, as a CronJob's Jobs do.

A schedule has the local time of its time zone. A start that daylight saving time skips comes at the
first moment after the gap, and one that it repeats comes once, the first time: a window is neither lost
nor doubled twice a year.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import field

from holdfast.api.cron import CronSchedule, load_zone, parse_cron
from holdfast.api.meta import Condition, Object, Struct
from holdfast.api.reservation import ReservationTemplateSpec


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


def parse_schedule(text: str, time_zone: str | None) -> CronSchedule:
    """Raises CronError."""
    if time_zone and not text.startswith("@every"):
        return LocalSchedule(parse_cron(text), load_zone(time_zone))
    return parse_cron(text, time_zone)


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
