"""The tables of `holdfast simulate`: timeline, the state at the end, figures."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from holdfast.api.names import SIM_RUNS_FOR
from holdfast.api.plurals import number_of
from holdfast.api.quantity import format_amount
from holdfast.api.times import format_duration
from holdfast.cli.text_table import Column, Screen, TextTable
from holdfast.local.timeline import TimelineEntry
from holdfast.sim.figures import figures, held_text
from holdfast.sim.simulation import Result

_STYLES = {
    "Bound": "green",
    "Running": "green",
    "Available": "green",
    "Ready": "green",
    "Succeeded": "cyan",
    "Created": "dim",
    "Deleted": "dim",
    "Failed": "red",
    "Expired": "red",
    "Released": "dim",
    "Unschedulable": "yellow",
    "Waiting": "yellow",
    "Planned": "cyan",
    "Draining": "yellow",
    "Preempted": "magenta",
    "Evicted": "magenta",
}
_PHASE_STYLE = "yellow"


def print_run(screen: Screen, result: Result, title: str | None = None) -> None:
    if title:
        screen.heading(title)
    screen.show(_timeline(result.timeline))
    pods = [raw for raw in result.objects if raw["kind"] == "Pod"]
    if pods:
        screen.show(_pods(pods, result.other_schedulers))
    if result.node_usage.reservations.lives:
        screen.show(_reservations(result))
    nodes = [raw for raw in result.objects if raw["kind"] == "Node"]
    if nodes:
        screen.show(_nodes(nodes, result))
    table = TextTable("Summary", [Column("figure"), Column("value", right=True)])
    for name, value in figures(result).items():
        table.add(name, value)
    screen.show(table)
    if count := result.endless_job_pods:
        running = number_of(count, "pod of a Job runs", "pods of Jobs run")
        ends = f"--jobs-run-for or the annotation {SIM_RUNS_FOR}"
        screen.note(f"{running} at the end, having no run time: set one by {ends}")


def print_comparison(screen: Screen, results: Sequence[tuple[str | None, Result]]) -> None:
    columns = [Column("figure"), *(Column(str(name), right=True) for name, _ in results)]
    table = TextTable("Comparison", columns)
    for name, values in comparison_rows(results):
        table.add(name, *values, style="bold" if len(set(values)) > 1 else "")
    screen.show(table)


def comparison_rows(
    results: Sequence[tuple[str | None, Result]],
) -> Iterator[tuple[str, list[str]]]:
    """Each figure with its text for every run."""
    rows = [figures(result) for _, result in results]
    for name in dict.fromkeys(name for row in rows for name in row):
        yield name, [row.get(name, "-") for row in rows]


def _timeline(timeline: Sequence[TimelineEntry]) -> TextTable:
    """Counts the objects created at the start instead of listing them."""
    table = TextTable(
        "Timeline",
        [
            Column("time", right=True, wraps=False),
            Column("object"),
            Column("event", wraps=False),
            Column(""),
        ],
    )
    kinds: dict[str, int] = {}
    rest = []
    for entry in timeline:
        kind = entry.object.partition("/")[0]
        if entry.event == "Created" and entry.t == 0 and kind != "Reservation":
            kinds[kind] = kinds.get(kind, 0) + 1
        else:
            rest.append(entry)
    if kinds:
        said = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        table.add("0s", "", "Created", said, styled=2, style="dim")
    last, text = -1.0, ""
    for entry in rest:
        if entry.t != last:
            last, text = entry.t, _time(entry.t)
        style = _STYLES.get(entry.event, "")
        table.add(text, entry.object, entry.event, _detail(entry), styled=2, style=style)
    return table


def _detail(entry: TimelineEntry) -> str:
    parts = [entry.node and f"on {entry.node}", entry.reservation and f"by {entry.reservation}"]
    place = ", ".join(part for part in parts if part)
    return ": ".join(part for part in (place, entry.message) if part)


def _pods(pods: Sequence[dict[str, Any]], others: Collection[str]) -> TextTable:
    table = TextTable(
        "Pods at the end", [Column("pod"), Column("phase", wraps=False), Column("node"), Column("why")]
    )
    for pod in pods:
        phase = pod["status"].get("phase", "")
        if pod["metadata"].get("deletionTimestamp"):
            phase = "Terminating"
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        node = pod["spec"].get("nodeName", "")
        table.add(
            name, phase, node, _why(pod, others), styled=1, style=_STYLES.get(phase, _PHASE_STYLE)
        )
    return table


def _why(pod: dict[str, Any], others: Collection[str]) -> str:
    """Its message. `others` are the names of schedulers that no profile is for."""
    scheduler = pod["spec"].get("schedulerName")
    if scheduler in others and not pod["spec"].get("nodeName"):
        return f"no profile of the configuration is for its scheduler {scheduler}"
    if pod["status"].get("message"):
        return str(pod["status"]["message"])
    for condition in pod["status"].get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""


def _reservations(result: Result) -> TextTable:
    table = TextTable(
        "Reservations",
        [
            Column("reservation"),
            Column("kind", wraps=False),
            Column("node"),
            Column("created", right=True, wraps=False),
            Column("state", wraps=False),
            Column("ended", right=True, wraps=False),
            Column("pods", right=True, wraps=False),
            Column("held unused", right=True),
        ],
    )
    for life in result.node_usage.reservations.lives:
        state = life.end if life.ended is not None else life.phase
        table.add(
            life.name,
            life.kind,
            life.node,
            _time(life.created),
            state,
            _time(life.ended) if life.ended is not None else "",
            str(life.pods),
            held_text({name: total.unused for name, total in life.seconds.items()}),
            styled=4,
            style=_STYLES.get(state, _PHASE_STYLE),
        )
    return table


def _nodes(nodes: Sequence[dict[str, Any]], result: Result) -> TextTable:
    table = TextTable(
        "Nodes at the end",
        [
            Column("node"),
            Column("pods", right=True, wraps=False),
            Column("cpu", right=True, wraps=False),
            Column("memory", right=True, wraps=False),
            Column("held", right=True),
            Column(""),
        ],
    )
    for node in nodes:
        name = node["metadata"]["name"]
        state = result.node_usage.state(name)
        spec = node.get("spec") or {}
        notes = ["cordoned"] if spec.get("unschedulable") else []
        notes += [f"taint {taint['key']}:{taint['effect']}" for taint in spec.get("taints") or []]
        cpu, memory = (f"{100 * share:.0f}%" for share in (state.cpu, state.memory))
        table.add(name, str(state.pods), cpu, memory, _amounts(state.held), ", ".join(notes))
    return table


def _amounts(held: Mapping[str, int]) -> str:
    """`cpu=4,memory=8Gi`"""
    return ",".join(f"{name}={format_amount(name, amount)}" for name, amount in held.items() if amount)


def _time(seconds: float) -> str:
    return format_duration(round(seconds, 3))
