"""What comes of the runs: a table, a mapping for JSON, and a plot."""

from html import escape
from statistics import fmean, stdev
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.bench.packing.runs import STRATEGIES, Run
from holdfast.bench.report import new_table

_SHOWN = (100, 130)
"""At how many percent of all GPUs asked for figures are shown."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _RIGHT, _TOP = 720, 400, 64, 48, 170, 24
_COLOURS = ("#b07a00", "#3465a4", "#2e7d32")
_FROM_X, _TO_X, _FROM_Y, _TO_Y = 80, 130, 80, 100


class Figures(msgspec.Struct, frozen=True):
    """Of one strategy, over all seeds. Shares are in percent of all GPUs."""

    strategy: str
    seeds: int
    allocated: dict[int, float]
    """By how many percent were asked for."""
    spread: dict[int, float]
    """Standard deviation of the same."""
    fragments: dict[int, float]
    """Free, but of no use to the pods that come."""
    pods_per_second: float
    curve: list[float]
    """Allocated at each percent asked for."""


def figures(runs: list[Run]) -> list[Figures]:
    found = []
    for strategy in STRATEGIES:
        own = [run for run in runs if run.strategy == strategy]
        if not own:
            continue
        length = min(len(run.allocated) for run in own)
        at = [percent for percent in _SHOWN if percent < length]
        shares = {percent: [100 * run.allocated[percent] for run in own] for percent in at}
        lost = {percent: [100 * run.fragments[percent] for run in own] for percent in at}
        found.append(
            Figures(
                strategy,
                len(own),
                {percent: round(fmean(values), 2) for percent, values in shares.items()},
                {
                    percent: round(stdev(values), 2) if len(values) > 1 else 0.0
                    for percent, values in shares.items()
                },
                {percent: round(fmean(values), 2) for percent, values in lost.items()},
                round(fmean(run.pods_per_second for run in own)),
                [round(100 * fmean(run.allocated[i] for run in own), 2) for i in range(length)],
            )
        )
    return found


def table(all_figures: list[Figures]) -> Table:
    shown = new_table(
        "strategy", *(f"allocated at {p} %" for p in _SHOWN), "±", "fragments", "pods/CPU s"
    )
    for each in all_figures:
        first = next(iter(each.allocated), None)
        shown.add_row(
            each.strategy,
            *(f"{each.allocated[p]:.2f}" if p in each.allocated else "" for p in _SHOWN),
            f"{each.spread[first]:.2f}" if first is not None else "",
            f"{each.fragments[first]:.2f}" if first is not None else "",
            f"{each.pods_per_second:,.0f}",
        )
    return shown


def show(console: Console, all_figures: list[Figures]) -> None:
    console.print(table(all_figures))
    seeds = all_figures[0].seeds if all_figures else 0
    console.print(
        "allocated: percent of all GPUs, once pods that ask for so many percent have come; mean over "
        f"{seeds} seeds, ± of the first. fragments: percent of all GPUs that are free but of no use to "
        "pods of the trace, at the same moment.",
        highlight=False,
    )


def as_mappings(all_figures: list[Figures]) -> list[dict[str, Any]]:
    mappings: list[dict[str, Any]] = msgspec.to_builtins(all_figures, str_keys=True)
    return mappings


def plot(all_figures: list[Figures]) -> str:
    """Allocated against asked for, as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13" role="img" '
        'aria-label="GPUs allocated by strategy, against GPUs asked for">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    parts += [
        f'<path d="M{_LEFT} {_y(y)}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 8}" y="{_y(y) + 4}" text-anchor="end">{y} %</text>'
        for y in range(_FROM_Y, _TO_Y + 1, 5)
    ]
    for x in range(_FROM_X, _TO_X + 1, 10):
        bottom = _HEIGHT - _BOTTOM
        parts.append(
            f'<path d="M{_x(x)} {bottom}v5" stroke="#555"/>'
            f'<text x="{_x(x)}" y="{bottom + 20}" text-anchor="middle">{x} %</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">GPUs asked for</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}">GPUs allocated</text>')
    labels: list[float] = []
    for place, each in enumerate(all_figures):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [
            (x, value)
            for x, value in enumerate(each.curve)
            if _FROM_X <= x <= _TO_X and value >= _FROM_Y
        ]
        if not points:
            continue
        path = "L".join(f"{_x(x)} {_y(value)}" for x, value in points)
        at = _y(points[-1][1])
        while any(abs(at - other) < 16 for other in labels):
            at += 16
        labels.append(at)
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{at + 4}" fill="{colour}">'
            f"{escape(each.strategy)} {points[-1][1]:.1f} %</text>"
        )
    return "".join([*parts, "</svg>\n"])


def _x(percent: float) -> float:
    width = _WIDTH - _LEFT - _RIGHT
    return round(_LEFT + (percent - _FROM_X) / (_TO_X - _FROM_X) * width, 1)


def _y(percent: float) -> float:
    height = _HEIGHT - _TOP - _BOTTOM
    return round(_HEIGHT - _BOTTOM - (percent - _FROM_Y) / (_TO_Y - _FROM_Y) * height, 1)
