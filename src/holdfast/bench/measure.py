"""Measures one row: throughput, latency, memory, a sampling profile, and the machine it ran on."""

import os
import platform
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import msgspec
import numpy as np

import holdfast
from holdfast.bench.drive import Drive, Meter
from holdfast.bench.plan import BenchPlan
from holdfast.bench.workload import BenchError


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    holdfast: str

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return f"{self.cpu}, {cores}, {self.system}, Python {self.python}, numpy {self.numpy}"


def this_machine() -> Machine:
    return Machine(
        cpu=_cpu(),
        cores=_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        numpy=np.__version__,
        holdfast=holdfast.__version__,
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Figures of one row


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


class BenchResult(msgspec.Struct, frozen=True, rename="camel"):
    workload: str
    nodes: int
    init_pods: int
    measured_pods: int
    bound: int
    checksum: str
    """Checksum of the nodes of the measured pods."""
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
    """Peak of the process until the end of the first run; meaningful only if the workload has its own
    process."""


def measure(plan: BenchPlan, batch: int, repeat: int) -> BenchResult:
    """Runs the plan `repeat` times, and once more with pods arriving one at a time."""
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
    return BenchResult(
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
    """The results kept of a run; its scheduler is released."""

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
    """The peak resident memory of this process in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike ru_maxrss this does not start at what the parent had before exec.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024**2 if sys.platform == "darwin" else peak / 1024


# Sampling profile. A timer interrupts the run a thousand times a second; the innermost frame of
# Holdfast's code gives the section. Unlike a tracing profiler this does not slow small functions down.
# The totals of feed, round and confirm are measured by the clock; samples only divide them up.


_INTERVAL = 0.001
_ENOUGH = 4000
_MOST_RUNS = 20
_ROOT = str(Path(holdfast.__file__).parent) + "/"

_SECTIONS = {
    "scheduler/framework/feasibility/column.py": "column refresh",
    "scheduler/framework/diagnosis.py": "diagnosis",
    "scheduler/framework/feasibility/topology_keys.py": "column refresh",
    "scheduler/framework/feasibility/volume_column.py": "column refresh",
    "scheduler/framework/feasibility/reservation_scores.py": "column refresh",
    "scheduler/framework/feasibility/reservation_column.py": "column refresh",
    "scheduler/framework/dry_run.py": "preemption",
    "scheduler/framework/scheduling_queue.py": "queue",
    "scheduler/framework/": "decisions",
    "scheduler/plugins/default_binder.py": "decisions",
    "scheduler/plugins/preemption_candidates.py": "preemption",
    "scheduler/plugins/default_preemption.py": "preemption",
    "scheduler/cluster/disruption_budgets.py": "preemption",
    "scheduler/plugins/priority_sort.py": "queue",
    "scheduler/plugins/scheduling_gates.py": "queue",
    "scheduler/plugins/": "column refresh",
    "scheduler/actions/": "decisions",
    "scheduler/cluster/pod_classes.py": "pod classes",
    "api/": "pod classes",
    "scheduler/cluster/ledger.py": "ledger",
    "scheduler/cluster/affinity_terms.py": "topology counts",
    "scheduler/cluster/domain_counts.py": "topology counts",
    "scheduler/managers/volumes/": "volumes",
    "scheduler/cluster/view.py": "column refresh",
    "scheduler/cluster/base.py": "story",
    "scheduler/cluster/columns.py": "ledger",
    "scheduler/cluster/reservation_table.py": "ledger",
    "scheduler/reservations/": "reservations",
    "scheduler/controllers/": "reservations",
    "scheduler/": "cluster",
    "bench/": "freeing objects",
}
"""By the longest beginning of a module's path."""
_ARGMAX = ("scheduler/framework/feasibility/column.py", "best")

Place = tuple[str, str]
"""Module path and function."""


class SampleShare(msgspec.Struct, frozen=True):
    name: str
    microseconds: float


class SamplePart(msgspec.Struct, frozen=True):
    name: str
    microseconds: float
    sections: list[SampleShare]


class SampleProfile(msgspec.Struct, frozen=True):
    """Microseconds per pod by part and section, and of the most expensive functions."""

    workload: str
    nodes: int
    samples: int
    parts: list[SamplePart]
    functions: list[SampleShare]


class Sampler:
    def __init__(self) -> None:
        self.samples: Counter[tuple[str, Place]] = Counter()
        self._part = ""
        self._places: dict[CodeType, Place | None] = {}

    def watch(self, part: str) -> None:
        self._part = part

    def __call__(self, _signal: int, frame: FrameType | None) -> None:
        if not self._part:
            return
        while frame is not None:
            place = self._place(frame.f_code)
            if place is not None:
                self.samples[self._part, place] += 1
                return
            frame = frame.f_back

    def _place(self, code: CodeType) -> Place | None:
        if code not in self._places:
            inside = code.co_filename.startswith(_ROOT)
            path = code.co_filename.removeprefix(_ROOT)
            self._places[code] = (path, code.co_qualname.replace(".<locals>", "")) if inside else None
        return self._places[code]


def profile(plan: BenchPlan, batch: int) -> SampleProfile:
    """Runs the plan until there are enough samples."""
    if not hasattr(signal, "setitimer"):
        raise BenchError("--profile needs interval timers, which this system does not have")
    sampler = Sampler()
    meters: list[Meter] = []
    before = signal.signal(signal.SIGALRM, sampler)
    signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
    try:
        while sampler.samples.total() < _ENOUGH and len(meters) < _MOST_RUNS:
            drive = Drive(plan, batch, watch=sampler.watch)
            drive.run()
            meters.append(drive.meter)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    parts = list(_parts(sampler.samples, meters))
    total = sum(part.microseconds for part in parts)
    functions: Counter[str] = Counter()
    for (_, (path, function)), count in sampler.samples.items():
        functions[f"{path} {function}"] += count
    samples = max(1, sampler.samples.total())
    return SampleProfile(
        workload=plan.name,
        nodes=plan.nodes,
        samples=sampler.samples.total(),
        parts=parts,
        functions=[
            SampleShare(name, round(total * count / samples, 2))
            for name, count in functions.most_common(15)
        ],
    )


def _parts(samples: Counter[tuple[str, Place]], meters: list[Meter]) -> Iterator[SamplePart]:
    pods = sum(meter.pods for meter in meters)
    for name in ("feed", "round", "confirm"):
        taken = sum(getattr(meter, name) for meter in meters) / pods / 1e3
        counts: Counter[str] = Counter()
        for (part, place), count in samples.items():
            if part == name:
                counts[section_of(*place)] += count
        sections = [
            SampleShare(section, round(taken * count / counts.total(), 2))
            for section, count in counts.most_common()
        ]
        yield SamplePart(name, round(taken, 2), sections)


def section_of(path: str, function: str) -> str:
    if path == _ARGMAX[0] and function.endswith(f".{_ARGMAX[1]}"):
        return "argmax"
    beginning = max((known for known in _SECTIONS if path.startswith(known)), key=len, default="")
    return _SECTIONS.get(beginning, "other")
