"""Fragmentation as the FGD paper defines it, by which strategies are compared.

For one kind of pod, what is free on a node is a fragment

* all of it, if such a pod cannot go there (no cpu, no memory, not enough GPUs with enough left), or
  wants no GPU;
* else what is left on GPUs that have less than the pod wants of one.

The mean is over all pods of the trace. Amounts of GPUs are in percent of one.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.devices.fragmentation import Kind

Ints = NDArray[np.int64]


def fragments(counts: Iterable[tuple[Kind, int]], gpus: Ints, cpu: Ints, memory: Ints) -> float:
    """Of all rows together, whose GPUs have so much left, [row, gpu]."""
    free = gpus.sum(axis=1)
    lost, pods = 0.0, 0
    for kind, count in counts:
        serving = gpus >= max(1, kind.each)
        runs = (cpu >= kind.cpu) & (memory >= kind.memory) & (serving.sum(axis=1) >= kind.gpus)
        scraps = np.where(serving, 0, gpus).sum(axis=1)
        lost += count * float(np.where(runs & (kind.gpus > 0), scraps, free).sum())
        pods += count
    return lost / max(1, pods)
