"""GPU fragmentation: how much of a node's free GPU capacity the usual pods cannot use; the score by it.

After the FGD paper: free capacity counts as far as pods like those the cluster has seen can use it. For
one kind of pod that is as many of them as fit into the free part of each GPU and the free cpu and
memory of the node; the rest of the free GPU capacity is fragmented. The fragmentation of a node is the
mean over the kinds, weighted by how many pods there are of each. The paper evaluates whether one more
pod fits. Evaluating how many fit also detects that cpu suffices for the next pod but not for all the
free GPUs, long before these are stranded.

A node scores by how much its fragmentation decreases, or how little it increases, with the pod placed;
on the node, the GPU with the best result is allocated. The mix of kinds is computed again whenever
there are four times as many pods. The scores are so large that those of other plugins only decide
between equal ones.

Kinds with the same GPU request are evaluated together: for each request a table has the GPU capacity
used, by how many pods fit into the GPUs and how many cores are free. Amounts of GPUs are in percent of
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import cells_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import CPU, MEMORY
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.managers.devices.device_table import Ints, TypeTable
from holdfast.scheduler.managers.devices.requests import CORE, FULL, GPU, RATIO, Share
from holdfast.scheduler.managers.devices.requests import MEMORY as GPU_MEMORY
from holdfast.scheduler.state.cluster import Cluster

Floats = NDArray[np.float32]

_FULL = 100
_PODS = 33
"""More pods of a kind on one node count as this many."""
_CORES = 257
_NEVER = np.float32(1e9)
_FINE = 6000
"""Score points per percent of a GPU."""
_MIDDLE = 5_000_000
_FIRST = 32


class PodKind(NamedTuple):
    """The requests of pods of one kind."""

    gpus: int
    each: int
    """Percent of each GPU."""
    cpu: int
    """In millicores."""
    memory: int


class Mix:
    """The kinds of pods the cluster has seen, and how many of each."""

    def __init__(self, counts: Iterable[tuple[PodKind, int]]) -> None:
        known = [(kind, count) for kind, count in counts if count > 0 and kind.gpus]
        wants = sorted({(kind.gpus, kind.each) for kind, _ in known})
        total = sum(count for _, count in known) or 1
        cpu = sum(kind.cpu * count for kind, count in known)
        memory = sum(kind.memory * count for kind, count in known)
        self._cpu_per_byte = cpu / memory if cpu and memory else np.inf
        self._gpus: Ints = np.array([gpus for gpus, _ in wants], dtype=np.int64)
        each: Ints = np.array([each for _, each in wants], dtype=np.int64)
        self._pods: Ints = np.arange(_FULL + 1)[:, None] // np.maximum(each, 1)
        """By the free percent of a GPU: how many times each GPU request fits."""
        used = np.zeros((len(wants), _PODS, _CORES), dtype=np.float64)
        cores, pods = 1000 * np.arange(_CORES), np.arange(_PODS)
        place = {want: i for i, want in enumerate(wants)}
        for kind, count in known:
            by_cpu = cores // max(1, kind.cpu)
            fit = np.minimum(pods[:, None], by_cpu[None])
            used[place[kind.gpus, kind.each]] += fit * (count * kind.gpus * kind.each / total)
        self._used: Floats = used.astype(np.float32).ravel()
        self.wants = len(wants)
        self._base = np.arange(len(wants)) * (_PODS * _CORES)

    def fit(self, gpus: Ints) -> Ints:
        """How many times each GPU request fits into the free GPUs of rows, [row, gpu]."""
        fit: Ints = self._pods[gpus].sum(axis=1)
        return fit

    def now(self, gpus: Ints, fit: Ints, cpu: Ints, memory: Ints) -> Floats:
        """The fragmentation of rows with this much free cpu and memory."""
        return self._lost(gpus.sum(axis=1), fit, self._cores(cpu, memory))

    def with_whole(self, gpus: Ints, fit: Ints, cpu: Ints, memory: Ints, count: int) -> Floats:
        """The fragmentation after `count` more whole GPUs are allocated."""
        fit = np.maximum(fit - count * self._pods[_FULL], 0)
        return self._lost(gpus.sum(axis=1) - _FULL * count, fit, self._cores(cpu, memory))

    def with_share(self, gpus: Ints, fit: Ints, cpu: Ints, memory: Ints, share: int) -> Floats:
        """The fragmentation, [row, gpu], after this share of one GPU is allocated, for each GPU that
        has it free; prohibitively high for the others."""
        rows, places = np.nonzero(gpus >= share)
        left = gpus[rows, places]
        fit = fit[rows] + self._pods[left - share] - self._pods[left]
        after = np.full(gpus.shape, _NEVER, dtype=np.float32)
        cores = self._cores(cpu, memory)[rows]
        after[rows, places] = self._lost(gpus.sum(axis=1)[rows] - share, fit, cores)
        return after

    def _cores(self, cpu: Ints, memory: Ints) -> Ints:
        """Free cores, or fewer if there is less memory than pods request for so many on average."""
        if np.isinf(self._cpu_per_byte):
            by_memory = np.full(np.shape(memory), 1000.0 * _CORES)  # no pod requests memory
        else:
            by_memory = np.minimum(memory * self._cpu_per_byte, 1000.0 * _CORES)
        cores: Ints = np.clip(np.minimum(cpu, by_memory) // 1000, 0, _CORES - 1).astype(np.int64)
        return cores

    def _lost(self, free: Ints, fit: Ints, cores: Ints) -> Floats:
        at = np.minimum(fit // self._gpus, _PODS - 1) * _CORES
        at += cores[:, None]
        at += self._base
        lost: Floats = free - self._used[at].sum(axis=-1)
        return lost


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
        entries = None if view.entries is None else np.atleast_1d(view.entries)
        gpus = self._gpus(rows, entries)
        if entries is None:
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

    def _gpus(self, rows: NDArray[np.intp], entries: NDArray[np.intp] | None) -> Ints:
        available = self._devices.tables[GPU].available(rows, entries)
        found: Ints = np.clip(available[RATIO], 0, FULL)
        return found

    def _kind(self, cls: PodClass) -> PodKind:
        cpu, memory = cls.request(CPU), cls.request(MEMORY)
        search = self._devices.valid_search(cls)
        for share in search.shares if search is not None else ():
            if share.type == GPU:
                return PodKind(share.number, share.each[RATIO] or share.each[CORE] or 1, cpu, memory)
        return PodKind(0, 0, cpu, memory)
