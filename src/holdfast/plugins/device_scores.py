"""How good a node is for a pod that asks for devices: by how much of its devices would be in use."""

from collections.abc import Callable

import numpy as np

from holdfast.core.classes import PodClass
from holdfast.core.devices import Devices
from holdfast.core.devices.asking import Asking
from holdfast.core.devices.requests import FULL, GPU, LINES, MEMORY, RATIO, Share
from holdfast.core.nodes import NodeTable
from holdfast.core.slots import CPU
from holdfast.core.view import Cells, View
from holdfast.framework.config import DeviceScoringStrategy
from holdfast.framework.interface import MAX_SCORE

Scorer = Callable[[View], Cells]

_FINE = 50_000


def leftover_score(devices: Devices, nodes: NodeTable, cls: PodClass) -> Scorer:
    """Best fit: the less cpu and GPUs are left over, in parts of what the biggest node has, the better.
    So large that other scores only decide between equals."""
    cpu = cls.request(CPU)

    def score(view: View) -> Cells:
        table = devices.tables[GPU]
        most_cpu = max(1, int(nodes.allocatable[CPU, : nodes.size].max(initial=1)))
        most_gpu = max(1, FULL * int(table.known.sum(axis=1).max(initial=1)))
        gpus = np.maximum(table.available(view.rows, view.holds)[RATIO], 0).sum(axis=-1)
        left = (view.free(CPU) - cpu) * _FINE // most_cpu + gpus * _FINE // most_gpu
        return 2 * _FINE - left

    return score


def device_score(devices: Devices, asking: Asking, strategy: DeviceScoringStrategy) -> Scorer:
    weights = {resource.name: resource.weight for resource in strategy.resources}
    most = strategy.type == "MostAllocated"
    shares = [
        (
            share,
            [(line, weights[name]) for line, name in enumerate(LINES[share.type]) if name in weights],
        )
        for share in asking.shares
    ]

    def score(view: View) -> Cells:
        total = sum(_utilization(devices, share, lines, view) for share, lines in shares)
        used = total // len(shares)
        found = used if most else MAX_SCORE - used
        known = devices.governed[view.rows]
        return int(found) * bool(known) if view.single else np.where(known, found, 0)

    return score


def _utilization(devices: Devices, share: Share, lines: list[tuple[int, int]], view: View) -> Cells:
    """In percent, with the pod there."""
    table, rows = devices.tables[share.type], view.rows
    offered = table.total[:, rows].sum(axis=-1)
    free = np.maximum(table.available(rows, view.holds), 0).sum(axis=-1)
    found, weight_of_all = 0, 0
    for line, weight in lines:
        asked = share.number * share.each[line]
        if share.type == GPU and line == MEMORY and share.each[RATIO]:
            devices_there = np.maximum(table.known[rows].sum(axis=-1), 1)
            asked = share.number * share.each[RATIO] * offered[line] // (devices_there * 100)
        elif share.type == GPU and line == RATIO and not share.each[RATIO]:
            asked = share.each[MEMORY] * offered[line] // np.maximum(offered[MEMORY], 1)
        capacity = np.maximum(offered[line], 1)
        used = np.clip(offered[line] - free[line] + asked, 0, capacity)
        found = found + weight * (used * MAX_SCORE // capacity)
        weight_of_all += weight
    return found // max(1, weight_of_all)
