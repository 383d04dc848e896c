"""How much of a node's free GPUs the pods that come could not use: fragmentation.

The idea is the FGD paper's: what is free is worth what pods like those the cluster has seen can make of
it. For one kind of pod that is as many of them as would fit, by what is left of each GPU and by the cpu
and memory left on the node; the rest of what is free is fragments. The fragmentation of a node is the
mean over the kinds, by how many there are of each.

The paper asks whether one more pod would fit. Asking how many would also sees cpu that suffices for the
next pod but not for all the GPUs still free, long before they are stranded.

Kinds that want the same of GPUs are looked at together: for each such want a table tells how much of
GPUs is used where so many pods would fit by GPUs alone and so many cores are free. Amounts of GPUs are
in percent of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_FULL = 100
_PODS = 33
"""More pods of a kind than this on one node are not told apart."""
_CORES = 257
_NEVER = np.float32(1e9)


class PodKind(NamedTuple):
    """What pods of one kind ask for."""

    gpus: int
    each: int
    """Percent of each GPU."""
    cpu: int
    """In thousandths of a core."""
    memory: int


class Mix:
    """The kinds of pods that come, and how often."""

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
        """By how much of a GPU is left: how many times each want fits it."""
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
        """How many times each want fits the GPUs of rows that have so much left, [row, gpu]."""
        fit: Ints = self._pods[gpus].sum(axis=1)
        return fit

    def now(self, gpus: Ints, fit: Ints, cpu: Ints, memory: Ints) -> Floats:
        """The fragmentation of rows, with so much cpu and memory beside their GPUs."""
        return self._lost(gpus.sum(axis=1), fit, self._cores(cpu, memory))

    def with_whole(self, gpus: Ints, fit: Ints, cpu: Ints, memory: Ints, count: int) -> Floats:
        """The same, once so many whole GPUs more are taken."""
        fit = np.maximum(fit - count * self._pods[_FULL], 0)
        return self._lost(gpus.sum(axis=1) - _FULL * count, fit, self._cores(cpu, memory))

    def with_share(self, gpus: Ints, fit: Ints, cpu: Ints, memory: Ints, share: int) -> Floats:
        """The same, [row, gpu], once such a share of one GPU is taken, for each GPU that has it. It is
        so bad to take one that has not that nobody does."""
        rows, places = np.nonzero(gpus >= share)
        left = gpus[rows, places]
        fit = fit[rows] + self._pods[left - share] - self._pods[left]
        after = np.full(gpus.shape, _NEVER, dtype=np.float32)
        cores = self._cores(cpu, memory)[rows]
        after[rows, places] = self._lost(gpus.sum(axis=1)[rows] - share, fit, cores)
        return after

    def _cores(self, cpu: Ints, memory: Ints) -> Ints:
        """Free cores, or as many as there is memory for going by what pods ask for on average."""
        by_memory = np.minimum(memory * self._cpu_per_byte, 1000.0 * _CORES)
        cores: Ints = np.clip(np.minimum(cpu, by_memory) // 1000, 0, _CORES - 1).astype(np.int64)
        return cores

    def _lost(self, free: Ints, fit: Ints, cores: Ints) -> Floats:
        at = np.minimum(fit // self._gpus, _PODS - 1) * _CORES
        at += cores[:, None]
        at += self._base
        lost: Floats = free - self._used[at].sum(axis=-1)
        return lost
