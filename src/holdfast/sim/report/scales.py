"""Scales of plots: round values for axes, and amounts and times as their labels."""

from collections.abc import Sequence
from math import ceil, floor, log10

Ticks = list[tuple[float, str]]

_TIME_STEPS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000),
)


def time_ticks(end: float, most: int = 8) -> Ticks:
    """Places along the axis, as shares of its length, with the time there."""
    if end <= 0:
        return [(0.0, "0")]
    step = next((s for s in _TIME_STEPS if end / s <= most), end)
    return [(i * step / end, short_time(i * step)) for i in range(int(end / step + 1e-9) + 1)]


def short_time(seconds: float) -> str:
    """`0`, `500ms`, `90s`, `5m`, `1h30m`, `2d6h`"""
    if seconds == 0:
        return "0"
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 120 and seconds % 60:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{days}d"] if days else []
    parts += [f"{hours}h"] if hours else []
    parts += [f"{minutes}m"] if minutes else []
    parts += [f"{rest}s"] if rest else []
    return "".join(parts[:2]) or "0"


def round_steps(most: float, least_step: float = 0.0) -> tuple[float, int]:
    """A round step, and how many of them, at most five, are not below the value."""
    if most <= 0:
        return max(least_step, 1.0), 1
    rough = most / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * each for each in (1, 2, 2.5, 5, 10) if unit * each >= rough * 0.999999)
    step = max(step, least_step)
    return step, max(1, ceil(most / step * 0.999999))


def amount_scale(resource: str, most: float) -> tuple[float, Ticks]:
    """The top of an axis for amounts of a resource, and its ticks."""
    unit, suffix = _unit(resource, most)
    step, count = round_steps(most / unit)
    ticks = [(i * step * unit, f"{i * step:,.10g}{suffix if i else ''}") for i in range(count + 1)]
    return count * step * unit, ticks


def count_scale(most: float) -> tuple[float, Ticks]:
    step, count = round_steps(most, 1.0)
    return count * step, [(i * step, f"{i * step:,.10g}") for i in range(count + 1)]


def _unit(resource: str, most: float) -> tuple[float, str]:
    if resource == "cpu":
        return 1000.0, ""
    if resource != "memory":
        return 1.0, ""
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if most >= 1024**power:
            return 1024.0**power, suffix
    return 1.0, ""


WAIT_TICKS: Sequence[float] = (1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000)


def wait_place(seconds: float, longest: float) -> float:
    """Where a wait is on a logarithmic axis that begins with waits of up to a second."""
    top = log10(max(longest, 10.0))
    return log10(max(seconds, 1.0)) / top


def wait_ticks(longest: float) -> Ticks:
    shown = [t for t in WAIT_TICKS if t <= max(longest, 10.0)]
    return [(wait_place(t, longest), "≤1s" if t == 1 else short_time(t)) for t in shown]
