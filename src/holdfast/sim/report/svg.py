"""Plots as SVG.

A plot is drawn for a page, where it is as wide as its place and text keeps its size, or as a file of
its own with a fixed size. Positions along x are percentages, so both are the same drawing; only paths,
which know no percentages, are drawn in a nested coordinate system.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

FILE_WIDTH = 960
LEFT, RIGHT = 9.0, 98.0
"""Where the time axis begins and ends, in percent of the width."""
_TOP, _AXIS = 8, 24
_INNER = 1000
"""The width of the nested coordinate system."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """An entry of a plot's legend."""

    style: str
    """The class of its colour."""
    label: str


@dataclass(slots=True)
class Plot:
    name: str
    """The name of its file, without the suffix."""
    title: str
    note: str
    """What the plot shows, in a sentence."""
    height: int
    parts: list[str] = field(default_factory=list)
    keys: list[LegendEntry] = field(default_factory=list)
    timed: bool = True
    """Whether x is the time of the run."""

    def markup(self) -> str:
        """For a page."""
        timed = " timed" if self.timed else ""
        label = escape(f"{self.title}. {self.note}", quote=True)
        return (
            f'<svg class="plot{timed}" height="{self.height}" role="img" aria-label="{label}">'
            f"{''.join(self.parts)}</svg>"
        )

    def file(self, style: str) -> str:
        """A file of its own, with title and legend."""
        head, legend = 34, 26
        x, keys = 0, []
        for key in self.keys:
            keys.append(
                f'<rect class="{key.style}" x="{x}" y="3" width="13" height="13"/>'
                f'<text x="{x + 19}" y="14">{escape(key.label)}</text>'
            )
            x += 36 + 7 * len(key.label)
        total = head + legend * bool(keys) + self.height + 6
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{FILE_WIDTH}" height="{total}" '
            f'viewBox="0 0 {FILE_WIDTH} {total}" font-family="system-ui, sans-serif" font-size="12">'
            f"<style>{style}</style>{HATCHES}"
            f'<rect class="paper" width="{FILE_WIDTH}" height="{total}"/>'
            f'<text class="title" x="12" y="22">{escape(self.title)}</text>'
            f'<svg x="12" y="{head}" width="{FILE_WIDTH - 24}" height="{legend}">{"".join(keys)}</svg>'
            f'<svg y="{head + legend * bool(keys)}" width="{FILE_WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {FILE_WIDTH} {self.height}">{"".join(self.parts)}</svg></svg>\n'
        )


def _hatch(kind: str) -> str:
    return (
        f'<pattern id="hatch-{kind}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect class="soft {kind}" width="6" height="6"/>'
        f'<rect class="{kind}" width="2" height="6"/></pattern>'
    )


HATCHES = (
    "<defs>"
    + "".join(map(_hatch, ("user", "dynamic", "preemption", "starvation", "migration", "pending")))
    + "</defs>"
)
"""The hatchings that plots refer to; a page has them once."""


def num(value: float) -> str:
    """A coordinate."""
    text = f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class PlotArea:
    """The area of a plot between its axes."""

    def __init__(self, height: int, top: float, end: float) -> None:
        """`top` is the value at the top, `end` the one at the right."""
        self.height = height
        self.top = top or 1.0
        self.end = end or 1.0
        self._inner = height - _TOP - _AXIS

    def x(self, value: float) -> float:
        return _INNER * min(max(value / self.end, 0.0), 1.0)

    def y(self, value: float) -> float:
        return self._inner * (1 - min(value / self.top, 1.0))

    def inner(self, content: str) -> str:
        return (
            f'<svg x="{num(LEFT)}%" y="{_TOP}" width="{num(RIGHT - LEFT)}%" height="{self._inner}" '
            f'viewBox="0 0 {_INNER} {self._inner}" preserveAspectRatio="none">{content}</svg>'
        )

    def grid(self, ticks: Iterable[tuple[float, str]]) -> str:
        """Lines across, with labels at the left."""
        parts = []
        for value, label in ticks:
            y = num(_TOP + self.y(value))
            parts.append(
                f'<line class="grid" x1="{num(LEFT)}%" x2="{num(RIGHT)}%" y1="{y}" y2="{y}"/>'
                f'<text class="axis" x="{num(LEFT - 0.8)}%" y="{num(float(y) + 4)}" '
                f'text-anchor="end">{escape(label)}</text>'
            )
        return "".join(parts)

    def marks(self, ticks: Sequence[tuple[float, str]]) -> str:
        """Labels along x, at shares of its length."""
        parts = []
        for i, (place, label) in enumerate(ticks):
            anchor = "start" if place < 0.02 else "end" if place > 0.97 else "middle"
            hidden = " fine" if i % 2 else ""
            parts.append(
                f'<text class="axis{hidden}" x="{num(LEFT + (RIGHT - LEFT) * place)}%" '
                f'y="{self.height - 7}" text-anchor="{anchor}">{escape(label)}</text>'
            )
        return "".join(parts)


def area(frame: PlotArea, times: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    """The path between two step curves."""
    ends = [*times[1:], frame.end] if times else []
    upper: list[str] = []
    lower: list[str] = []
    y, z = "", ""
    for t, end, a, b in zip(times, ends, low, high, strict=True):
        top, bottom = num(frame.y(b)), num(frame.y(a))
        x = num(frame.x(t))
        if top != y:
            upper.append(f"L{x} {y}L{x} {top}" if y else f"M{x} {top}")
            y = top
        if bottom != z:
            lower.append(f"L{x} {bottom}L{x} {z}" if z else f"L{x} {bottom}Z")
            z = bottom
        last = num(frame.x(end))
    if not upper:
        return ""
    return "".join([*upper, f"L{last} {y}L{last} {z}", *reversed(lower)])


def line(frame: PlotArea, points: Iterable[tuple[float, float]], *, until: float | None = None) -> str:
    """The path of a curve in steps: a value holds until the next, the last one until `until`."""
    parts: list[str] = []
    y = ""
    for t, value in points:
        x, now = num(frame.x(t)), num(frame.y(value))
        if not parts:
            parts.append(f"M{x} {now}")
        elif now != y:
            parts.append(f"H{x}V{now}")
        y = now
    if parts:
        parts.append(f"H{num(frame.x(frame.end if until is None else until))}")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a lane."""

    start: float
    end: float
    style: str
    title: str
    level: float = 1.0
    """How much of the lane's height it fills, from below."""


@dataclass(slots=True)
class PlotLane:
    label: str
    segments: list[Segment]
    marks: list[tuple[float, str, str]] = field(default_factory=list)
    """Moments: time, class and title."""


_LANE, _LABEL = 12, 15


def lanes(
    rows: Sequence[PlotLane], end: float, ticks: Sequence[tuple[float, str]]
) -> tuple[int, list[str]]:
    """Bars over time with their label above, so that there is space for it on narrow pages. Returns
    the height and the parts."""
    height = len(rows) * (_LANE + _LABEL + 4) + _AXIS
    span = end or 1.0
    parts = []
    for i, lane in enumerate(rows):
        top = i * (_LANE + _LABEL + 4)
        bar = top + _LABEL
        parts.append(
            f'<text x="{num(_place(0))}%" y="{top + 11}">{escape(lane.label)}</text>'
            f'<rect class="track" x="{num(_place(0))}%" y="{bar}" '
            f'width="{num(_place(1) - _place(0))}%" height="{_LANE}"/>'
        )
        for each in lane.segments:
            x, x2 = _place(each.start / span), _place(each.end / span)
            tall = _LANE * min(max(each.level, 0.0), 1.0)
            if tall <= 0:
                continue
            parts.append(
                f'<rect class="{each.style}" x="{num(x)}%" y="{num(bar + _LANE - tall)}" '
                f'width="{num(max(x2 - x, 0.15))}%" height="{num(tall)}">'
                f"<title>{escape(each.title)}</title></rect>"
            )
        for t, style, title in lane.marks:
            at = num(_place(t / span))
            parts.append(
                f'<line class="{style}" x1="{at}%" x2="{at}%" y1="{bar - 3}" y2="{bar + _LANE + 3}">'
                f"<title>{escape(title)}</title></line>"
            )
    parts.append(PlotArea(height, 1, end).marks(ticks))
    return height, parts


def _place(share: float) -> float:
    """In percent of the width."""
    return LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0)


def heat(
    rows: Mapping[str, Sequence[int]],
    row_height: int,
    labelled: bool,
    ticks: Sequence[tuple[float, str]],
) -> tuple[int, list[str]]:
    """Rows of cells with a level from 0 to 10. Returns the height and the parts."""
    height = len(rows) * row_height + _AXIS
    parts = []
    for i, (name, levels) in enumerate(rows.items()):
        top = i * row_height
        if labelled:
            parts.append(
                f'<text class="axis" x="{num(LEFT - 0.8)}%" y="{top + row_height - 3}" '
                f'text-anchor="end">{escape(name)}</text>'
            )
        start = 0
        for k in range(1, len(levels) + 1):
            if k < len(levels) and levels[k] == levels[start]:
                continue
            if levels[start] >= 0:
                x, x2 = _place(start / len(levels)), _place(k / len(levels))
                parts.append(
                    f'<rect class="heat{levels[start]}" x="{num(x)}%" y="{top}" '
                    f'width="{num(x2 - x)}%" height="{row_height - (1 if row_height > 4 else 0)}"/>'
                )
            start = k
    parts.append(PlotArea(height, 1, 1).marks(ticks))
    return height, parts
