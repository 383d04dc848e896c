"""RFC 3339 times, as objects carry them, to and from seconds since the epoch.

There is no `now` here: what time it is comes into the core as an event.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import floor

from holdfast.api.errors import TimeError

__all__ = ["TimeError", "format_micro_time", "format_time", "parse_time"]

_SHAPE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()
_LAST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH).total_seconds()
"""What four digits of a year can say; what lies beyond is said to be this."""


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
    """In UTC, which it does not say itself."""
    return _EPOCH.replace(tzinfo=None) + timedelta(seconds=min(max(seconds, _FIRST), _LAST))
