"""A run written to a folder: `report.json`, `timeline.csv` and a page to look at.

With several configurations each has a folder of its own, named after its file.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.local.timeline import TimelineEntry
from holdfast.sim.report.page import page
from holdfast.sim.simulation import Result, to_json


def write_report(
    folder: Path, results: Sequence[tuple[str | None, Result]], files: Sequence[str]
) -> None:
    """Raises OSError where the folder cannot be written to."""
    if len(results) == 1:
        _write(folder, results[0][0], results[0][1], files)
        return
    taken: set[str] = set()
    for config, result in results:
        name = stem = Path(config or "default").stem
        number = 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        _write(folder / name, config, result, files)


def _write(folder: Path, config: str | None, result: Result, files: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(to_json([(config, result)]) + "\n", encoding="utf-8")
    with (folder / "timeline.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(TimelineEntry.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(entry) for entry in result.timeline)
    title = ", ".join(Path(name).name for name in files)
    (folder / "report.html").write_text(page(title, config, result), encoding="utf-8")
