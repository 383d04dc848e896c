"""A run for people: what happened, what is left, and the figures."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.api.duration import format_duration
from holdfast.sim.simulation import Result
from holdfast.sim.timeline import Entry

_STYLES = {
    "Bound": "green",
    "Running": "green",
    "Available": "green",
    "Ready": "green",
    "Succeeded": "cyan",
    "Created": "dim",
    "Deleted": "dim",
    "Failed": "red",
    "Unschedulable": "yellow",
    "Waiting": "yellow",
    "Preempted": "magenta",
    "Evicted": "magenta",
}
_PIPED_WIDTH = 120


def print_run(result: Result, title: str | None = None) -> None:
    console = _console()
    if title:
        console.rule(title, style="dim")
    _print_timeline(console, result.timeline)
    _print_pods(console, result.objects)
    _print_nodes(console, result)
    _print_figures(console, result)


def print_comparison(results: Sequence[tuple[str | None, Result]]) -> None:
    console = _console()
    table = _table("Comparison", "figure", *(str(name) for name, _ in results), right=True)
    rows = [_figures(result) for _, result in results]
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name, "-") for row in rows]
        style = "bold" if len(set(values)) > 1 else ""
        table.add_row(name, *values, style=style)
    console.print(table)


def _console() -> Console:
    """As wide as the terminal; where there is none, wide enough and always the same."""
    # What objects say of themselves is text, whatever brackets and colons are in it.
    plain = partial(Console, highlight=False, markup=False, emoji=False)
    console = plain()
    return console if console.is_terminal else plain(width=_PIPED_WIDTH, no_color=True)


def _table(title: str, *columns: str, right: bool = False) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for i, column in enumerate(columns):
        justify: Any = "right" if right and i else "left"
        table.add_column(column, justify=justify, overflow="fold")
    return table


def _print_timeline(console: Console, timeline: Sequence[Entry]) -> None:
    """What was created at the very start is counted rather than listed."""
    table = _table("Timeline")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("object", overflow="fold")
    table.add_column("event", no_wrap=True)
    table.add_column("", overflow="fold")
    at_start = [e for e in timeline if e.event == "Created" and e.t == 0 and _quiet(e)]
    if at_start:
        kinds: dict[str, int] = {}
        for entry in at_start:
            kind = entry.object.partition("/")[0]
            kinds[kind] = kinds.get(kind, 0) + 1
        said = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        table.add_row("0s", "", Text("Created", style="dim"), said)
    skip = set(map(id, at_start))
    for entry in timeline:
        if id(entry) not in skip:
            style = _STYLES.get(entry.event, "")
            table.add_row(_time(entry.t), entry.object, Text(entry.event, style=style), _detail(entry))
    console.print(table)


def _quiet(entry: Entry) -> bool:
    return not entry.object.startswith("Reservation/")


def _detail(entry: Entry) -> str:
    parts = [entry.node and f"on {entry.node}", entry.reservation and f"by {entry.reservation}"]
    place = ", ".join(part for part in parts if part)
    return ": ".join(part for part in (place, entry.message) if part)


def _print_pods(console: Console, objects: Sequence[dict[str, Any]]) -> None:
    pods = [raw for raw in objects if raw["kind"] == "Pod"]
    if not pods:
        return
    table = _table("Pods at the end", "pod", "phase", "node", "why")
    for pod in pods:
        phase = pod["status"].get("phase", "")
        if pod["metadata"].get("deletionTimestamp"):
            phase = "Terminating"
        table.add_row(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
            Text(phase, style=_STYLES.get(phase, "yellow")),
            pod["spec"].get("nodeName", ""),
            _why(pod),
        )
    console.print(table)


def _why(pod: dict[str, Any]) -> str:
    if pod["status"].get("message"):
        return str(pod["status"]["message"])
    for condition in pod["status"].get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""


def _print_nodes(console: Console, result: Result) -> None:
    nodes = [raw for raw in result.objects if raw["kind"] == "Node"]
    if not nodes:
        return
    table = _table("Nodes at the end", "node", "pods", "cpu", "memory", "")
    for column in table.columns[1:4]:
        column.justify = "right"
    for node in nodes:
        name = node["metadata"]["name"]
        last = result.accounts.history[name][-1]
        spec = node.get("spec") or {}
        notes = ["cordoned"] if spec.get("unschedulable") else []
        notes += [f"taint {taint['key']}:{taint['effect']}" for taint in spec.get("taints") or []]
        table.add_row(name, str(last.pods), _percent(last.cpu), _percent(last.memory), ", ".join(notes))
    console.print(table)


def _print_figures(console: Console, result: Result) -> None:
    table = _table("Summary", "figure", "value", right=True)
    for name, value in _figures(result).items():
        table.add_row(name, value)
    console.print(table)


def _figures(result: Result) -> dict[str, str]:
    summary = result.summary
    pods, wait, nodes = summary["pods"], summary["wait"], summary["nodes"]
    figures = {
        "end": _time(result.end),
        "pods created": str(pods["created"]),
        "pods bound": str(pods["bound"]),
        "pods pending": str(pods["pending"]),
        "of these unschedulable": str(pods["unschedulable"]),
        "mean wait": _time(wait["mean"]),
        "longest wait": _time(wait["max"]),
        "nodes in use (most at once)": f"{nodes['used']} of {nodes['total']} ({nodes['peak']})",
    }
    for name, shares in summary["utilisation"].items():
        figures[f"{name} requested (at the end)"] = (
            f"{_percent(shares['mean'])} ({_percent(shares['end'])})"
        )
    for reason, count in summary["unschedulable"].items():
        figures[f"kept waiting by: {reason}"] = str(count)
    return figures


def _time(seconds: float) -> str:
    return format_duration(round(seconds, 3))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
