"""Runs `holdfast bench --mode embedded`."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console

from holdfast.bench.local import in_process as inside
from holdfast.bench.local import over_http
from holdfast.bench.local.in_process import Measured
from holdfast.bench.measure import this_machine
from holdfast.bench.report import new_table

DEFAULT_NODES = 1_000
_PODS_PER_NODE = 10


def run(nodes: int, repeat: int, as_json: bool) -> None:
    """The best of the given number of runs of each row."""
    errors = Console(stderr=True, highlight=False)
    pods = nodes * _PODS_PER_NODE
    rows: list[Callable[[Path], Measured]] = [
        lambda folder: inside.measure(nodes, pods, None),
        lambda folder: inside.measure(nodes, pods, folder / "data"),
        lambda folder: over_http.measure(nodes, pods, folder, kept=False),
        lambda folder: over_http.measure(nodes, pods, folder, kept=True),
    ]
    best = []
    for row in rows:
        runs = []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(row(Path(folder)))
        best.append(max(runs, key=lambda each: each.rate))
        errors.print(f"{best[-1].how}: {best[-1].rate:,.0f} pods/s")
    if as_json:
        document = {"mode": "embedded", "machine": this_machine(), "rows": best}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        _print(Console(highlight=False), best)


def _print(console: Console, rows: list[Measured]) -> None:
    table = new_table("pods created", "nodes", "pods", "pods/s", "CPU s per 1,000")
    for row in rows:
        cpu = row.cpu_seconds / row.pods * 1_000
        table.add_row(row.how, str(row.nodes), str(row.pods), f"{row.rate:,.0f}", f"{cpu:.2f}")
    console.print(table)
    console.print(str(this_machine()))
