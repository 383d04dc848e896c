"""The part of `holdfast bench openb` that shows how full the GPUs get."""

from pathlib import Path

from rich.console import Console

from holdfast.bench.errors import BenchError
from holdfast.bench.packing.arrivals import NoGpusError, read_trace
from holdfast.bench.packing.figures import Figures, figures, plot
from holdfast.bench.packing.runs import STRATEGIES, run


def pack(folder: Path, nodes: str, pods: str, seeds: int, drawn: Path | None) -> list[Figures]:
    """One run per strategy and seed; the plot goes where it is wanted. Nothing if there are no GPUs.
    Raises BenchError."""
    try:
        trace = read_trace(folder, nodes, pods)
    except NoGpusError:
        return []
    errors = Console(stderr=True, highlight=False)
    runs = []
    for strategy in STRATEGIES:
        for seed in range(seeds):
            with errors.status(f"{strategy}, seed {seed}"):
                runs.append(run(trace, strategy, seed))
        done = [each.allocated[min(100, len(each.allocated) - 1)] for each in runs[-seeds:]]
        errors.print(f"{strategy}: {sum(done) / len(done):.2%} of the GPUs allocated")
    found = figures(runs)
    if drawn is not None:
        try:
            drawn.write_text(plot(found), encoding="utf-8")
        except OSError as error:
            raise BenchError(f"--plot {drawn}: {error.strerror or error}") from None
    return found
