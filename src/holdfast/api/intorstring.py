"""Values that are a number or a percentage, such as a budget's `minAvailable: 50%`."""

from __future__ import annotations

import re

from holdfast.api.errors import MalformedText

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)

IntOrString = int | str

MOST_PERCENT = 2**31 - 1
"""The largest percentage taken for one."""


def scaled_value(value: IntOrString, total: int, *, round_up: bool) -> int:
    """The value itself, or that percentage of `total` rounded as asked."""
    if isinstance(value, int):
        return value
    percent = _PERCENT.fullmatch(value)
    if percent is None:
        raise MalformedText(f"neither a number nor a percentage: {value!r}")
    parts = int(percent[1]) * total
    return -(-parts // 100) if round_up else parts // 100


def percentage(value: object) -> int | None:
    """125 or "125%" as a number of percent; None if it is neither, negative, or absurdly large."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        value = int(match[1]) if match and len(match[1]) <= len(str(MOST_PERCENT)) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_PERCENT else None
