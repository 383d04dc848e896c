"""Where the microseconds go: a sampling profile of a run.

A timer interrupts the run a thousand times a second; the innermost frame of Holdfast's code says what
was being done. Unlike a tracing profiler this leaves small functions as cheap as they are. What each
part takes as a whole (feed, round, confirm) is the clock's word; samples only divide it up.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import msgspec

import holdfast
from holdfast.bench.drive import Drive, Meter
from holdfast.bench.errors import BenchError
from holdfast.bench.plan import Plan

_INTERVAL = 0.001
_ENOUGH = 4000
_MOST_RUNS = 20
_ROOT = str(Path(holdfast.__file__).parent) + "/"

_SECTIONS = {
    "framework/column.py": "column refresh",
    "framework/diagnosis.py": "diagnosis",
    "framework/keyed.py": "column refresh",
    "framework/narrowed.py": "column refresh",
    "framework/drawing.py": "column refresh",
    "framework/owned.py": "column refresh",
    "framework/trial.py": "preemption",
    "framework/queue.py": "queue",
    "framework/": "decisions",
    "plugins/default_binder.py": "decisions",
    "plugins/candidates.py": "preemption",
    "plugins/default_preemption.py": "preemption",
    "plugins/disruption_budgets.py": "preemption",
    "plugins/queue_sort.py": "queue",
    "plugins/scheduling_gates.py": "queue",
    "plugins/": "column refresh",
    "actions/": "decisions",
    "core/classes.py": "pod classes",
    "api/": "pod classes",
    "core/ledger.py": "ledger",
    "core/affinity_terms.py": "topology counts",
    "core/tally.py": "topology counts",
    "core/topology.py": "topology counts",
    "core/volumes/": "volumes",
    "core/view.py": "column refresh",
    "core/story.py": "story",
    "core/rowlog.py": "ledger",
    "core/holds.py": "ledger",
    "core/promises/": "reservations",
    "controllers/": "reservations",
    "core/": "cluster",
    "bench/": "freeing objects",
}
"""By the longest beginning of a module's path."""
_ARGMAX = ("framework/column.py", "best")

Place = tuple[str, str]
"""Module path and function."""


class Share(msgspec.Struct, frozen=True):
    name: str
    microseconds: float


class Part(msgspec.Struct, frozen=True):
    name: str
    microseconds: float
    sections: list[Share]


class Profile(msgspec.Struct, frozen=True):
    """Microseconds per pod: by part and section, and of the functions that take the most."""

    workload: str
    nodes: int
    samples: int
    parts: list[Part]
    functions: list[Share]


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


def profile(plan: Plan, batch: int) -> Profile:
    """Runs the plan until there are enough samples to tell."""
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
    return Profile(
        workload=plan.name,
        nodes=plan.nodes,
        samples=sampler.samples.total(),
        parts=parts,
        functions=[
            Share(name, round(total * count / samples, 2)) for name, count in functions.most_common(15)
        ],
    )


def _parts(samples: Counter[tuple[str, Place]], meters: list[Meter]) -> Iterator[Part]:
    pods = sum(meter.pods for meter in meters)
    for name in ("feed", "round", "confirm"):
        taken = sum(getattr(meter, name) for meter in meters) / pods / 1e3
        counts: Counter[str] = Counter()
        for (part, place), count in samples.items():
            if part == name:
                counts[section_of(*place)] += count
        sections = [
            Share(section, round(taken * count / counts.total(), 2))
            for section, count in counts.most_common()
        ]
        yield Part(name, round(taken, 2), sections)


def section_of(path: str, function: str) -> str:
    if path == _ARGMAX[0] and function.endswith(f".{_ARGMAX[1]}"):
        return "argmax"
    beginning = max((known for known in _SECTIONS if path.startswith(known)), key=len, default="")
    return _SECTIONS.get(beginning, "other")
