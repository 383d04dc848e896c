"""GPU fragmentation: how much of a node's free GPU capacity the usual pods cannot use.

After the FGD paper: free capacity counts as far as pods like those the cluster has seen can use it. For
one kind of pod that is as many of them as fit into the free part of each GPU and the free cpu and
memory of the node; the rest of the free GPU capacity is fragmented. The fragmentation of a node is the
mean over the kinds, weighted by how many pods there are of each.

The paper evaluates whether one more pod fits. Evaluating how many fit also detects that cpu suffices
for the next pod but not for all the free GPUs, long before these are stranded.

Kinds with the same GPU request are evaluated together: for each request a table has the GPU capacity
used, by how many pods fit into the GPUs and how many cores are free. Amounts of GPUs are in percent of
one.
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
"""More pods of a kind on one node count as this many."""
_CORES = 257
_NEVER = np.float32(1e9)


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
        by_memory = np.minimum(memory * self._cpu_per_byte, 1000.0 * _CORES)
        cores: Ints = np.clip(np.minimum(cpu, by_memory) // 1000, 0, _CORES - 1).astype(np.int64)
        return cores

    def _lost(self, free: Ints, fit: Ints, cores: Ints) -> Floats:
        at = np.minimum(fit // self._gpus, _PODS - 1) * _CORES
        at += cores[:, None]
        at += self._base
        lost: Floats = free - self._used[at].sum(axis=-1)
        return lost
