"""Timestamps and durations of CEL."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.machinery.schema.cel.overloads import (
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    Functions,
    Overload,
    failed,
    function,
    method,
)
from holdfast.machinery.schema.cel.syntax import MAX_INT, MIN_INT
from holdfast.machinery.schema.cel.values import DurationValue, TimestampValue

SECOND = 10**9
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"(\d+)?(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[-+]\d\d:\d\d)", re.ASCII)
_OFFSET = re.compile(r"([-+])?(\d\d):(\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62135596800 * SECOND, 253402300800 * SECOND - 1
"""The years 1 to 9999."""


def duration(text: str) -> DurationValue:
    """A duration as Go writes it: `1h45m`, `-1.5s`, `0`."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return DurationValue(0)
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or (part[1] is None and not part[2]):
            break
        unit = _UNITS[part[3]]
        fraction = part[2] or ""
        total += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        at = part.end()
    if not rest or at < len(rest) or not MIN_INT <= sign * total <= MAX_INT:
        raise failed("type conversion error from 'string' to 'google.protobuf.Duration'")
    return DurationValue(sign * total)


def timestamp(text: str) -> TimestampValue:
    """A time of RFC 3339."""
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        offset = found[4].upper().replace("Z", "+00:00")
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}{offset}")
    except ValueError:
        raise failed("type conversion error from 'string' to 'google.protobuf.Timestamp'") from None
    nano = int((found[3] or "0").ljust(9, "0")[:9])
    return _checked((moment - _EPOCH) // timedelta(seconds=1) * SECOND + nano)


def timestamp_of(seconds: int) -> TimestampValue:
    return _checked(int(seconds) * SECOND)


def timestamp_text(value: TimestampValue) -> str:
    seconds, nano = divmod(value.nano, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f".{nano:09}".rstrip("0") if nano else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f"{fraction}Z"


def duration_text(value: DurationValue) -> str:
    """In seconds."""
    seconds, nano = divmod(abs(value.nano), SECOND)
    fraction = f".{nano:09}".rstrip("0") if nano else ""
    return f"{'-' if value.nano < 0 else ''}{seconds}{fraction}s"


def _checked(nano: int) -> TimestampValue:
    if not _FIRST <= nano <= _LAST:
        raise failed("timestamp overflow")
    return TimestampValue(nano)


def checked_duration(nano: int) -> DurationValue:
    if not MIN_INT <= nano <= MAX_INT:
        raise failed("duration overflow")
    return DurationValue(nano)


def _zone(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        if int(offset[3]) > 59:
            raise failed(f"timezone offset minutes out of range [0, 59]: {name}")
        shift = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if shift < timedelta(days=1):
            return timezone(-shift if offset[1] == "-" else shift)
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise failed(f"unknown time zone {name}") from None


def _field(read: Callable[[datetime], int]) -> list[Overload]:
    """A part of a timestamp, in UTC or in a zone."""

    def of(value: TimestampValue, zone: str = "UTC") -> int:
        moment = _EPOCH + timedelta(microseconds=value.nano // 1000)
        try:
            return read(moment.astimezone(_zone(zone)))
        except OverflowError:
            raise failed("timestamp overflow") from None

    return [method((TIMESTAMP,), INT, of), method((TIMESTAMP, STRING), INT, of)]


def _total(unit: int) -> Overload:
    """A duration in units, without the fraction."""

    def of(value: DurationValue) -> int:
        whole = abs(value.nano) // unit
        return -whole if value.nano < 0 else whole

    return method((DURATION,), INT, of)


TIMES: Functions = {
    "timestamp": [
        function((STRING,), TIMESTAMP, timestamp),
        function((INT,), TIMESTAMP, timestamp_of),
        function((TIMESTAMP,), TIMESTAMP, lambda value: value),
    ],
    "duration": [
        function((STRING,), DURATION, duration),
        function((INT,), DURATION, DurationValue),
        function((DURATION,), DURATION, lambda value: value),
    ],
    "string": [
        function((TIMESTAMP,), STRING, timestamp_text),
        function((DURATION,), STRING, duration_text),
    ],
    "int": [
        function((TIMESTAMP,), INT, lambda value: value.nano // SECOND),
        function((DURATION,), INT, lambda value: value.nano),
    ],
    "_+_": [
        function((TIMESTAMP, DURATION), TIMESTAMP, lambda a, b: _checked(a.nano + b.nano)),
        function((DURATION, TIMESTAMP), TIMESTAMP, lambda a, b: _checked(a.nano + b.nano)),
        function((DURATION, DURATION), DURATION, lambda a, b: checked_duration(a.nano + b.nano)),
    ],
    "_-_": [
        function((TIMESTAMP, DURATION), TIMESTAMP, lambda a, b: _checked(a.nano - b.nano)),
        function((TIMESTAMP, TIMESTAMP), DURATION, lambda a, b: checked_duration(a.nano - b.nano)),
        function((DURATION, DURATION), DURATION, lambda a, b: checked_duration(a.nano - b.nano)),
    ],
    "getFullYear": _field(lambda moment: moment.year),
    "getMonth": _field(lambda moment: moment.month - 1),
    "getDate": _field(lambda moment: moment.day),
    "getDayOfMonth": _field(lambda moment: moment.day - 1),
    "getDayOfWeek": _field(lambda moment: moment.isoweekday() % 7),
    "getDayOfYear": _field(lambda moment: moment.timetuple().tm_yday - 1),
    "getHours": [*_field(lambda moment: moment.hour), _total(3600 * SECOND)],
    "getMinutes": [*_field(lambda moment: moment.minute), _total(60 * SECOND)],
    "getSeconds": [*_field(lambda moment: moment.second), _total(SECOND)],
    "getMilliseconds": [*_field(lambda moment: moment.microsecond // 1000), _total(10**6)],
}
