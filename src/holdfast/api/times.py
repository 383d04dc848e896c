"""Go durations (`1h30m`, `1.5s`), the form Kubernetes writes spans of time in.

Seconds as a float are what the rest of the program counts in. Text is parsed and printed
through whole nanoseconds, as Go does, so a duration that is written, read and written again
stays the same.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import floor

from holdfast.api.errors import DurationError, TimeError

_NANOS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu, which many keyboards give instead
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PIECE = re.compile(r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(ns|us|µs|μs|ms|s|m|h)")
_MAX_NANOS = 2**63 - 1
_MAX_LENGTH = 200
_SPANS = (
    (60, "m", 1, "s", 600),
    (60, "m", 0, "", 3600),
    (3600, "h", 60, "m", 8 * 3600),
    (3600, "h", 0, "", 48 * 3600),
    (86400, "d", 3600, "h", 8 * 86400),
)
"""The units of spans of time up to a number of seconds; the second unit is left out where it is 0."""


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> float:
    """Seconds; raises `DurationError` with a hint when the unit is missing."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0.0
    if not body or len(body) > _MAX_LENGTH:
        raise DurationError(f"not a duration: {text!r} (write it as 90s, 5m or 1h30m)")
    nanos = position = 0
    while position < len(body):
        piece = _PIECE.match(body, position)
        if piece is None:
            raise DurationError(f"not a duration: {text!r} (write it as 90s, 5m or 1h30m)")
        whole, after, only_after, unit = piece.groups()
        fraction = after or only_after or ""
        nanos += int((whole or "") + fraction) * _NANOS[unit] // 10 ** len(fraction)
        position = piece.end()
    if nanos > _MAX_NANOS:
        raise DurationError(f"duration is longer than 292 years: {text!r}")
    return -nanos / 10**9 if text.startswith("-") else nanos / 10**9


def format_duration(seconds: float) -> str:
    """The duration as Go prints it: `24h0m0s`, `1m30.5s`, `100ms`."""
    nanos = round(seconds * 10**9)
    if nanos == 0:
        return "0s"
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    for unit in ("ns", "µs", "ms"):
        if nanos < _NANOS[unit] * 1000:
            return f"{sign}{_decimal(nanos, _NANOS[unit])}{unit}"
    minutes, rest = divmod(nanos, _NANOS["m"])
    hours, minutes = divmod(minutes, 60)
    last = f"{_decimal(rest, _NANOS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{last}"
    return f"{sign}{minutes}m{last}" if minutes else sign + last


def span_text(seconds: float) -> str:
    """A span of time in two units at most: `90s`, `12m`, `1h59m`, `2h`, `23h`, `3d4h`, `30d`, `5y`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole}s"
    for large, unit, small, small_unit, until in _SPANS:
        if whole < until:
            count, rest = divmod(whole, large)
            more = rest // small if small else 0
            return f"{count}{unit}{more}{small_unit}" if more else f"{count}{unit}"
    days = whole // 86400
    return f"{days}d" if days < 2 * 365 else f"{days // 365}y"


def _decimal(nanos: int, unit: int) -> str:
    whole, rest = divmod(nanos, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


# RFC 3339 times, as objects carry them, to and from seconds since the epoch.
#
# There is no `now` here: what time it is comes into the core as an event.


__all__ = [
    "DurationError",
    "TimeError",
    "format_duration",
    "format_micro_time",
    "format_time",
    "parse_duration",
    "parse_time",
]

_SHAPE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()
_LAST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH).total_seconds()
"""The latest time with a year of four digits; later times are shown as this one."""


@lru_cache(maxsize=4096)
def parse_time(text: str) -> float:
    """Seconds since the epoch; raises `TimeError`."""
    if _SHAPE.fullmatch(text) is None:
        raise TimeError(f"not a time: {text!r} (write it as 2026-01-01T00:00:00Z)")
    try:
        return (datetime.fromisoformat(text) - _EPOCH).total_seconds()
    except ValueError as error:
        raise TimeError(f"not a time: {text!r} ({error})") from None


def format_time(seconds: float) -> str:
    """Whole seconds, what is finer cut off: `2026-01-01T00:00:00Z`."""
    return _second(floor(seconds))


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    # Hundreds of objects are written within a second.
    return f"{_at(seconds).isoformat(timespec='seconds')}Z"


def format_micro_time(seconds: float) -> str:
    """Microseconds, as Leases and Events have them: `2026-01-01T00:00:00.000000Z`."""
    return f"{_at(seconds).isoformat(timespec='microseconds')}Z"


def _at(seconds: float) -> datetime:
    """In UTC, without a time zone."""
    return _EPOCH.replace(tzinfo=None) + timedelta(seconds=min(max(seconds, _FIRST), _LAST))
