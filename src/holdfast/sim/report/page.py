"""The HTML page of a run: one file that asks nothing of any other, and works without a server.

Plots are part of the markup, so the page is complete without its script, which adds the views of a
moment. A content security policy admits only the page's own style and script.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.local.timeline import TimelineEntry
from holdfast.sim.figures import figures, held_text, rate_text, share, time_text, wait_text
from holdfast.sim.report.page_data import page_data
from holdfast.sim.report.plots import run_plots
from holdfast.sim.report.svg import HATCHES, Plot
from holdfast.sim.simulation import Result

MOST_ENTRIES = 1_000
MOST_WAITS = 20
_STEPS = 1000
_WIDE = ("reservations", "starvation", "nodes")


def run_page(
    title: str, config: str | None, result: Result, plots: Sequence[Plot], back: str = ""
) -> str:
    """`back` is the address of the comparison that the run is part of."""
    configured = f" · configuration {escape(config)}" if config else ""
    link = (
        f'<nav class="runs"><a href="{escape(back)}">comparison of all runs</a></nav>' if back else ""
    )
    data = page_data(result)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in data["notes"])
    body = f"""<h1>{escape(title)}</h1>
<p class="sub">Simulation of {time_text(result.end)} · seed {result.seed}{configured}</p>{link}
<section class="cards" aria-label="Figures">{_cards(result.summary)}</section>
{_MOMENT}
<h2>Over time</h2>
<div class="plots">{"".join(figure(plot) for plot in plots)}</div>
{_VIEWS}{notes}
{_reservation_table(result)}
{_wait_table(result)}
{_reasons(result.summary)}
<h2>All figures</h2>
{table(("figure", "value"), map(_figure_row, figures(result).items()))}
{_timeline(result.timeline)}"""
    return document(title, body, data)


def document(title: str, body: str, data: dict[str, Any] | None = None) -> str:
    style = _asset("colors.css") + _asset("plots.css") + _asset("report.css")
    script, block = "", ""
    policy = f"default-src 'none'; style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'"
    if data is not None:
        script = _asset("report.js")
        policy += f"; script-src '{_digest(script)}'"
        # A `<` cannot end the block early if there is none.
        text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
        block = f'<script type="application/json" id="data">{text}</script>\n<script>{script}</script>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="holdfast {escape(__version__)}">
<title>{escape(title)} · Holdfast</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
<svg class="defs" width="0" height="0" aria-hidden="true">{HATCHES}</svg>
<main id="content">
{body}
</main>
{block}
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


@cache
def file_style() -> str:
    """The style of plots that are files of their own: the light colours, as not all programs that show
    SVG know variables."""
    light = _asset("colors.css").partition("}")[0].partition("{")[2]
    style = _asset("plots.css")
    for declaration in light.split(";"):
        name, colon, value = declaration.strip().partition(":")
        if colon:
            style = style.replace(f"var({name})", value.strip())
    return style


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


# Parts


def figure(plot: Plot) -> str:
    wide = ' class="wide"' if plot.name in _WIDE else ""
    keys = "".join(
        f'<li><svg aria-hidden="true"><rect class="{key.style}" width="13" height="13"/></svg>'
        f"{escape(key.label)}</li>"
        for key in plot.keys
    )
    # What scrolls must be reachable by keyboard.
    scroll = f' tabindex="0" role="region" aria-label="{escape(plot.title)}"' if wide else ""
    return (
        f"<figure{wide}><figcaption><h3>{escape(plot.title)}</h3><p>{escape(plot.note)}</p></figcaption>"
        f'<div class="scroll"{scroll}>{plot.markup()}</div><ul class="legend">{keys}</ul></figure>\n'
    )


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), caption: str = ""
) -> str:
    def cell(i: int, text: str) -> str:
        style = ' class="n"' if i in right else ' class="w"' if i == len(headers) - 1 else ""
        return f"<td{style}>{escape(text)}</td>"

    head = "".join(
        f'<th scope="col"{" class=n" if i in right else ""}>{escape(name)}</th>'
        for i, name in enumerate(headers)
    )
    body = "\n".join(f"<tr>{''.join(cell(i, text) for i, text in enumerate(row))}</tr>" for row in rows)
    # The regions of a page must have different names.
    label = f"Table of {', '.join(headers)}"
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f"{scrolled(label)}<table>{above}<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def scrolled(label: str) -> str:
    """Opens the frame of a table that may be wider than the page; the keyboard can scroll it, too."""
    return f'<div class="scroll-x" tabindex="0" role="region" aria-label="{escape(label)}">'


def _cards(summary: dict[str, Any]) -> str:
    pods, wait, nodes = summary["pods"], summary["wait"], summary["nodes"]
    cards = [
        (f"{pods['bound']} of {pods['created']}", "pods bound"),
        (str(pods["pending"]), "pods pending at the end"),
        (wait_text(wait["mean"]), "mean wait"),
        (wait_text(wait["p95"]), "95th percentile of waits"),
        (wait_text(wait["max"]), "longest wait"),
        (f"{nodes['peak']} of {nodes['total']}", "nodes in use at the peak"),
    ]
    cards += [
        (share(shares["mean"]), f"{name} requested, mean")
        for name, shares in summary["utilisation"].items()
        if shares["mean"]
    ]
    reservations, starvation = summary["reservations"], summary["starvation"]
    if reservations["created"]:
        cards.append((str(reservations["created"]), "reservations"))
        cards.append((rate_text(reservations["hitRate"]), "hit rate of reservations"))
    cards += [
        (share(held["unusedShare"]), f"of reserved {name} held unused")
        for name, held in reservations["held"].items()
        if name in ("cpu", "memory")
    ]
    if starvation["jobs"]:
        cards.append((str(starvation["jobs"]), "jobs that starved"))
        cards.append((wait_text(starvation["longest"]), "longest starvation"))
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in cards
    )


_MOMENT = f"""<form class="moment live" hidden>
<label for="time">Moment</label>
<input type="range" id="time" min="0" max="{_STEPS}" value="{_STEPS}">
<output id="now" for="time"></output>
<div class="totals" id="totals"></div>
</form>
<noscript><p class="note">The state at a moment needs JavaScript; the plots do not.</p></noscript>"""

_VIEWS = """<section class="live" hidden>
<h2>Nodes at the moment</h2>
<div class="tools"><label>Name contains <input id="filter" type="search" autocomplete="off"></label>
<span id="node-count" aria-live="polite"></span></div>
<div class="overview" id="overview"></div>
<div class="nodes" id="nodes"></div>
<h2>Reservations at the moment</h2>
<p class="note" id="reservation-count"></p>
<div class="scroll-x" id="reservations-table" tabindex="0" role="region"
 aria-label="Reservations at the moment"><table><thead><tr><th scope="col">reservation</th>
<th scope="col">kind</th><th scope="col">phase</th><th scope="col">node</th><th scope="col">used</th>
<th scope="col">held unused</th></tr></thead><tbody id="reservations-now"></tbody></table></div>
<h2>Pending pods at the moment</h2>
<p class="note" id="pending-count"></p>
<div class="scroll-x" id="pending-table" tabindex="0" role="region"
 aria-label="Pending pods at the moment"><table><thead><tr><th scope="col">pod</th>
<th scope="col">reasons</th></tr></thead><tbody id="pending-now"></tbody></table></div>
</section>"""


def _figure_row(figure: tuple[str, str]) -> tuple[str, str]:
    """Parts of a figure are indented below it."""
    name, value = figure
    return "\u2003" * (len(name) - len(name.lstrip())) + name.strip(), value


def _reservation_table(result: Result) -> str:
    lives = result.node_usage.reservations.lives
    if not lives:
        return ""

    def unused(life: Any) -> float:
        total = life.seconds.get("cpu")
        return total.unused if total is not None else 0.0

    first = sorted(lives, key=lambda life: (-unused(life), life.number))[:MOST_WAITS]
    rows = [
        (
            life.name,
            life.kind,
            life.node,
            time_text(life.created),
            time_text(life.ended) if life.ended is not None else "",
            life.end if life.ended is not None else life.phase,
            str(life.pods),
            held_text({name: total.unused for name, total in life.seconds.items()}),
        )
        for life in first
    ]
    headers = ("reservation", "kind", "node", "created", "ended", "state", "pods", "held unused")
    note = (
        f"The {len(first)} of {len(lives)} that held most cpu unused."
        if len(lives) > len(first)
        else ""
    )
    return f"<h2>Reservations</h2>{table(headers, rows, right=(3, 4, 6), caption=note)}"


def _wait_table(result: Result) -> str:
    """The pods that waited longest until they were bound."""
    created: dict[str, float] = {}
    waits: list[tuple[float, str, float, str]] = []
    for entry in result.timeline:
        if entry.event == "Created":
            before = result.created_before.get(entry.object) if entry.t == 0 else None
            created[entry.object] = entry.t if before is None else before
        elif entry.event == "Bound":
            since = created.get(entry.object, entry.t)
            if entry.t > since:
                waits.append((since - entry.t, entry.object, since, entry.node))
    waits.sort()
    if not waits:
        return ""
    rows = [
        (name.removeprefix("Pod/"), time_text(since), time_text(-wait), node)
        for wait, name, since, node in waits[:MOST_WAITS]
    ]
    headers = ("pod", "created", "waited", "node")
    return f"<h2>Longest waits</h2>{table(headers, rows, right=(1, 2))}"


def _reasons(summary: dict[str, Any]) -> str:
    if not summary["unschedulable"]:
        return ""
    rows = ((str(count), reason) for reason, count in summary["unschedulable"].items())
    return f"<h2>Reasons of pending pods at the end</h2>{table(('pods', 'reason'), rows, right=(0,))}"


def _timeline(timeline: Sequence[TimelineEntry]) -> str:
    shown = timeline[:MOST_ENTRIES]
    more = (
        f'<p class="note">The first {len(shown)} of {len(timeline)} entries; timeline.csv has all.</p>'
        if len(timeline) > len(shown)
        else ""
    )
    rows = "\n".join(
        f'<tr><td class="n">{time_text(entry.t)}</td><td>{escape(entry.object)}</td>'
        f'<td class="{escape(entry.event)}">{escape(entry.event)}</td><td>{escape(entry.node)}</td>'
        f'<td class="w">{escape(": ".join(filter(None, (entry.reservation, entry.message))))}</td></tr>'
        for entry in shown
    )
    return f"""<h2>Timeline</h2>{more}
<details><summary>Show {len(shown)} entries</summary>
{scrolled("Timeline")}<table><thead><tr><th scope="col" class="n">time</th><th scope="col">object</th>
<th scope="col">event</th><th scope="col">node</th>
<th scope="col">reservation, message</th></tr></thead><tbody>{rows}</tbody></table></div></details>"""


__all__ = ["document", "figure", "file_style", "run_page", "run_plots", "scrolled", "table"]
