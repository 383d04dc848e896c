"""`holdfast simulate`"""

import enum
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.failing import Failure

if TYPE_CHECKING:
    from holdfast.sim.simulation import Progress, Result

_PROGRESS_EVERY = 50
_GARBAGE_AFTER = 200_000


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


def simulate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="F...",
            help="Files of objects, Steps and Expects; a folder is the files in it, - is stdin.",
            show_default=False,
        ),
    ],
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="F", help="Scheduler configuration; several are compared."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="D", help="When to stop, such as 90s; else when all is done."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="When virtual time starts, such as 2026-01-01T00:00:00Z, which is the default; of "
            "objects read from a cluster, the newest time they carry.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="What uids are made from.")] = 0,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TABLE,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write the run to this folder as well."),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            envvar="HOLDFAST_AUDIT",
            help="Check every write of the scheduler by an independent count of capacity.",
        ),
    ] = False,
) -> None:
    """Run a scenario on a cluster that is not there, in virtual time."""
    from holdfast.cli.setups import load_setup
    from holdfast.sim.errors import InvalidInput, InvariantBroken
    from holdfast.sim.loading import load_files
    from holdfast.sim.scenario import read_scenario
    from holdfast.sim.simulation import Simulation

    end, begin = _until(until), _start(start)
    configs: list[str | None] = [*config] if config else [None]
    setups = [load_setup(path) for path in configs]
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


def _show(results: "list[tuple[str | None, Result]]", output: Output) -> None:
    if output is Output.JSON:
        from holdfast.sim.output import to_json

        sys.stdout.write(to_json(results) + "\n")
        return
    from holdfast.cli.tables import print_comparison, print_run

    for path, result in results:
        print_run(result, title=path if len(results) > 1 else None)
    if len(results) > 1:
        print_comparison(results)


def _until(text: str | None) -> float | None:
    from holdfast.api.duration import parse_duration
    from holdfast.api.errors import DurationError

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
    from holdfast.api.timestamps import parse_time

    if text is None:
        return None
    try:
        return parse_time(text)
    except TimeError as error:
        raise Failure(1, [f"--start: {error}"]) from None


def _progress(path: str | None) -> "Progress | None":
    """A line that is written over and over, where there is someone to see it."""
    if not sys.stderr.isatty():
        return None
    name = f"{path}: " if path else ""

    def show(t: float, steps: int, waiting: int) -> None:
        if steps % _PROGRESS_EVERY == 0:
            sys.stderr.write(f"\r{name}{t:g}s, {steps} steps, {waiting} pods wait\x1b[K")
            sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
