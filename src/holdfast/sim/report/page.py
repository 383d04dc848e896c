"""The HTML report of a run: a self-contained page with a chart of node usage (SVG) and the timeline."""

from collections.abc import Sequence
from html import escape
from typing import Any

from holdfast.api.times import format_duration
from holdfast.local.timeline import TimelineEntry
from holdfast.sim.simulation import Result
from holdfast.sim.summary import Sample

_WIDTH, _LABEL, _LANE, _GAP, _AXIS = 960, 130, 34, 8, 26
_MOST_NODES = 60
"""Lanes beyond these would make a page no one scrolls to the end of."""


def page(title: str, config: str | None, result: Result) -> str:
    configured = f" · configuration {escape(config)}" if config else ""
    entries = result.timeline[:_MOST_LINES]
    left_out = len(result.timeline) - len(entries)
    more = f"<p class=sub>{left_out} more lines are in timeline.csv.</p>" if left_out else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast: {escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p class="sub">Holdfast simulation, {format_duration(result.end)} · seed {result.seed}{configured}</p>
<div class="cards">{_cards(result.summary)}</div>
<h2>Nodes over time</h2>
<p class="key"><i style="background:var(--cpu)"></i>cpu requested
<i style="background:var(--memory)"></i>memory requested</p>
{occupancy(result.node_usage.history, result.end)}
{_reasons(result.summary)}
<h2>Timeline</h2>
<table><thead><tr><th>time</th><th>object</th><th>event</th><th>node</th><th></th></tr></thead>
<tbody>{"".join(map(_row, entries))}</tbody></table>{more}
</body></html>
"""


def _cards(summary: dict[str, Any]) -> str:
    pods, wait, nodes = summary["pods"], summary["wait"], summary["nodes"]
    cards = [
        (str(pods["bound"]), "pods bound"),
        (str(pods["pending"]), "pods pending"),
        (format_duration(round(wait["mean"], 3)), "mean wait"),
        (format_duration(round(wait["max"], 3)), "longest wait"),
        (f"{nodes['used']} of {nodes['total']}", "nodes in use at the end"),
    ]
    cards += [
        (f"{shares['mean']:.0%}", f"{name} requested, mean")
        for name, shares in summary["utilisation"].items()
    ]
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in cards
    )


def _reasons(summary: dict[str, Any]) -> str:
    if not summary["unschedulable"]:
        return ""
    rows = "".join(
        f"<tr><td>{escape(reason)}</td><td class=t>{count}</td></tr>"
        for reason, count in summary["unschedulable"].items()
    )
    return f"<h2>Reasons of pending pods at the end</h2><table><tbody>{rows}</tbody></table>"


def _row(entry: TimelineEntry) -> str:
    detail = ": ".join(part for part in (entry.reservation, entry.message) if part)
    return (
        f"<tr><td class=t>{format_duration(round(entry.t, 3))}</td><td>{escape(entry.object)}</td>"
        f'<td class="{escape(entry.event)}">{escape(entry.event)}</td><td>{escape(entry.node)}</td>'
        f"<td class=m>{escape(detail)}</td></tr>"
    )


def occupancy(history: dict[str, list[Sample]], end: float) -> str:
    """Node usage over time as SVG: a lane per node with cpu and memory."""
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
        title = "; ".join(
            f"{format_duration(s.t)}: cpu {s.cpu:.0%}, memory {s.memory:.0%}, {s.pods} pods"
            for s in samples[-12:]
        )
        parts.append(
            f'<rect class="hover" x="{_LABEL}" y="{top}" width="{_WIDTH - _LABEL}" '
            f'height="{_LANE}"><title>{escape(name)} · {escape(title)}</title></rect>'
        )
    parts.extend(_axis(height, end, span))
    if len(history) > len(names):
        parts.append(f'<text x="0" y="{height - 6}">{len(history) - len(names)} more nodes</text>')
    return "".join([*parts, "</svg>"])


def _area(points: Sequence[tuple[float, float]], top: float, end: float, span: float) -> str:
    """A step curve, since a share holds until it changes."""
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


# The page: one file, nothing fetched from anywhere.


_MOST_LINES = 5_000
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #66707f; --line: #dde2ea; --paper: #fff;
  --panel: #f6f8fb; --cpu: #3566c9; --memory: #e08a2b; --good: #1f8a4c; --bad: #c03636;
  --wait: #a86b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ee; --soft: #98a2b3; --line: #323a47;
  --paper: #14181f; --panel: #1c222c; --cpu: #6f9bf5; --memory: #f0a95a; --good: #52c283;
  --bad: #ef7676; --wait: #e0ad4d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; padding: 32px 24px 64px; max-width: 1000px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 16px; margin: 36px 0 10px; }
p.sub { color: var(--soft); margin: 2px 0 22px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 14px; }
.card b { display: block; font-size: 20px; font-weight: 600; } .card span { color: var(--soft);
  font-size: 13px; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .label { text-anchor: end; } svg .lane { fill: var(--panel); } svg .axis { fill: var(--soft); }
svg .cpu { fill: var(--cpu); opacity: .55; } svg .memory { fill: none; stroke: var(--memory);
  stroke-width: 1.6; } svg .hover { fill: transparent; }
.key { color: var(--soft); font-size: 13px; } .key i { display: inline-block; width: 12px;
  height: 12px; border-radius: 3px; margin: 0 5px 0 14px; vertical-align: -1px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
th, td { padding: 5px 14px 5px 0; vertical-align: top; }
td { border-bottom: 1px solid var(--line); } td.t { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; } td.m { color: var(--soft); overflow-wrap: anywhere; }
.Bound, .Running, .Available, .Ready, .Succeeded { color: var(--good); }
.Failed { color: var(--bad); } .Unschedulable, .Waiting, .Preempted, .Evicted { color: var(--wait); }
"""
