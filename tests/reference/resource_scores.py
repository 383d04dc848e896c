"""The three strategies of NodeResourcesFit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.requests import scored
from reference.state import ReferenceState


@dataclass(frozen=True)
class Strategy:
    type: str = "LeastAllocated"
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    shape: tuple[tuple[int, int], ...] = ()
    """(utilization, score) with scores of 0 to 10."""

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        parts: list[tuple[int, int]] = []
        for resource, weight in self.resources:
            usage = usage_with(pod, node, world, resource, scored(pod))
            if usage is None:
                continue
            part = self._part(*usage)
            if self.type != "RequestedToCapacityRatio" or part > 0:
                parts.append((part, weight))
        weights = sum(weight for _, weight in parts)
        if weights == 0:
            return 0
        total = sum(part * weight for part, weight in parts)
        if self.type == "RequestedToCapacityRatio":
            return int(total / weights + 0.5)
        return total // weights

    def _part(self, requested: int, allocatable: int) -> int:
        if self.type == "LeastAllocated":
            return 0 if requested > allocatable else (allocatable - requested) * 100 // allocatable
        if self.type == "MostAllocated":
            return min(requested, allocatable) * 100 // allocatable
        return self._by_shape(100 if requested > allocatable else requested * 100 // allocatable)

    def _by_shape(self, utilization: int) -> int:
        points = [(at, score * 10) for at, score in self.shape]
        if utilization <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in pairwise(points):
            if utilization <= x1:
                rise = (y1 - y0) * (utilization - x0)
                step = abs(rise) // (x1 - x0)
                return y0 + (step if rise >= 0 else -step)
        return points[-1][1]


def usage_with(
    pod: Pod,
    node: Node,
    world: ReferenceState,
    resource: str,
    asked: dict[str, int],
    *,
    plain: bool = False,
) -> tuple[int, int] | None:
    """(requested with the pod, allocatable); None if the resource does not count."""
    own = asked.get(resource, 0)
    scalar = resource not in ("cpu", "memory", "ephemeral-storage")
    if scalar and own == 0:
        return None
    allocatable = world.allocatable(node, resource)
    if allocatable == 0:
        return None
    used = world.used(node, resource) if plain or scalar else world.used_for_scores(node, resource)
    return used + own, allocatable
