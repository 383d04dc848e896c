"""One run per strategy and seed: pods come one after the other, and each is tried once."""

from collections.abc import Mapping
from time import process_time
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.actions.scheduler import Scheduler
from holdfast.bench.packing.arrivals import Trace
from holdfast.bench.packing.fragments import fragments
from holdfast.core.decisions import Bind
from holdfast.core.devices.requests import GPU, RATIO
from holdfast.core.events import Added, BindConfirmed
from holdfast.core.slots import CPU, MEMORY
from holdfast.framework.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, load
from holdfast.plugins import registry

_BATCH = 50
_POINTS = 131
"""Figures are taken at each percent of what there is that was asked for."""

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
    """The share of GPUs allocated once so many percent were asked for."""
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
    """By the pods of the whole trace, whatever a strategy knows of them."""
    nodes = scheduler.cluster.nodes
    table = scheduler.cluster.belongings.devices.tables[GPU]
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
