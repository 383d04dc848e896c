"""Figures of kube mode, as a table or as JSON."""

import msgspec
from rich.console import Console

from holdfast.bench.kube.measure import KubeResult
from holdfast.bench.machine import Machine
from holdfast.bench.report import new_table


def as_json(machine: Machine, results: list[KubeResult]) -> str:
    document = {"mode": "kube", "machine": machine, "rows": results}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def best_of(runs: list[list[KubeResult]]) -> list[KubeResult]:
    """For each scheduler its run with the most pods a second."""
    return [max(each, key=lambda result: result.pods_per_second) for each in zip(*runs, strict=True)]


def progress_line(result: KubeResult) -> str:
    return (
        f"{result.workload} by {result.scheduler}: {result.pods_per_second:,.0f} pods/s, "
        f"{result.cpu_seconds_per_1000_pods:.2f} CPU seconds per 1,000 pods"
    )


def print_results(console: Console, machine: Machine, results: list[KubeResult]) -> None:
    table = new_table(
        "workload", "scheduler", "nodes", "pods", "pods/s", "CPU s", "MB", "x pods/s", "x CPU"
    )
    others = {r.workload: r for r in results if r.scheduler != "holdfast"}
    for result in results:
        other = others.get(result.workload) if result.scheduler == "holdfast" else None
        table.add_row(
            result.workload,
            result.scheduler,
            str(result.nodes),
            str(result.measured_pods),
            f"{result.pods_per_second:.0f}",
            f"{result.cpu_seconds_per_1000_pods:.3f}",
            f"{result.peak_memory_mb:.0f}",
            _times(result.pods_per_second, other.pods_per_second) if other else "",
            _times(result.cpu_seconds_per_1000_pods, other.cpu_seconds_per_1000_pods) if other else "",
        )
    console.print(table)
    console.print(
        "pods/s: from the first bind to the last, the best run. CPU s: of the scheduler's process, per "
        "1,000 pods. MB: its peak. x: Holdfast's figure by kube-scheduler's.",
        highlight=False,
    )
    console.print(str(machine), highlight=False)


def _times(figure: float, other: float) -> str:
    """A run of a pod or two can take no time that can be told."""
    return f"{figure / other:.2f}" if other else ""
