"""How full each node was over time, drawn as SVG: a lane per node, cpu and memory in it."""

from collections.abc import Sequence
from html import escape

from holdfast.api.duration import format_duration
from holdfast.sim.accounts import Sample

_WIDTH, _LABEL, _LANE, _GAP, _AXIS = 960, 130, 34, 8, 26
_MOST_NODES = 60
"""Lanes beyond these would make a page no one scrolls to the end of."""


def occupancy(history: dict[str, list[Sample]], end: float) -> str:
    names = sorted(history, key=_natural)[:_MOST_NODES]
    span = end or 1.0
    height = len(names) * (_LANE + _GAP) + _AXIS
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="Share of cpu and memory requested per node over time">'
    ]
    for i, name in enumerate(names):
        top = i * (_LANE + _GAP)
        parts.append(
            f'<text class="label" x="{_LABEL - 10}" y="{top + _LANE / 2 + 4}">'
            f"{escape(_short(name))}</text>"
            f'<rect class="lane" x="{_LABEL}" y="{top}" width="{_WIDTH - _LABEL}" height="{_LANE}"/>'
        )
        samples = history[name]
        for kind in ("cpu", "memory"):
            points = [(s.t, s.cpu if kind == "cpu" else s.memory) for s in samples]
            parts.append(f'<path class="{kind}" d="{_area(points, top, end, span)}"/>')
        said = "; ".join(
            f"{format_duration(s.t)}: cpu {s.cpu:.0%}, memory {s.memory:.0%}, {s.pods} pods"
            for s in samples[-12:]
        )
        parts.append(
            f'<rect class="hover" x="{_LABEL}" y="{top}" width="{_WIDTH - _LABEL}" '
            f'height="{_LANE}"><title>{escape(name)} · {escape(said)}</title></rect>'
        )
    parts.extend(_axis(height, end, span))
    if len(history) > len(names):
        parts.append(f'<text x="0" y="{height - 6}">{len(history) - len(names)} more nodes</text>')
    return "".join([*parts, "</svg>"])


def _area(points: Sequence[tuple[float, float]], top: float, end: float, span: float) -> str:
    """Steps, since a share holds until it changes."""
    bottom = top + _LANE
    if not points:
        return ""
    path = [f"M{_x(points[0][0], span)} {bottom}"]
    for i, (t, share) in enumerate(points):
        until = points[i + 1][0] if i + 1 < len(points) else max(end, t)
        y = round(bottom - min(share, 1.0) * _LANE, 1)
        path.append(f"L{_x(t, span)} {y}L{_x(until, span)} {y}")
    last = max(end, points[-1][0])
    return "".join([*path, f"L{_x(last, span)} {bottom}Z"])


def _axis(height: int, end: float, span: float) -> list[str]:
    marks = 5
    parts = []
    for i in range(marks + 1):
        t = end * i / marks
        x = _x(t, span)
        anchor = "start" if i == 0 else "end" if i == marks else "middle"
        parts.append(
            f'<text class="axis" x="{x}" y="{height - 6}" text-anchor="{anchor}">'
            f"{format_duration(round(t, 1))}</text>"
        )
        if not end:
            break
    return parts


def _x(t: float, span: float) -> float:
    return round(_LABEL + (_WIDTH - _LABEL) * min(t / span, 1.0), 1)


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:8]}…{name[-9:]}"


def _natural(name: str) -> tuple[str, int, str]:
    """n2 before n10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return (stem, int(digits or 0), name)
