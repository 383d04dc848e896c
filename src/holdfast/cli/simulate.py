"""`holdfast simulate`"""

import enum
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.names import SIM_RUNS_FOR
from holdfast.cli.options import UNLIMITED, Failure

if TYPE_CHECKING:
    from holdfast.sim.simulation import Progress, Result

_PROGRESS_EVERY = 50


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
            "for stdin. Or one directory with a recording, which is replayed.",
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
    jobs_run_for: Annotated[
        str,
        typer.Option(
            "--jobs-run-for",
            metavar="D",
            help="How long pods of Jobs run before they succeed, such as 10s; `unlimited`: until they "
            f"are deleted. The annotation {SIM_RUNS_FOR} of a pod takes precedence.",
        ),
    ] = UNLIMITED,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the generated UIDs.")] = 0,
    output: Annotated[
        SimulateOutput, typer.Option("-o", "--output", help="Output format.")
    ] = SimulateOutput.TABLE,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="DIR", help="Also write a report with plots to this directory."
        ),
    ] = None,
    no_expect: Annotated[
        bool,
        typer.Option(
            "--no-expect",
            help="Ignore the Expects of the scenario, for example if the configurations to compare "
            "lead to other results.",
        ),
    ] = False,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            envvar="HOLDFAST_AUDIT",
            help="Check every write of the scheduler against an independent count of capacity.",
        ),
    ] = False,
) -> None:
    """Run a scenario on a simulated cluster, in virtual time.

    Examples:
      # A scenario of your own, for one hour
      holdfast simulate scenario.yaml --until 1h

      # A scenario that comes with Holdfast
      holdfast simulate --example reservations/scale-up

      # Compare two configurations
      holdfast simulate scenario.yaml --config a.yaml --config b.yaml

      # Replay what `holdfast record` has recorded, under another configuration
      holdfast simulate recording --config a.yaml
    """
    from holdfast.cli.options import load_setup, read_jobs_run_for, warn_of_plugins
    from holdfast.recording.segments import is_recording
    from holdfast.sim.garbage import seldom_collected
    from holdfast.sim.scenario import read_scenario
    from holdfast.sim.simulated_cluster import InvariantBroken
    from holdfast.sim.simulation import Simulation
    from holdfast.snapshot.manifests import InvalidInput, load_files

    if list_examples:
        _list_examples(output)
        return
    files = [*(files or ()), *map(str, _example_files(example or ()))]
    if print_example:
        _print_examples(example or (), files)
        return
    if any(is_recording(Path(file)) for file in files):
        from holdfast.cli.replay import replay

        if len(files) > 1:
            raise Failure(1, ["a recording is replayed without other files"])
        for option, is_given, why in (
            ("--start", start is not None, "it starts when it was recorded"),
            ("--jobs-run-for", jobs_run_for != UNLIMITED, "pods run as long as they did"),
        ):
            if is_given:
                raise Failure(1, [f"{option} is not for recordings: {why}"])
        replay(Path(files[0]), config or [], _until(until), seed, output, report, audit=audit)
        return
    if not files:
        raise Failure(1, ["no scenario: name files, or --example NAME (--list-examples lists them)"])
    end, begin = _until(until), _start(start)
    run_for = read_jobs_run_for(jobs_run_for)
    configs: list[str | None] = [*config] if config else [None]
    setups = [load_setup(path) for path in configs]
    warn_of_plugins(setups)
    results: list[tuple[str | None, Result]] = []
    try:
        kinds = dict.fromkeys(kind for setup in setups for kind in setup.object_kinds())
        documents = load_files(files)
        if not documents:
            raise InvalidInput(f"{file}: no documents" for file in files)
        with seldom_collected():
            scenario = read_scenario(documents, tuple(kinds))
            if report is not None:
                _make_folder(report)
            for note in scenario.notes:
                typer.echo(note, err=True)
            for path, setup in zip(configs, setups, strict=True):
                for warning in setup.configuration.cautions:
                    typer.echo(f"warning: {path}: {warning}", err=True)
                with_progress = _progress(path)
                simulation = Simulation(
                    scenario,
                    setup,
                    seed,
                    begin,
                    audit=audit,
                    history=report is not None,
                    jobs_run_for=run_for,
                )
                result = simulation.run(end, with_progress)
                results.append((path, result))
                for failed in result.plugin_errors:
                    typer.echo(
                        f"plugin {failed.plugin} failed: {failed.message}\n{failed.trace}", err=True
                    )
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except InvariantBroken as error:
        lines = [f"invariant broken at {error.t:g}s: {each}" for each in error.problems]
        raise Failure(2, lines + [f"  {line}" for line in error.stories]) from None
    finally:
        _clear_progress()
    if report is not None:
        write_report_of(report, results, files)
    try:
        _show(results, output)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    unmet = [
        f"{path}: {each}" if len(results) > 1 else each
        for path, result in results
        for each in result.unmet
    ]
    if unmet and not no_expect:
        if len(results) > 1:
            unmet.append("the Expects were not met under every configuration; --no-expect ignores them")
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

    from holdfast.cli.simulation_tables import print_comparison, print_run
    from holdfast.cli.text_table import Screen

    screen = Screen()
    for path, result in results:
        print_run(screen, result, title=path if len(results) > 1 else None)
    if len(results) > 1:
        print_comparison(screen, results)


def _make_folder(folder: Path) -> None:
    """Before the run, which may take long, rather than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(1, [f"--report: {error.filename}: {error.strerror or error}"]) from None


def write_report_of(folder: Path, results: "list[tuple[str | None, Result]]", files: list[str]) -> None:
    from holdfast.sim.report import write_report

    try:
        note = write_report(folder, results, files)
    except OSError as error:
        raise Failure(1, [f"--report: {error.filename or folder}: {error.strerror or error}"]) from None
    if note:
        typer.echo(note, err=True)


def _discard_output() -> None:
    """The reader, such as `head`, has seen enough. What is still buffered is not written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
