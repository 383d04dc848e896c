"""The figures of one row."""

import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.bench.drive import Drive, Meter
from holdfast.bench.errors import BenchError
from holdfast.bench.plan import Plan

LATENCY_PODS = 10_000
"""A latency pass looks at no more pods than this."""


class Rate(msgspec.Struct, frozen=True):
    """Measured pods per second, over the runs."""

    best: float
    mean: float
    runs: list[float]


class Spread(msgspec.Struct, frozen=True):
    """Microseconds."""

    p50: float
    p99: float


class Parts(msgspec.Struct, frozen=True):
    """Microseconds per pod in the best run."""

    feed: float
    round: float
    confirm: float


class Result(msgspec.Struct, frozen=True, rename="camel"):
    workload: str
    nodes: int
    init_pods: int
    measured_pods: int
    bound: int
    checksum: str
    """Of the measured pods' nodes."""
    decisions: dict[str, int]
    pods_per_second: Rate
    parts: Parts
    batch: int
    batch_share: Spread
    """From a batch's first pod to its decisions, divided by its pods."""
    latency: Spread
    """From one pod to its decision, pods coming one at a time."""
    cpu_seconds_per_1000_pods: float = msgspec.field(name="cpuSecondsPer1000Pods")
    wall_to_cpu: float
    """Elapsed time against CPU time in the best run: above 1, others had the processor meanwhile."""
    peak_memory_mb: float = msgspec.field(name="peakMemoryMB")
    """Of the process up to the end of the first run; its own only if the row has its own process."""


def measure(plan: Plan, batch: int, repeat: int) -> Result:
    """Runs the plan `repeat` times, and once more with pods coming one at a time."""
    runs = []
    memory = 0.0
    for _ in range(1 if plan.streamed else repeat):
        runs.append(_run(Drive(plan, batch)))
        memory = memory or peak_memory()
    if len({run.checksum for run in runs}) > 1:
        raise BenchError(f"{plan.name}: two runs came to different decisions")
    best = max(runs, key=lambda run: run.rate)
    rates = [round(run.rate, 1) for run in runs]
    single = _run(Drive(plan, 1, limit=LATENCY_PODS))
    meter = best.meter
    return Result(
        workload=plan.name,
        nodes=plan.nodes,
        init_pods=plan.pods(measured=False),
        measured_pods=plan.pods(measured=True),
        bound=best.bound,
        checksum=best.checksum,
        decisions=best.decisions,
        pods_per_second=Rate(max(rates), round(sum(rates) / len(rates), 1), rates),
        parts=Parts(
            *(round(ns / meter.pods / 1e3, 2) for ns in (meter.feed, meter.round, meter.confirm))
        ),
        batch=batch,
        batch_share=spread(meter.decision_times),
        latency=spread(single.meter.decision_times),
        cpu_seconds_per_1000_pods=round(meter.cpu / meter.pods / 1e6, 5),
        wall_to_cpu=round(meter.total / meter.cpu, 2),
        peak_memory_mb=round(memory, 1),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What is kept of a run; the scheduler it drove is let go."""

    meter: Meter
    bound: int
    checksum: str
    decisions: dict[str, int]

    @property
    def rate(self) -> float:
        return self.meter.pods / self.meter.total * 1e9


def _run(drive: Drive) -> _Run:
    drive.run()
    return _Run(drive.meter, len(drive.placed), drive.checksum(), dict(sorted(drive.decisions.items())))


def spread(nanoseconds: list[float]) -> Spread:
    ordered = sorted(nanoseconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e3, 1)

    return Spread(at(0.50), at(0.99))


def peak_memory() -> float:
    """Megabytes this process has had in memory at most."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike ru_maxrss this does not start at what the parent had before exec.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024**2 if sys.platform == "darwin" else peak / 1024
