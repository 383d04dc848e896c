"""`holdfast simulate`"""

import enum
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Failure

if TYPE_CHECKING:
    from holdfast.sim.simulation import Progress, Result
from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.api.times import format_duration
from holdfast.local.timeline import TimelineEntry
from holdfast.sim.simulation import Result

_PROGRESS_EVERY = 50
_GARBAGE_AFTER = 200_000


class SimulateOutput(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


def _complete_example(incomplete: str) -> list[tuple[str, str]]:
    from holdfast.sim.examples import examples

    return [(each.name, each.description) for each in examples() if each.name.startswith(incomplete)]


def simulate(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="F...",
            help="Files of objects, Steps and Expects; a directory stands for the files in it, - "
            "for stdin.",
            show_default=False,
        ),
    ] = None,
    example: Annotated[
        list[str] | None,
        typer.Option(
            "--example",
            metavar="NAME",
            help="A scenario that comes with Holdfast, such as reservations/scale-up; may be repeated, "
            "also with files.",
            autocompletion=_complete_example,
            show_default=False,
        ),
    ] = None,
    list_examples: Annotated[
        bool, typer.Option("--list-examples", help="List the scenarios that come with Holdfast.")
    ] = False,
    print_example: Annotated[
        bool,
        typer.Option(
            "--print", help="Print the scenario of --example, to be edited, and do not run it."
        ),
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="F", help="Scheduler configuration; repeat it to compare several."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="D",
            help="Virtual time to stop at, such as 90s (default: after the scenario's last action).",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="Start of virtual time (default: 2026-01-01T00:00:00Z; for objects read from a "
            "cluster, the newest timestamp in them).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the generated UIDs.")] = 0,
    output: Annotated[
        SimulateOutput, typer.Option("-o", "--output", help="Output format.")
    ] = SimulateOutput.TABLE,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Also write the result to this directory."),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            envvar="HOLDFAST_AUDIT",
            help="Check every write of the scheduler against an independent count of capacity.",
        ),
    ] = False,
) -> None:
    """Run a scenario on a simulated cluster, in virtual time."""
    from holdfast.cli.options import load_setup, warn_of_plugins
    from holdfast.sim.manifests import InvalidInput, load_files
    from holdfast.sim.scenario import read_scenario
    from holdfast.sim.simulated_cluster import InvariantBroken
    from holdfast.sim.simulation import Simulation

    if list_examples:
        _list_examples(output)
        return
    files = [*(files or ()), *map(str, _example_files(example or ()))]
    if print_example:
        _print_examples(example or (), files)
        return
    if not files:
        raise Failure(1, ["no scenario: name files, or --example NAME (--list-examples lists them)"])
    end, begin = _until(until), _start(start)
    configs: list[str | None] = [*config] if config else [None]
    setups = [load_setup(path) for path in configs]
    warn_of_plugins(setups)
    results: list[tuple[str | None, Result]] = []
    # Nearly everything made below is kept to the end, so looking for garbage seldom pays.
    thresholds = gc.get_threshold()
    gc.set_threshold(_GARBAGE_AFTER, *thresholds[1:])
    try:
        kinds = dict.fromkeys(kind for setup in setups for kind in setup.object_kinds())
        scenario = read_scenario(load_files(files), tuple(kinds))
        for note in scenario.notes:
            typer.echo(note, err=True)
        for path, setup in zip(configs, setups, strict=True):
            for warning in setup.configuration.cautions:
                typer.echo(f"warning: {path}: {warning}", err=True)
            with_progress = _progress(path)
            result = Simulation(scenario, setup, seed, begin, audit=audit).run(end, with_progress)
            results.append((path, result))
            for failed in result.plugin_errors:
                typer.echo(f"plugin {failed.plugin} failed: {failed.message}\n{failed.trace}", err=True)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except InvariantBroken as error:
        lines = [f"invariant broken at {error.t:g}s: {each}" for each in error.problems]
        raise Failure(2, lines + [f"  {line}" for line in error.stories]) from None
    finally:
        gc.set_threshold(*thresholds)
        _clear_progress()
    _show(results, output)
    if report is not None:
        from holdfast.sim.report import write_report

        try:
            write_report(report, results, files)
        except OSError as error:
            raise Failure(1, [f"{report}: {error.strerror or error}"]) from None
    unmet = [
        f"{path}: {each}" if len(results) > 1 else each
        for path, result in results
        for each in result.unmet
    ]
    if unmet:
        raise Failure(1, unmet)


def _example_files(names: Sequence[str]) -> list[Path]:
    from holdfast.sim.examples import UnknownExample, find_example

    try:
        return [find_example(name).file for name in names]
    except UnknownExample as error:
        raise Failure(1, [f"--example: {error}"]) from None


def _list_examples(output: SimulateOutput) -> None:
    from holdfast.sim.examples import examples

    found = examples()
    if output is SimulateOutput.JSON:
        from holdfast.cli.printing import as_json

        listed = [
            {"name": each.name, "description": each.description, "file": str(each.file)}
            for each in found
        ]
        typer.echo(as_json({"examples": listed}), nl=False)
        return
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        typer.echo(f"{each.name:{width}}  {each.description}")


def _print_examples(names: Sequence[str], files: Sequence[str]) -> None:
    if not names or len(names) < len(files):
        raise Failure(1, ["--print: prints what --example names, and takes no files"])
    texts = (Path(file).read_text(encoding="utf-8") for file in files)
    typer.echo("---\n".join(texts), nl=False)


def _show(results: "list[tuple[str | None, Result]]", output: SimulateOutput) -> None:
    if output is SimulateOutput.JSON:
        from holdfast.sim.simulation import to_json

        sys.stdout.write(to_json(results) + "\n")
        return

    for path, result in results:
        print_run(result, title=path if len(results) > 1 else None)
    if len(results) > 1:
        print_comparison(results)


def _until(text: str | None) -> float | None:
    from holdfast.api.errors import DurationError
    from holdfast.api.times import parse_duration

    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise Failure(1, [f"--until: {error}"]) from None
    if seconds < 0:
        raise Failure(1, [f"--until: must not be negative: {text}"])
    return seconds


def _start(text: str | None) -> float | None:
    from holdfast.api.errors import TimeError
    from holdfast.api.times import parse_time

    if text is None:
        return None
    try:
        return parse_time(text)
    except TimeError as error:
        raise Failure(1, [f"--start: {error}"]) from None


def _progress(path: str | None) -> "Progress | None":
    """A progress line on a terminal."""
    if not sys.stderr.isatty():
        return None
    name = f"{path}: " if path else ""

    def show(t: float, steps: int, waiting: int) -> None:
        if steps % _PROGRESS_EVERY == 0:
            sys.stderr.write(f"\r{name}{t:g}s, {steps} steps, {waiting} pods pending\x1b[K")
            sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


# Table output: timeline, final state, figures


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
    """As wide as the terminal; a fixed width if there is none."""
    # Messages of objects are plain text, not markup.
    plain = partial(Console, highlight=False, markup=False, emoji=False)
    console = plain()
    return console if console.is_terminal else plain(width=_PIPED_WIDTH, no_color=True)


def _table(title: str, *columns: str, right: bool = False) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for i, column in enumerate(columns):
        justify: Any = "right" if right and i else "left"
        table.add_column(column, justify=justify, overflow="fold")
    return table


def _print_timeline(console: Console, timeline: Sequence[TimelineEntry]) -> None:
    """Counts the objects created at the start instead of listing them."""
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


def _quiet(entry: TimelineEntry) -> bool:
    return not entry.object.startswith("Reservation/")


def _detail(entry: TimelineEntry) -> str:
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
        last = result.node_usage.history[name][-1]
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
        "  unschedulable": str(pods["unschedulable"]),
        "mean wait": _time(wait["mean"]),
        "longest wait": _time(wait["max"]),
        "nodes in use (peak)": f"{nodes['used']} of {nodes['total']} ({nodes['peak']})",
    }
    for name, shares in summary["utilisation"].items():
        figures[f"{name} requested (at the end)"] = (
            f"{_percent(shares['mean'])} ({_percent(shares['end'])})"
        )
    for reason, count in summary["unschedulable"].items():
        figures[f"pending because of: {reason}"] = str(count)
    return figures


def _time(seconds: float) -> str:
    return format_duration(round(seconds, 3))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
