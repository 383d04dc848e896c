"""The score by GPU fragmentation: how little of a node's GPUs becomes unusable for future pods.

A node scores by how much its fragmentation (`holdfast.scheduler.managers.devices.fragmentation`)
decreases, or how little it increases, with the pod placed; on the node, the GPU with the best result is
allocated. Future pods are assumed to be like those the cluster has seen; this mix is computed again
whenever there are four times as many.

The scores are so large that those of other plugins only decide between equal ones.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import cells_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import CPU, MEMORY
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.managers.devices.device_table import Ints, TypeTable
from holdfast.scheduler.managers.devices.fragmentation import Floats, Mix, PodKind
from holdfast.scheduler.managers.devices.requests import CORE, FULL, GPU, RATIO, Share
from holdfast.scheduler.managers.devices.requests import MEMORY as GPU_MEMORY
from holdfast.scheduler.state.cluster import Cluster

_FINE = 6000
"""Score points per percent of a GPU."""
_MIDDLE = 5_000_000
_FIRST = 32


class GpuPacking:
    """Scores nodes, and ranks the GPUs of a node, by fragmentation."""

    _now: Floats = cells_of("_now_column")
    """The fragmentation of every row."""
    _fit: Ints = cells_of("_fit_column")
    """How many times each request of the mix fits each row."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._devices = cluster.managers.devices
        self._mix = Mix(())
        self._seen = 0
        self.version = 0
        """Changes with the mix of pods."""
        self._now_column = cluster.nodes.columns.new(np.float32)
        self._fit_column = cluster.nodes.columns.new(np.int64, trail=(0,))
        self._position = -1

    def look(self) -> int:
        """Computes the mix of pods again if there are many more than last time; returns the version."""
        pods = len(self._cluster.pods)
        if pods >= max(_FIRST, 4 * self._seen) or (pods and not self._seen):
            self._seen = pods
            self.version += 1
            self._mix = Mix((self._kind(cls), cls.refs) for cls in self._cluster.classes)
            self._position = -1
        return self.version

    def score(self, cls: PodClass, view: View) -> Cells:
        kind, mix = self._kind(cls), self._mix
        rows = np.atleast_1d(view.rows)
        cpu, memory = np.atleast_1d(view.free(CPU)), np.atleast_1d(view.free(MEMORY))
        holds = None if view.holds is None else np.atleast_1d(view.holds)
        gpus = self._gpus(rows, holds)
        if holds is None:
            self._catch_up()
            before, fit = self._now[rows], self._fit[rows]
        else:
            fit = mix.fit(gpus)
            before = mix.now(gpus, fit, cpu, memory)
        cpu, memory = cpu - kind.cpu, memory - kind.memory
        if not kind.gpus or kind.each >= FULL:
            after = mix.with_whole(gpus, fit, cpu, memory, kind.gpus)
        else:
            after = mix.with_share(gpus, fit, cpu, memory, kind.each).min(axis=1)
        better = (before - after).astype(np.float64) * _FINE - gpus.sum(axis=1)
        found = np.clip(_MIDDLE + np.rint(better), 0, 2 * _MIDDLE).astype(np.int64)
        return int(found[0]) if view.single else found

    def rank(self, table: TypeTable, row: int, share: Share, available: Ints) -> list[float]:
        """The rank of each device of a row, higher is better."""
        if table.kind != GPU or not share.shared:
            return [0.0] * table.width
        nodes = self._cluster.nodes
        free = nodes.allocatable[:, row] - nodes.claimed[:, row]
        gpus = np.clip(available[RATIO], 0, FULL)[None]
        biggest = max(1, int(table.total[GPU_MEMORY, row].max()))
        percent = share.each[RATIO] or share.each[GPU_MEMORY] * FULL // biggest
        fit = self._mix.fit(gpus)
        after = self._mix.with_share(gpus, fit, free[None, CPU], free[None, MEMORY], percent)
        ranks: list[float] = (-after[0]).tolist()
        return ranks

    def _catch_up(self) -> None:
        """Computes the fragmentation of rows that changed since the last call."""
        nodes, changed, mix = self._cluster.nodes, self._cluster.epoch.usage, self._mix
        rows = changed.since(self._position) if self._position >= 0 else None
        if rows is None or len(rows) > nodes.size:
            self._fit_column = nodes.columns.new(np.int64, trail=(mix.wants,))
            rows = np.arange(nodes.size)
        self._position = changed.end
        if len(rows):
            rows = np.unique(rows)
            free = nodes.allocatable[:, rows] - nodes.claimed[:, rows]
            gpus = self._gpus(rows, None)
            self._fit[rows] = fit = mix.fit(gpus)
            self._now[rows] = mix.now(gpus, fit, free[CPU], free[MEMORY])

    def _gpus(self, rows: NDArray[np.intp], holds: NDArray[np.intp] | None) -> Ints:
        available = self._devices.tables[GPU].available(rows, holds)
        found: Ints = np.clip(available[RATIO], 0, FULL)
        return found

    def _kind(self, cls: PodClass) -> PodKind:
        cpu, memory = cls.request(CPU), cls.request(MEMORY)
        search = self._devices.valid_search(cls)
        for share in search.shares if search is not None else ():
            if share.type == GPU:
                return PodKind(share.number, share.each[RATIO] or share.each[CORE] or 1, cpu, memory)
        return PodKind(0, 0, cpu, memory)
