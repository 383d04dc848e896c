"""Scores by requested resources: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

What is requested is what is claimed on the node plus the pod's requests. For CPU and memory a container
without a request counts with a small default, so that a node full of such pods does not look empty. A
resource that the node does not have, or an extended resource that the pod does not request, is left out
of the mean.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resources import is_scalar_resource
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY
from holdfast.scheduler.cluster.view import Cells, View, several, upright
from holdfast.scheduler.framework.config import ResourceWeight, ScoringStrategy, ShapePoint
from holdfast.scheduler.framework.interface import MAX_SCORE

Scorer = Callable[[View], Cells]
Row = tuple[int, int, int, int]
"""A resource's slot, the slot of its claimed amount, the amount the pod adds to that, its weight."""

_DEFAULTED = {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}
_SCORE_OF_SHAPE = 10
"""The highest score of a point of a shape."""


def counted(
    nodes: NodeTable, cls: PodClass, resources: tuple[ResourceWeight, ...], defaulted: bool
) -> list[Row]:
    """The resources that count in the mean."""
    rows = []
    for resource in resources:
        slot = nodes.pinned_slot(resource.name)
        added = cls.scored(slot) if defaulted else cls.request(slot)
        if not added and is_scalar_resource(resource.name):
            continue
        claimed = slot
        if defaulted and slot in _DEFAULTED:
            claimed = _DEFAULTED[slot]
            added = cls.nonzero[0] if slot == CPU else cls.nonzero[1]
        rows.append((slot, claimed, added, resource.weight))
    return rows


def allocation_score(nodes: NodeTable, cls: PodClass, strategy: ScoringStrategy) -> Scorer:
    rows = counted(nodes, cls, strategy.resources, defaulted=True)
    if strategy.type == "LeastAllocated":
        return _weighted_mean(nodes, rows, least_allocated)
    if strategy.type == "MostAllocated":
        return _weighted_mean(nodes, rows, most_allocated)
    assert strategy.requested_to_capacity_ratio is not None
    return _by_shape(rows, Shape(strategy.requested_to_capacity_ratio.shape))


def least_allocated(view: View, left: Cells, capacity: Cells) -> Cells:
    return view.maximum(left * MAX_SCORE // capacity, 0)


def most_allocated(view: View, left: Cells, capacity: Cells) -> Cells:
    return (capacity - view.maximum(left, 0)) * MAX_SCORE // capacity


Formula = Callable[[View, Cells, Cells], Cells]
"""Computes a score from the amount of a resource that would be left, and its capacity."""


def _weighted_mean(nodes: NodeTable, rows: list[Row], formula: Formula) -> Scorer:
    """The mean over resources that the node has."""
    if not rows:
        return lambda view: 0
    slots = frozenset(slot for slot, *_ in rows)
    all_offered = several([slot for slot, *_ in rows])
    all_claimed = several([claimed for _, claimed, *_ in rows])
    all_added = upright([added for _, _, added, _ in rows])
    weights = upright([weight for *_, weight in rows])
    weight_of_all = sum(weight for *_, weight in rows)
    alike = all(weight == 1 for *_, weight in rows)
    pair = len(rows) == 2

    def score(view: View) -> Cells:
        if not slots.isdisjoint(nodes.sparse):
            return with_gaps(view)
        if view.single:
            total = 0
            for slot, claimed, added, weight in rows:
                total += weight * formula(view, view.free(claimed) - added, view.allocatable(slot))
        else:
            parts = formula(view, view.free(all_claimed) - all_added, view.allocatable(all_offered))
            parts = parts if alike else parts * weights
            total = parts[0] + parts[1] if pair else np.add.reduce(parts)
        return total // weight_of_all

    def with_gaps(view: View) -> Cells:
        total, weights = 0, 0
        for slot, claimed, added, weight in rows:
            offered = view.allocatable(slot)
            present = offered > 0
            part = formula(view, view.free(claimed) - added, offered + (offered == 0))
            total = total + present * weight * part
            weights = weights + present * weight
        return total // (weights + (weights == 0))

    return score


def _by_shape(rows: list[Row], shape: "Shape") -> Scorer:
    """The rounded mean over resources that do not score 0, as in kube-scheduler."""

    def score(view: View) -> Cells:
        total, weights = 0, 0
        for slot, claimed, added, weight in rows:
            offered = view.allocatable(slot)
            capacity = offered + (offered == 0)
            used = capacity - view.maximum(view.free(claimed) - added, 0)
            part = (offered > 0) * shape.at(used * 100 // capacity)
            total = total + part * weight
            weights = weights + (part > 0) * weight
        # Half away from zero, in whole numbers: the sums are never negative.
        return (2 * total + weights) // (2 * weights + (weights == 0))

    return score


class Shape:
    """A function of utilization given by points: linear between them and constant outside."""

    def __init__(self, points: tuple[ShapePoint, ...]) -> None:
        scale = MAX_SCORE // _SCORE_OF_SHAPE
        self._table: NDArray[np.int64] = np.array(
            [self._value(points, scale, x) for x in range(101)], dtype=np.int64
        )

    def at(self, utilization: Cells) -> Cells:
        return self._table[utilization]

    @staticmethod
    def _value(points: tuple[ShapePoint, ...], scale: int, x: int) -> int:
        for i, point in enumerate(points):
            if x <= point.utilization:
                if i == 0:
                    return point.score * scale
                before = points[i - 1]
                rise = (point.score - before.score) * scale
                run = point.utilization - before.utilization
                # Truncated toward zero, as Go's integer division does.
                return before.score * scale + int(rise * (x - before.utilization) / run)
        return points[-1].score * scale
