"""Fragmentation as the FGD paper defines it, by which strategies are compared.

For one kind of pod, what is free on a node is a fragment

* all of it, if such a pod cannot go there (no cpu, no memory, not enough GPUs with enough left, not
  of a GPU model it asks for), or wants no GPU;
* else what is left on GPUs that have less than the pod wants of one.

The mean is over all pods of the trace. Amounts of GPUs are in percent of one.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.core.devices.fragmentation import Kind

Ints = NDArray[np.int64]
Rows = NDArray[np.bool_]


def fragments(
    counts: Sequence[tuple[Kind, int]],
    gpus: Ints,
    cpu: Ints,
    memory: Ints,
    rows_of: Sequence[Rows | None] | None = None,
) -> float:
    """Of all rows together, whose GPUs have so much left, [row, gpu]. `rows_of` has, for each kind of
    pod, the rows with a GPU model it asks for, None where it asks for none."""
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
