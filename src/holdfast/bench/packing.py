"""GPU packing on the openb trace: how much of the GPUs each strategy can allocate."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from time import process_time
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from holdfast.api import names
from holdfast.api.meta import Object
from holdfast.bench.plan import PodMaker, Raw, make_object
from holdfast.bench.report import new_table
from holdfast.bench.trace import (
    Record,
    affinity_to_models,
    model_label,
    models_asked_for,
    node_records,
    pod_records,
)
from holdfast.bench.workload import BenchError
from holdfast.scheduler.cluster.decisions import Bind
from holdfast.scheduler.cluster.events import Added, BindConfirmed
from holdfast.scheduler.cluster.slots import CPU, MEMORY
from holdfast.scheduler.framework.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, load
from holdfast.scheduler.managers.devices.requests import GPU, RATIO
from holdfast.scheduler.plugins import registry
from holdfast.scheduler.plugins.gpu_fragmentation import PodKind
from holdfast.scheduler.scheduler import Scheduler

MOST = 1.3
"""The total request as a ratio of the capacity."""
_MEMORY = 16 * 2**30


class NoGpusError(BenchError):
    """The trace has no GPUs."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes of the trace with GPUs, and pods sampled from it.

    Pods are those of the trace and further random samples of them until together they request 130 % of
    all GPUs; they arrive in random order, and none leaves.
    """

    nodes: list[Object]
    """Nodes, each with its Device."""
    gpus: int
    shapes: list[Raw]
    shape_of: list[int]
    """The shape of each pod of the trace."""
    wants: list[float]
    """GPUs that each shape requests."""
    kinds: list[tuple[PodKind, int]]
    """The requests of the pods of the trace, with their counts."""
    models: list[tuple[str, ...]]
    """The GPU models that each kind requests; empty for any."""
    model_of: dict[str, str]
    """The GPU model of each node, by its name."""

    def arrivals(self, seed: int) -> list[int]:
        """The shapes of the pods that come, in their order."""
        chance = random.Random(seed)
        sampled = list(self.shape_of)
        asked = sum(self.wants[shape] for shape in sampled)
        while asked < MOST * self.gpus:
            shape = chance.choice(self.shape_of)
            sampled.append(shape)
            asked += self.wants[shape]
        chance.shuffle(sampled)
        return sampled

    def maker(self, order: list[int]) -> PodMaker:
        return PodMaker("openb-pod", self.shapes, order=order)


def read_trace(folder: Path, nodes: str, pods: str) -> Trace:
    machines = [record for record in node_records(folder, nodes) if int(record["gpu"])]
    if not machines:
        raise NoGpusError(f"{folder}: no node of {nodes} has a GPU")
    numbers: dict[tuple[str, ...], int] = {}
    records: list[Record] = []
    shape_of = []
    for record in pod_records(folder, pods):
        key = (
            *(record[column] for column in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")),
            *models_asked_for(record),
        )
        if key not in numbers:
            numbers[key] = len(numbers)
            records.append(record)
        shape_of.append(numbers[key])
    wants = [int(r["num_gpu"]) * int(r["gpu_milli"]) / 1000 for r in records]
    if not any(wants):
        raise NoGpusError(f"{folder}: no pod of {pods} requests a GPU")
    pods_of = Counter(shape_of)
    kinds = [(_kind(record), pods_of[shape]) for shape, record in enumerate(records)]
    objects = [made for number, record in enumerate(machines) for made in _with_device(record, number)]
    gpus = sum(int(record["gpu"]) for record in machines)
    asked_for = [models_asked_for(record) for record in records]
    model_of = {record["sn"]: record["model"] for record in machines}
    pods_made = [_pod(record) for record in records]
    return Trace(objects, gpus, pods_made, shape_of, wants, kinds, asked_for, model_of)


def _kind(record: Record) -> PodKind:
    gpus, each = int(record["num_gpu"]), int(record["gpu_milli"]) // 10
    return PodKind(gpus, each, int(record["cpu_milli"]), int(record["memory_mib"]) * 2**20)


def _with_device(record: Record, number: int) -> Iterator[Object]:
    offered = {"cpu": f"{record['cpu_milli']}m", "memory": f"{record['memory_mib']}Mi", "pods": "110"}
    yield make_object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": record["sn"], "labels": model_label(record)},
            "status": {"allocatable": offered, "capacity": offered},
        },
        "",
        number,
    )
    gpu = {
        "type": "gpu",
        "health": True,
        "resources": {names.GPU_CORE: 100, names.GPU_MEMORY_RATIO: 100, names.GPU_MEMORY: _MEMORY},
    }
    yield make_object(
        {
            "apiVersion": names.RESERVATION_API,
            "kind": "Device",
            "metadata": {"name": record["sn"]},
            "spec": {"devices": [{**gpu, "minor": minor} for minor in range(int(record["gpu"]))]},
        },
        "",
        number,
    )


def _pod(record: Record) -> Raw:
    requests = {"cpu": f"{record['cpu_milli']}m", "memory": f"{record['memory_mib']}Mi"}
    percent = int(record["num_gpu"]) * int(record["gpu_milli"]) // 10
    if percent:
        requests[names.GPU_PERCENT] = str(percent)
    main = {"name": "main", "image": "openb", "resources": {"requests": requests}}
    return {"metadata": {}, "spec": {"containers": [main], **affinity_to_models(record)}}


# Fragmentation as the FGD paper defines it, by which strategies are compared.
#
# For one kind of pod, the free capacity of a node is a fragment
#
# * as a whole, if such a pod cannot run there (cpu, memory, too few GPUs with enough left, another GPU
#   model) or requests no GPU;
# * else as far as it is on GPUs that have less left than the pod requests of one.
#
# The mean is over all pods of the trace. Amounts of GPUs are in percent of one.


Ints = NDArray[np.int64]
Rows = NDArray[np.bool_]


def fragments(
    counts: Sequence[tuple[PodKind, int]],
    gpus: Ints,
    cpu: Ints,
    memory: Ints,
    rows_of: Sequence[Rows | None] | None = None,
) -> float:
    """The fragmented GPUs of all rows, from what is left of each GPU, [row, gpu]. `rows_of` has, for
    each kind of pod, the rows with a requested GPU model; None if it requests none."""
    free = gpus.sum(axis=1)
    lost, pods = 0.0, 0
    for (kind, count), rows in zip(counts, rows_of or [None] * len(counts), strict=True):
        serving = gpus >= max(1, kind.each)
        runs = (cpu >= kind.cpu) & (memory >= kind.memory) & (serving.sum(axis=1) >= kind.gpus)
        if rows is not None:
            runs &= rows
        scraps = np.where(serving, 0, gpus).sum(axis=1)
        lost += count * float(np.where(runs & (kind.gpus > 0), scraps, free).sum())
        pods += count
    return lost / max(1, pods)


# Runs: pods arrive one after the other, and each is tried once


_BATCH = 50
_POINTS = 131
"""Figures are taken at each percent of the capacity requested."""

STRATEGIES: Mapping[str, str] = {
    "binpack": "MostAllocated",
    "best fit": "BestFit",
    "least fragmented": "LeastFragmented",
}
"""By the name they have in figures, the strategy of DeviceShare."""


class Run(msgspec.Struct, frozen=True):
    strategy: str
    seed: int
    allocated: list[float]
    """The share of GPUs allocated when this percentage was requested."""
    fragments: list[float]
    """The share of GPUs free but of no use then."""
    pods_per_second: float


def run(trace: Trace, strategy: str, seed: int) -> Run:
    scheduler = _scheduler(STRATEGIES[strategy])
    for made in trace.nodes:
        scheduler.feed(Added(made), 0.0)
    scheduler.round(0.0)
    order = trace.arrivals(seed)
    maker = trace.maker(order)
    allocated, lost = [0.0] * _POINTS, [0.0] * _POINTS
    asked, given, reached, spent = 0.0, 0.0, 0, 0.0
    for start in range(0, len(order), _BATCH):
        numbers = range(start, min(start + _BATCH, len(order)))
        pods = [maker.pending(number) for number in numbers]
        wants = {pod.metadata.uid: trace.wants[order[n]] for n, pod in zip(numbers, pods, strict=True)}
        begun = process_time()
        for pod in pods:
            scheduler.feed(Added(pod), 0.0)
        decisions = scheduler.round(0.0)
        for decision in decisions:
            if isinstance(decision, Bind):
                given += wants[decision.pod.uid]
                scheduler.feed(BindConfirmed(decision.pod.uid), 0.0)
        spent += process_time() - begun
        asked += sum(wants.values())
        percent = min(int(100 * asked / trace.gpus), _POINTS - 1)
        if percent > reached or start + _BATCH >= len(order):
            scraps = _fragments(scheduler, trace)
            for at in range(reached + 1, percent + 1):
                allocated[at], lost[at] = given / trace.gpus, scraps
            reached = percent
    return Run(strategy, seed, allocated[: reached + 1], lost[: reached + 1], len(order) / spent)


def _fragments(scheduler: Scheduler, trace: Trace) -> float:
    """By the pods of the whole trace, also those a strategy has not seen."""
    nodes = scheduler.cluster.nodes
    table = scheduler.cluster.managers.devices.tables[GPU]
    free = nodes.allocatable[:, : nodes.size] - nodes.claimed[:, : nodes.size]
    gpus = np.maximum(table.free[RATIO, : nodes.size], 0)
    models = [trace.model_of.get(nodes.name(row), "") for row in range(nodes.size)]
    having: dict[tuple[str, ...], NDArray[np.bool_] | None] = {(): None}
    for wanted in trace.models:
        if wanted not in having:
            having[wanted] = np.isin(models, wanted)
    rows_of = [having[wanted] for wanted in trace.models]
    return fragments(trace.kinds, gpus, free[CPU], free[MEMORY], rows_of) / (100 * trace.gpus)


def _scheduler(strategy: str) -> Scheduler:
    plugins = registry()
    most = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
    config: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "profiles": [
            {
                "schedulerName": DEFAULT_SCHEDULER_NAME,
                "plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": most},
                    {"name": "DeviceShare", "args": {"scoringStrategy": {"type": strategy}}},
                ],
            }
        ],
    }
    configuration = load(config, plugins.implements())
    return Scheduler(configuration, plugins, {"default-scheduler": DEFAULT_SCHEDULER_NAME})


# Output: a table, a mapping for JSON, and a plot


_SHOWN = (100, 130)
"""The percentages of requested GPUs at which figures are shown."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _RIGHT, _TOP = 720, 400, 64, 48, 170, 24
_COLOURS = ("#b07a00", "#3465a4", "#2e7d32")
_FROM_X, _TO_X, _FROM_Y, _TO_Y = 80, 130, 80, 100


class PackingFigures(msgspec.Struct, frozen=True):
    """Figures of one strategy over all seeds. Shares are in percent of all GPUs."""

    strategy: str
    seeds: int
    allocated: dict[int, float]
    """By the percentage requested."""
    spread: dict[int, float]
    """Standard deviation of the same."""
    fragments: dict[int, float]
    """Free, but of no use to the pods that come."""
    pods_per_second: float
    curve: list[float]
    """Allocated at each percentage requested."""


def figures(runs: list[Run]) -> list[PackingFigures]:
    found = []
    for strategy in STRATEGIES:
        own = [run for run in runs if run.strategy == strategy]
        if not own:
            continue
        length = min(len(run.allocated) for run in own)
        at = [percent for percent in _SHOWN if percent < length]
        shares = {percent: [100 * run.allocated[percent] for run in own] for percent in at}
        lost = {percent: [100 * run.fragments[percent] for run in own] for percent in at}
        found.append(
            PackingFigures(
                strategy,
                len(own),
                {percent: round(fmean(values), 2) for percent, values in shares.items()},
                {
                    percent: round(stdev(values), 2) if len(values) > 1 else 0.0
                    for percent, values in shares.items()
                },
                {percent: round(fmean(values), 2) for percent, values in lost.items()},
                round(fmean(run.pods_per_second for run in own)),
                [round(100 * fmean(run.allocated[i] for run in own), 2) for i in range(length)],
            )
        )
    return found


def table(all_figures: list[PackingFigures]) -> Table:
    shown = new_table(
        "strategy", *(f"allocated at {p} %" for p in _SHOWN), "±", "fragments", "pods/CPU s"
    )
    for each in all_figures:
        first = next(iter(each.allocated), None)
        shown.add_row(
            each.strategy,
            *(f"{each.allocated[p]:.2f}" if p in each.allocated else "" for p in _SHOWN),
            f"{each.spread[first]:.2f}" if first is not None else "",
            f"{each.fragments[first]:.2f}" if first is not None else "",
            f"{each.pods_per_second:,.0f}",
        )
    return shown


def show(console: Console, all_figures: list[PackingFigures]) -> None:
    console.print(table(all_figures))
    seeds = all_figures[0].seeds if all_figures else 0
    console.print(
        "allocated: percent of all GPUs that is allocated when pods that request this percentage have "
        f"arrived; mean over {seeds} seeds, ± for the first. fragments: percent of all GPUs that is "
        "free but that no pod of the trace can use, at the same time.",
        highlight=False,
    )


def as_mappings(all_figures: list[PackingFigures]) -> list[dict[str, Any]]:
    mappings: list[dict[str, Any]] = msgspec.to_builtins(all_figures, str_keys=True)
    return mappings


def plot(all_figures: list[PackingFigures]) -> str:
    """Allocated against requested GPUs, as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13" role="img" '
        'aria-label="GPUs allocated by strategy, against GPUs requested">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    parts += [
        f'<path d="M{_LEFT} {_y(y)}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 8}" y="{_y(y) + 4}" text-anchor="end">{y} %</text>'
        for y in range(_FROM_Y, _TO_Y + 1, 5)
    ]
    for x in range(_FROM_X, _TO_X + 1, 10):
        bottom = _HEIGHT - _BOTTOM
        parts.append(
            f'<path d="M{_x(x)} {bottom}v5" stroke="#555"/>'
            f'<text x="{_x(x)}" y="{bottom + 20}" text-anchor="middle">{x} %</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">GPUs requested</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}">GPUs allocated</text>')
    labels: list[float] = []
    for place, each in enumerate(all_figures):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [
            (x, value)
            for x, value in enumerate(each.curve)
            if _FROM_X <= x <= _TO_X and value >= _FROM_Y
        ]
        if not points:
            continue
        path = "L".join(f"{_x(x)} {_y(value)}" for x, value in points)
        at = _y(points[-1][1])
        while any(abs(at - other) < 16 for other in labels):
            at += 16
        labels.append(at)
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{at + 4}" fill="{colour}">'
            f"{escape(each.strategy)} {points[-1][1]:.1f} %</text>"
        )
    return "".join([*parts, "</svg>\n"])


def _x(percent: float) -> float:
    width = _WIDTH - _LEFT - _RIGHT
    return round(_LEFT + (percent - _FROM_X) / (_TO_X - _FROM_X) * width, 1)


def _y(percent: float) -> float:
    height = _HEIGHT - _TOP - _BOTTOM
    return round(_HEIGHT - _BOTTOM - (percent - _FROM_Y) / (_TO_Y - _FROM_Y) * height, 1)


# Entry point


def pack(
    folder: Path, nodes: str, pods: str, seeds: int, plot_file: Path | None
) -> list[PackingFigures]:
    """One run per strategy and seed; optionally writes the plot. Empty if there are no GPUs. Raises
    BenchError.
    """
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
    if plot_file is not None:
        try:
            plot_file.write_text(plot(found), encoding="utf-8")
        except OSError as error:
            raise BenchError(f"--plot {plot_file}: {error.strerror or error}") from None
    return found
