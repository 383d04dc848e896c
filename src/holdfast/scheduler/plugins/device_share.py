"""DeviceShare: filters and scores nodes for pods that request GPUs or other devices, whole or shared.

`holdfast.scheduler.managers.devices` keeps the devices of nodes and their allocations.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.config import DeviceScoringStrategy, DeviceShareArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    FINE,
    MAX_SCORE,
    ClusterPlugin,
    Filter,
    Outcome,
    Reason,
    Rejected,
    Scope,
    Score,
    everywhere,
)
from holdfast.scheduler.managers.devices import DeviceManager, DeviceRequestError
from holdfast.scheduler.managers.devices.device_allocator import DeviceSearch
from holdfast.scheduler.managers.devices.requests import (
    DEVICE_RESOURCES,
    FULL,
    GPU,
    MEMORY,
    RATIO,
    Share,
)
from holdfast.scheduler.managers.devices.selection import Ranker, least_free, most_free
from holdfast.scheduler.plugins.gpu_fragmentation import GpuPacking

Scorer = Callable[[View], Cells]

_FINE = 50_000


def leftover_score(devices: DeviceManager, nodes: NodeTable, cls: PodClass) -> Scorer:
    """Best fit: the less CPU and GPU is left over, relative to the largest node, the higher the score.
    The scores are so large that those of other plugins only decide between equal ones."""
    cpu = cls.request(CPU)

    def score(view: View) -> Cells:
        table = devices.tables[GPU]
        most_cpu = max(1, int(nodes.allocatable[CPU, : nodes.size].max(initial=1)))
        most_gpu = max(1, FULL * int(table.known.sum(axis=1).max(initial=1)))
        gpus = np.maximum(table.available(view.rows, view.entries)[RATIO], 0).sum(axis=-1)
        left = (view.free(CPU) - cpu) * _FINE // most_cpu + gpus * _FINE // most_gpu
        return 2 * _FINE - left

    return score


def device_score(
    devices: DeviceManager, search: DeviceSearch, strategy: DeviceScoringStrategy
) -> Scorer:
    """The utilization of the requested devices with the pod placed, or what is left of them."""
    weights = {resource.name: resource.weight for resource in strategy.resources}
    most = strategy.type == "MostAllocated"
    shares = [
        (
            share,
            [
                (line, weights[name])
                for line, name in enumerate(DEVICE_RESOURCES[share.type])
                if name in weights
            ],
        )
        for share in search.shares
    ]

    def score(view: View) -> Cells:
        total = sum(_utilization(devices, share, lines, view) for share, lines in shares)
        used = total // len(shares)
        found = used if most else MAX_SCORE - used
        known = devices.governed[view.rows]
        return int(found) * bool(known) if view.single else np.where(known, found, 0)

    return score


def _utilization(
    devices: DeviceManager, share: Share, lines: list[tuple[int, int]], view: View
) -> Cells:
    """The utilization in percent of one type of device, with the pod placed."""
    table, rows = devices.tables[share.type], view.rows
    total = table.total[:, rows].sum(axis=-1)
    free = np.maximum(table.available(rows, view.entries), 0).sum(axis=-1)
    found, weight_of_all = 0, 0
    for line, weight in lines:
        asked = share.number * share.each[line]
        if share.type == GPU and line == MEMORY and share.each[RATIO]:
            devices_there = np.maximum(table.known[rows].sum(axis=-1), 1)
            asked = share.number * share.each[RATIO] * total[line] // (devices_there * 100)
        elif share.type == GPU and line == RATIO and not share.each[RATIO]:
            asked = share.each[MEMORY] * total[line] // np.maximum(total[MEMORY], 1)
        capacity = np.maximum(total[line], 1)
        used = np.clip(total[line] - free[line] + asked, 0, capacity)
        found = found + weight * (used * MAX_SCORE // capacity)
        weight_of_all += weight
    return found // max(1, weight_of_all)


NO_DEVICES = "Insufficient devices"


class DeviceShare(ClusterPlugin):
    name = "DeviceShare"
    wakes_on = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_LEFT | Change.OTHER

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, DeviceShareArgs) else DeviceShareArgs()
        self._devices = self.cluster.managers.devices
        strategy = self._args.scoring_strategy.type
        self._packing = GpuPacking(self.cluster) if strategy == "LeastFragmented" else None
        self._ranker: Ranker = most_free
        if self._packing is not None:
            self._ranker = self._packing.rank
        elif strategy in ("MostAllocated", "BestFit"):
            self._ranker = least_free
        alignment = not self._args.disable_device_numa_topology_alignment
        self._devices.configure(alignment, self._ranker)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        try:
            search = self._devices.search(cls)
        except DeviceRequestError as error:
            return Rejected(str(error))
        if search is None:
            return None
        if not self._devices.active:
            return Filter.nothing(self._is_active)
        later = self._devices.free_later if cls.pre_allocation else None

        def passes(view: View) -> Cells:
            found = search.serves(view.rows, view.entries, later)
            return bool(found) if view.single else found

        def reasons(view: View) -> list[Reason]:
            return [
                Reason(lack.text, bool(lack.rows) if view.single else lack.rows, not lack.unresolvable)
                for lack in search.lacks(view.rows, view.entries, later)
            ]

        return Filter(passes, reasons, Scope.USAGE, self._is_active, lasting=everywhere)

    def score(self, cls: PodClass) -> Score | None:
        packing = self._packing
        if packing is not None:
            if not self._devices.active:
                return Score.same(0, self._is_active)
            return Score(lambda view: packing.score(cls, view), Scope.USAGE, version=packing.look)
        if self._args.scoring_strategy.type == "BestFit" and self._devices.active:
            leftover = leftover_score(self._devices, self.cluster.nodes, cls)
            return Score(leftover, Scope.USAGE, version=self._is_active)
        search = self._devices.valid_search(cls)
        if search is None:
            return None
        if not self._devices.active:
            return Score.same(0, self._is_active)
        score = device_score(self._devices, search, self._args.scoring_strategy)
        return Score(score, Scope.USAGE, version=self._is_active)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        if not self._devices.active or self._devices.settle_by(pod, self._ranker):
            return FINE
        return Outcome(NO_DEVICES)

    def unreserve(self, pod: PodRecord, row: int) -> None:
        if self._devices.active:
            self._devices.unsettle(pod)

    def _is_active(self) -> bool:
        return self._devices.active
