"""Shares of queues: what each deserves of the cluster by its weight, and its dominant share.

The deserved amounts are those of Volcano's proportion plugin. Each resource is divided among sibling
queues: first each queue gets what it is entitled to, then the rest is divided in proportion to the
weights, up to what each queue can use (its request and its capability). What a queue cannot use is
divided among the others; the remainder is left over.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
"""An amount for each slot."""


class QueueClaim(NamedTuple):
    """What one queue can use of the total."""

    weight: float
    entitled: Vector
    """What it gets before the rest is divided, up to `most`."""
    most: Vector
    """The smaller of its request and its capability."""


def deserved_shares(total: Vector, claims: list[QueueClaim]) -> list[Vector]:
    """The share of each queue. They never exceed the total, unless the entitled amounts do."""
    if not claims:
        return []
    most = np.array([np.maximum(claim.most, 0.0) for claim in claims])
    given = np.minimum(np.array([np.maximum(claim.entitled, 0.0) for claim in claims]), most)
    weight = np.array([[max(0.0, claim.weight)] for claim in claims])
    left = np.maximum(total - given.sum(axis=0), 0.0)
    for _ in claims:
        missing = most - given
        unsatisfied = (missing > 1e-9) & (weight > 0)
        weights = np.where(unsatisfied, weight, 0.0)
        together = weights.sum(axis=0)
        open_ = (together > 0) & (left > 1e-9)
        if not open_.any():
            break
        part = np.where(open_, left * weights / np.where(together > 0, together, 1.0), 0.0)
        more = np.minimum(part, missing)
        given += more
        left = np.maximum(left - more.sum(axis=0), 0.0)
    return list(given)


def dominant_share(allocated: Mapping[int, int], deserved: Vector) -> float:
    """The dominant share: the largest ratio of allocated to deserved over all resources."""
    most = 0.0
    for slot, has in allocated.items():
        share = deserved.item(slot) if slot < len(deserved) else 0.0
        if has > 0 and share <= 0:
            return math.inf
        if has > 0:
            most = max(most, has / share)
    return most
