"""Benchmark output: tables and JSON."""

from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from holdfast.bench.measure import BenchResult, Machine, SampleProfile
from holdfast.bench.trace import PUBLISHED
from holdfast.bench.workload import TRACE, rows

_BUSY = 1.15


def as_json(
    machine: Machine,
    results: list[BenchResult],
    profiles: list[SampleProfile],
    packing: list[dict[str, Any]] | None = None,
) -> str:
    document: dict[str, Any] = {"mode": "core", "machine": machine, "rows": results}
    if packing:
        document["packing"] = packing
    if profiles:
        document["profiles"] = profiles
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def progress_line(result: BenchResult) -> str:
    return (
        f"{result.workload}: {result.pods_per_second.best:,.0f} pods/s, "
        f"{result.bound} of {result.measured_pods} pods bound, placements {result.checksum}"
    )


def print_results(console: Console, machine: Machine, results: list[BenchResult]) -> None:
    table = new_table("workload", "nodes", "pods", "pods/s", "mean", "p50", "p99", "CPU s", "MB")
    for result in results:
        table.add_row(
            result.workload,
            str(result.nodes),
            str(result.measured_pods),
            f"{result.pods_per_second.best:.0f}",
            f"{result.pods_per_second.mean:.0f}",
            f"{result.latency.p50:.0f}",
            f"{result.latency.p99:.0f}",
            f"{result.cpu_seconds_per_1000_pods:.3f}",
            f"{result.peak_memory_mb:.0f}",
        )
    console.print(table)
    for result in results:
        if result.bound < result.measured_pods:
            short = result.measured_pods - result.bound
            console.print(f"{result.workload}: {short} pods were not bound.", highlight=False)
    busy = max(result.wall_to_cpu for result in results)
    if busy > _BUSY:
        console.print(
            f"The machine was busy: up to {busy:.1f} s elapsed for each CPU second.",
            highlight=False,
        )
    batch = results[0].batch
    console.print(
        f"pods/s: best and mean of runs with {batch} pods per round. p50, p99: µs per decision, "
        "with one pod per round. CPU s: per 1,000 pods. MB: peak memory of the process.\n"
        f"{machine}",
        highlight=False,
        soft_wrap=False,
    )


def print_profile(console: Console, profile: SampleProfile) -> None:
    total = sum(part.microseconds for part in profile.parts)
    table = new_table(f"{profile.workload}, {profile.nodes} nodes", "µs per pod", "share")
    for part in profile.parts:
        table.add_row(
            f"[bold]{part.name}", f"{part.microseconds:.2f}", f"{part.microseconds / total:.0%}"
        )
        for section in part.sections:
            table.add_row(
                f"  {section.name}",
                f"{section.microseconds:.2f}",
                f"{section.microseconds / total:.0%}",
            )
    table.add_row("[bold]total", f"{total:.2f}", "")
    console.print(table)
    functions = new_table("functions with the most CPU time", "µs per pod")
    for function in profile.functions:
        functions.add_row(function.name, f"{function.microseconds:.2f}")
    console.print(functions)


def print_list(console: Console) -> None:
    table = new_table("workload", "nodes", "pods")
    table.columns[0].no_wrap = True  # names are copied from here
    table.columns[0].min_width = max(map(len, rows()))
    table.add_column("description")
    for name, row in rows().items():
        table.add_row(
            name,
            str(row.workload.nodes),
            str(row.variant.counts.get("measured", "")),
            row.workload.about,
        )
    table.add_row(TRACE, "", "", "a recorded GPU cluster; needs --trace DIR")
    console.print(table)
    console.print(f"{TRACE} is published at {PUBLISHED}", highlight=False, soft_wrap=True)


def new_table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
