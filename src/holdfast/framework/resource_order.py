"""How well what is idle on a node goes with what a task asks for.

    one resource    100 - 100 required / idle     where it fits
                    100 idle / required - 100     where it does not
    a node          ((cpu + memory) / 2 + 2 scalars) / 3

Nothing idle counts as 0, and so does a resource not asked for. `scalars` is the mean over the other
resources that are. An exact fit scores 0, more room more, up to 100; less room less, down to -100.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.classes import PodClass
from holdfast.core.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS

Scores = NDArray[np.float64]

_NOT_SCALAR = frozenset((CPU, MEMORY, PODS, NONZERO_CPU, NONZERO_MEMORY))


def resource_score(required: int, idle: NDArray[np.int64]) -> Scores:
    """Of one resource."""
    if required <= 0:
        return np.zeros(len(idle))
    room = np.maximum(idle, 0).astype(np.float64)
    fits = room >= required
    more = 100.0 - 100.0 * required / np.where(fits, room, 1.0)
    less = 100.0 * room / required - 100.0
    return np.where(fits, more, less)


def node_score(cls: PodClass, idle: Callable[[int], NDArray[np.int64]], nodes: int) -> Scores:
    """Of every node; `idle` is asked by slot."""
    asked = dict(cls.requests)
    cpu = resource_score(asked.get(CPU, 0), idle(CPU))
    memory = resource_score(asked.get(MEMORY, 0), idle(MEMORY))
    scalars = [
        resource_score(amount, idle(slot)) for slot, amount in cls.requests if slot not in _NOT_SCALAR
    ]
    scalar = sum(scalars) / len(scalars) if scalars else np.zeros(nodes)
    score: Scores = ((cpu + memory) / 2 + 2 * scalar) / 3
    return score
