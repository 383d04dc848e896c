"""Values that are a number or a percentage, such as a budget's `minAvailable: 50%`."""

from __future__ import annotations

import re

from holdfast.api.errors import MalformedText

_PERCENT = re.compile(r"([0-9]+)%")

IntOrString = int | str


def scaled_value(value: IntOrString, total: int, *, round_up: bool) -> int:
    """The value itself, or that percentage of `total` rounded as asked."""
    if isinstance(value, int):
        return value
    percent = _PERCENT.fullmatch(value)
    if percent is None:
        raise MalformedText(f"neither a number nor a percentage: {value!r}")
    parts = int(percent[1]) * total
    return -(-parts // 100) if round_up else parts // 100
