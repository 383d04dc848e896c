"""A run as a folder: `report.html`, `report.json`, `timeline.csv`, and each plot as a file in `plots`.

With several configurations each has such a folder, named after its file, and `report.html` beside them
compares the runs.

    scales, svg     axes, and plots as SVG
    plots           the plots of a run
    page_data       what the page's script shows at a moment
    page            the page of a run
    comparison      the plots and the page of several runs
    raster          plots as PNG
    static          style and script
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.local.timeline import TimelineEntry
from holdfast.sim.report.comparison import ComparedRun, comparison_page, comparison_plots
from holdfast.sim.report.page import file_style, run_page
from holdfast.sim.report.plots import run_plots
from holdfast.sim.report.raster import HOW_TO_GET_PNG, rasterizer
from holdfast.sim.report.svg import Plot
from holdfast.sim.simulation import Result, to_json

PAGE = "report.html"
_PLOTS = "plots"


def write_report(
    folder: Path, results: Sequence[tuple[str | None, Result]], files: Sequence[str]
) -> str:
    """Returns a note for the user, or "". Raises OSError where the folder cannot be written to."""
    title = ", ".join(Path(name).name for name in files)
    if len(results) == 1:
        config, result = results[0]
        _write_run(folder, title, config, result)
    else:
        runs = _named(results)
        for run in runs:
            _write_run(folder / run.folder, title, run.config, run.result, back=f"../{PAGE}")
        plots = comparison_plots(runs)
        _write_plots(folder, plots)
        _write_text(folder / PAGE, comparison_page(title, runs, plots))
    return "" if rasterizer() is not None else HOW_TO_GET_PNG


def _named(results: Sequence[tuple[str | None, Result]]) -> list[ComparedRun]:
    """Each run with a folder of its own, although names of files may be equal."""
    taken = {_PLOTS}
    short = [Path(config or "default").name for config, _ in results]
    are_different = len(set(short)) == len(short)
    runs = []
    for config, result in results:
        name = stem = Path(config or "default").stem or "default"
        number = 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        label = Path(config or "default").name if are_different else config or "default"
        runs.append(ComparedRun(name, label, config, result))
    return runs


def _write_run(folder: Path, title: str, config: str | None, result: Result, back: str = "") -> None:
    plots = run_plots(result)
    _write_plots(folder, plots)
    _write_text(folder / "report.json", to_json([(config, result)]) + "\n")
    with (folder / "timeline.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(TimelineEntry.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(entry) for entry in result.timeline)
    _write_text(folder / PAGE, run_page(title, config, result, plots, back))


def _write_plots(folder: Path, plots: Sequence[Plot]) -> None:
    """Replaces the plots of an earlier report in the folder."""
    inside = folder / _PLOTS
    inside.mkdir(parents=True, exist_ok=True)
    for old in (*inside.glob("*.svg"), *inside.glob("*.png")):
        old.unlink()
    rasterize = rasterizer()
    for plot in plots:
        svg = plot.file(file_style())
        _write_text(inside / f"{plot.name}.svg", svg)
        if rasterize is not None:
            (inside / f"{plot.name}.png").write_bytes(rasterize(svg))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
