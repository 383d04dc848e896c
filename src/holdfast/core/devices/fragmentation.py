"""How much of the free GPUs is of no use to the pods that come: fragmentation, after the FGD paper.

For one kind of pod, what is free on a node is a fragment

* all of it, if such a pod cannot go there (no cpu, no memory, not enough GPUs with enough left);
* else what is left on GPUs that have less than the pod wants of one.

The fragmentation of a node is the mean over the kinds of pods there are, by how many there are of each.
Kinds that want the same of GPUs differ only in whether cpu and memory suffice; so GPUs are looked at
once per distinct want, of which there are few.

Amounts of GPUs are in percent of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Kind(NamedTuple):
    """What pods of one kind ask for."""

    gpus: int
    each: int
    """Percent of each GPU."""
    cpu: int
    memory: int


class Mix:
    """The kinds of pods that come, and how often."""

    def __init__(self, counts: Iterable[tuple[Kind, int]]) -> None:
        known = [(kind, count) for kind, count in counts if count > 0]
        wants = sorted({(kind.gpus, kind.each) for kind, _ in known if kind.gpus})
        self._total = sum(count for _, count in known) or 1
        self.least: Floats = np.array([each for _, each in wants], dtype=np.float32)
        """Of each want: how much of a GPU."""
        self.gpus: NDArray[np.int64] = np.array([gpus for gpus, _ in wants], dtype=np.int64)
        place = {want: i for i, want in enumerate(wants)}
        self._cpu = np.unique(np.array([kind.cpu for kind, _ in known], dtype=np.int64))
        self._memory = np.unique(np.array([kind.memory for kind, _ in known], dtype=np.int64))
        shape = len(self._cpu) + 1, len(self._memory) + 1, len(wants) + 1
        tally: Floats = np.zeros(shape, dtype=np.float32)
        for kind, count in known:
            cpu = int(np.searchsorted(self._cpu, kind.cpu)) + 1
            memory = int(np.searchsorted(self._memory, kind.memory)) + 1
            tally[cpu, memory, place.get((kind.gpus, kind.each), len(wants))] += count
        self._able: Floats = tally.cumsum(axis=0).cumsum(axis=1)
        """How many pods there are of each want (at the last, of those that want no GPU) that ask for at
        most so much cpu and so much memory. All sums are of whole numbers, and therefore exact."""

    def able(self, cpu: NDArray[np.int64], memory: NDArray[np.int64]) -> Floats:
        """How many pods, [row, want], there are for which so much cpu and memory is enough."""
        at_cpu = np.searchsorted(self._cpu, cpu, side="right")
        at_memory = np.searchsorted(self._memory, memory, side="right")
        able: Floats = self._able[at_cpu, at_memory]
        return able

    def now(self, gpus: Floats, able: Floats) -> Floats:
        """The fragmentation of rows whose GPUs have so much left, [row, gpu]."""
        serves = gpus[:, :, None] >= self.least
        scraps = np.where(serves, np.float32(0), gpus[:, :, None]).sum(axis=1)
        runs = serves.sum(axis=1, dtype=np.int64) >= self.gpus
        return self._sum(runs, scraps, gpus.sum(axis=1), able)

    def with_whole(self, gpus: Floats, able: Floats, count: int) -> Floats:
        """The same, once so many whole GPUs more are taken."""
        serves = gpus[:, :, None] >= self.least
        scraps = np.where(serves, np.float32(0), gpus[:, :, None]).sum(axis=1)
        runs = serves.sum(axis=1, dtype=np.int64) - count >= self.gpus
        return self._sum(runs, scraps, gpus.sum(axis=1) - np.float32(100 * count), able)

    def with_share(self, gpus: Floats, able: Floats, share: float) -> Floats:
        """The same, [row, gpu], once such a share of one GPU is taken, for each GPU it may be."""
        left = gpus - share
        serves, would = gpus[:, :, None] >= self.least, left[:, :, None] >= self.least
        scraps_each = np.where(serves, np.float32(0), gpus[:, :, None])
        scraps = scraps_each.sum(axis=1)[:, None] - scraps_each
        scraps += np.where(would, np.float32(0), left[:, :, None])
        serving = serves.sum(axis=1, dtype=np.int64)[:, None] - (serves & ~would)
        return self._sum(serving >= self.gpus, scraps, gpus.sum(axis=1)[:, None] - share, able[:, None])

    def _sum(self, runs: NDArray[np.bool_], scraps: Floats, free: Floats, able: Floats) -> Floats:
        """Where pods of a want run, scraps are lost on them; where they do not, everything is."""
        free = np.maximum(free, np.float32(0))[..., None]
        lost = np.where(runs, scraps, free) * able[..., :-1]
        unable = self._total - able[..., :-1].sum(axis=-1)
        found: Floats = (lost.sum(axis=-1) + unable * free[..., 0]) / self._total
        return found
