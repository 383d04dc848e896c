"""Cron schedules with time zones, read and evaluated as Kubernetes' CronJobs are.

    schedule = parse_cron("30 6 * * MON-FRI", "Europe/Berlin")
    schedule.next_after(now)        # seconds since the epoch, or None if it never comes

Five fields (minute, hour, day of month, month, day of week) of numbers, names, ranges `a-b`, steps `/n`
and lists, or a descriptor such as `@hourly` or `@every 90m`. A schedule is due at every moment whose
local time matches it. So a time that daylight saving time skips does not come on that day, and one that
it repeats comes twice. If both day fields are restricted, a day that matches either of them counts.

The error messages are those of the parser in kube-controller-manager and the API server.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from holdfast.api.errors import DurationError, MalformedText
from holdfast.api.times import parse_duration

SEARCHED_YEARS = 5
"""How far ahead a match is looked for. The 30th of February never comes."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_MOST_CHARACTERS = 4096
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")


def never_due_text(schedule: str) -> str:
    """That a schedule, such as that of 31 February, has no start."""
    return f"{schedule!r} has no start within {SEARCHED_YEARS} years"


class CronError(MalformedText):
    """A schedule or a time zone that cannot be used."""


class CronSchedule(Protocol):
    def next_after(self, t: float) -> float | None:
        """The first time after `t` at which it is due, both in seconds since the epoch."""


def parse_cron(text: str, time_zone: str | None = None) -> CronSchedule:
    """The schedule in a time zone of the IANA database, UTC if none is given. Raises CronError."""
    zone = load_zone(time_zone) if time_zone else UTC
    if not text:
        raise CronError("empty spec string")
    if len(text) > _MOST_CHARACTERS:
        raise CronError(f"longer than {_MOST_CHARACTERS} characters")
    if text.startswith("@"):
        if (seconds := parse_interval(text)) is not None:
            return _Interval(float(max(1, int(seconds))))
        if text not in _DESCRIPTORS:
            raise CronError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        listed = " ".join(fields)
        raise CronError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{listed}]")
    minutes, hours, days, months, weekdays = map(_values, fields, _FIELDS)
    return _Calendar(minutes, hours, days, months, weekdays, zone)


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    """Raises CronError, as Go's time package puts it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise CronError(f"unknown time zone {name}") from None


# Parsing


class _Bounds(NamedTuple):
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        if text.lower() in self.names:
            return self.low + self.names.index(text.lower())
        if _INTEGER.fullmatch(text) is None:
            why = "value out of range" if text.isdigit() else "invalid syntax"
            raise CronError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {why}')
        number = int(text)
        if number < 0:
            raise CronError(f"negative number ({number}) not allowed: {text}")
        return number


_FIELDS = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)


class _Values(NamedTuple):
    """The values of a field; `every` if it is a star, which restricts nothing."""

    numbers: tuple[int, ...]
    every: bool


def _values(field: str, bounds: _Bounds) -> _Values:
    numbers: set[int] = set()
    every = False
    for part in filter(None, field.split(",")):
        chosen, star = _range(part, bounds)
        numbers.update(chosen)
        every = every or star
    return _Values(tuple(sorted(numbers)), every)


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    """`number | number-number | *`, each with `/step` or without."""
    span, *steps = text.split("/")
    ends = span.split("-")
    star = ends[0] in ("*", "?")
    if star:
        low, high = bounds.low, bounds.high
    else:
        low = high = bounds.number(ends[0])
        if len(ends) == 2:
            high = bounds.number(ends[1])
        elif len(ends) > 2:
            raise CronError(f"too many hyphens: {text}")
    step = 1
    if len(steps) == 1:
        step = _Bounds(0, 0).number(steps[0])
        if len(ends) == 1 and not star:
            high = bounds.high  # 5/15 is 5-59/15
        star = star and step <= 1
    elif steps:
        raise CronError(f"too many slashes: {text}")
    if low < bounds.low:
        raise CronError(f"beginning of range ({low}) below minimum ({bounds.low}): {text}")
    if high > bounds.high:
        raise CronError(f"end of range ({high}) above maximum ({bounds.high}): {text}")
    if low > high:
        raise CronError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise CronError(f"step of range should be a positive number: {text}")
    return range(low, high + 1, step), star


def parse_interval(text: str) -> float | None:
    """The seconds of `@every`; None for another schedule. Raises CronError."""
    if not text.startswith(_EVERY):
        return None
    try:
        return parse_duration(text.removeprefix(_EVERY))
    except DurationError as error:
        raise CronError(f"failed to parse duration {text}: {error}") from None


# Evaluation


@dataclass(frozen=True, slots=True)
class _Interval:
    """`@every`: the same time after the last one, whatever the clock shows."""

    seconds: float

    def next_after(self, t: float) -> float | None:
        return float(int(t)) + self.seconds


@dataclass(frozen=True, slots=True)
class _Calendar:
    minutes: _Values
    hours: _Values
    days: _Values
    months: _Values
    weekdays: _Values
    zone: tzinfo

    def next_after(self, t: float) -> float | None:
        start = datetime.fromtimestamp(t, self.zone)
        day: date | None = start.date()
        last = start.year + SEARCHED_YEARS
        while day is not None and day.year <= last:
            if day.month not in self.months.numbers:
                day = self._next_month(day)
            elif self._is_due_on(day) and (found := self._first_of(day, t)) is not None:
                return found
            else:
                day = _plus_days(day, 1)
        return None

    def _next_month(self, day: date) -> date | None:
        return _plus_days(day, monthrange(day.year, day.month)[1] - day.day + 1)

    def _is_due_on(self, day: date) -> bool:
        by_date = day.day in self.days.numbers
        by_weekday = day.isoweekday() % 7 in self.weekdays.numbers
        if self.days.every or self.weekdays.every:
            return by_date and by_weekday
        return by_date or by_weekday

    def _first_of(self, day: date, t: float) -> float | None:
        """The first match on that day after `t`."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        offset = midnight.utcoffset()
        following = _plus_days(day, 1)
        ends = [midnight.replace(fold=1)]
        if following is not None:
            after = datetime(following.year, following.month, following.day, tzinfo=self.zone)
            ends += [after, after.replace(fold=1)]
        if all(end.utcoffset() == offset for end in ends):
            return self._first_with_offset(midnight.timestamp(), t)
        moments = {
            moment
            for hour in self.hours.numbers
            for minute in self.minutes.numbers
            for moment in _moments(midnight.replace(hour=hour, minute=minute))
        }
        return min((moment for moment in moments if moment > t), default=None)

    def _first_with_offset(self, midnight: float, t: float) -> float | None:
        """On a day on which the clock does not change."""
        passed = t - midnight
        for hour in self.hours.numbers:
            if hour * 3600 + 3599 <= passed:
                continue
            for minute in self.minutes.numbers:
                seconds = hour * 3600 + minute * 60
                if seconds > passed:
                    return midnight + seconds
        return None


def _moments(local: datetime) -> list[float]:
    """When a clock in that zone shows this time: once, not at all, or twice."""
    found = []
    for fold in (0, 1):
        moment = local.replace(fold=fold).astimezone(UTC)
        if moment.astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None):
            found.append(moment.timestamp())
    return found


def _plus_days(day: date, count: int) -> date | None:
    try:
        return day + timedelta(days=count)
    except OverflowError:
        return None
