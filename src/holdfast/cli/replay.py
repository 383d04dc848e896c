"""`holdfast simulate DIR` of a recording: replays it under each configuration, beside what happened."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.api.plurals import number_of
from holdfast.cli.options import Failure, load_setup, warn_of_plugins

if TYPE_CHECKING:
    from holdfast.cli.simulate import SimulateOutput
    from holdfast.sim.simulation import Progress, Result

_DEFAULT = "default"
_PROGRESS_EVERY = 200
_LONG_WAITS = {"10m": 600.0, "1h": 3600.0, "8h": 8 * 3600.0}


def replay(
    folder: Path,
    configs: Sequence[str],
    until: float | None,
    seed: int,
    output: "SimulateOutput",
    report: Path | None,
    *,
    audit: bool,
) -> None:
    """Raises Failure."""
    from holdfast.recording.lives import read_lives
    from holdfast.recording.segments import Recording, RecordingError
    from holdfast.sim.garbage import seldom_collected
    from holdfast.sim.replay.as_recorded import AS_RECORDED, RecordedRun
    from holdfast.sim.replay.replay import Replay
    from holdfast.sim.simulated_cluster import InvariantBroken

    names: list[str | None] = [*configs] or [None]
    setups = [load_setup(name) for name in names]
    warn_of_plugins(setups)
    results: list[tuple[str | None, Result]] = []
    notes: dict[str, None] = {}
    try:
        with seldom_collected():
            lives = read_lives(Recording(folder))
            results.append((AS_RECORDED, RecordedRun(lives).result()))
            for name, setup in zip(names, setups, strict=True):
                for warning in setup.configuration.cautions:
                    typer.echo(f"warning: {name}: {warning}", err=True)
                run = Replay(lives, setup, str(folder), seed, audit=audit, history=report is not None)
                results.append((name or _DEFAULT, run.run(until, _progress(name, lives.end))))
                notes |= dict.fromkeys(run.notes)
                if run.replaced:
                    pods = number_of(run.replaced, "pod was", "pods were")
                    notes[f"{name or _DEFAULT}: {pods} evicted and created again"] = None
                for failed in results[-1][1].plugin_errors:
                    typer.echo(
                        f"plugin {failed.plugin} failed: {failed.message}\n{failed.trace}", err=True
                    )
    except RecordingError as error:
        raise Failure(1, [str(error)]) from None
    except InvariantBroken as error:
        lines = [f"invariant broken at {error.t:g}s: {each}" for each in error.problems]
        raise Failure(2, lines + [f"  {line}" for line in error.stories]) from None
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    for note in notes:
        typer.echo(note, err=True)
    if report is not None:
        from holdfast.cli.simulate import write_report_of

        write_report_of(report, results[1:], [str(folder)])
    _show(results, output)


def _show(results: "list[tuple[str | None, Result]]", output: "SimulateOutput") -> None:
    if output.value == "json":
        from holdfast.sim.simulation import to_json

        sys.stdout.write(to_json(results) + "\n")
        return
    from holdfast.cli.simulation_tables import comparison_rows
    from holdfast.cli.text_table import Column, Screen, TextTable

    columns = [Column("figure"), *(Column(str(name), right=True) for name, _ in results)]
    table = TextTable("Replay", columns)
    for label, values in comparison_rows(results):
        table.add(label, *values, style="bold" if len(set(values)) > 1 else "")
    waits = [_waits(result) for _, result in results]
    for text, seconds in _LONG_WAITS.items():
        counts = [str(sum(wait > seconds for wait in each)) for each in waits]
        if any(count != "0" for count in counts):
            style = "bold" if len(set(counts)) > 1 else ""
            table.add(f"pods that waited over {text}", *counts, style=style)
    Screen().show(table)


def _waits(result: "Result") -> list[float]:
    """How long pods waited, those that still do at the end included."""
    from holdfast.local.timeline import BOUND, CREATED, DELETED

    waiting: dict[str, float] = {}
    for entry in result.timeline:
        if entry.event == CREATED and entry.object.startswith("Pod/") and not entry.node:
            waiting[entry.object] = entry.t
        elif entry.event in (BOUND, DELETED):
            waiting.pop(entry.object, None)
    return [*result.waits, *(result.end - since for since in waiting.values())]


def _progress(name: str | None, end: float) -> "Progress | None":
    """A progress line on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(t: float, steps: int, waiting: int) -> None:
        if steps % _PROGRESS_EVERY == 0:
            share = 100 * t / end if end else 100
            text = f"\r{name or _DEFAULT}: {share:.0f}%, {waiting} pods pending\x1b[K"
            sys.stderr.write(text)
            sys.stderr.flush()

    return show
