"""Sharing room by weight.

Each resource is poured over the queues like water: everyone first gets what he is entitled to, the rest
flows to all in proportion to their weights, and who is full (wants no more, or may have no more) leaves
what would be his to the others. What nobody wants is left over.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
"""An amount for each slot."""


class Claim(NamedTuple):
    """What one queue brings to the sharing."""

    weight: float
    entitled: Vector
    """What it gets before anything is shared, as far as it wants it."""
    most: Vector
    """What it wants, or may have at most."""


def shares(total: Vector, claims: list[Claim]) -> list[Vector]:
    """What each gets; together never more than there is, unless more than that is entitled."""
    if not claims:
        return []
    most = np.array([np.maximum(claim.most, 0.0) for claim in claims])
    given = np.minimum(np.array([np.maximum(claim.entitled, 0.0) for claim in claims]), most)
    weight = np.array([[max(0.0, claim.weight)] for claim in claims])
    left = np.maximum(total - given.sum(axis=0), 0.0)
    for _ in claims:
        room = most - given
        thirsty = (room > 1e-9) & (weight > 0)
        weights = np.where(thirsty, weight, 0.0)
        together = weights.sum(axis=0)
        open_ = (together > 0) & (left > 1e-9)
        if not open_.any():
            break
        part = np.where(open_, left * weights / np.where(together > 0, together, 1.0), 0.0)
        more = np.minimum(part, room)
        given += more
        left = np.maximum(left - more.sum(axis=0), 0.0)
    return list(given)


def dominant(allocated: Mapping[int, int], deserved: Vector) -> float:
    """How much of what it deserves a queue has, of the resource it has most of."""
    most = 0.0
    for slot, has in allocated.items():
        share = deserved.item(slot) if slot < len(deserved) else 0.0
        if has > 0 and share <= 0:
            return math.inf
        if has > 0:
            most = max(most, has / share)
    return most
