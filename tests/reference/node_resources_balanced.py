from __future__ import annotations

import math

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin
from reference.requests import requests
from reference.resource_scores import usage_with
from reference.state import ReferenceState


class NodeResourcesBalancedAllocation(ReferencePlugin):
    name = "NodeResourcesBalancedAllocation"

    def __init__(self, resources: tuple[str, ...] = ("cpu", "memory")) -> None:
        self._resources = resources

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        asked = requests(pod)
        if not any(asked.get(resource, 0) for resource in self._resources):
            return 0
        before, after = [], []
        for resource in self._resources:
            usage = usage_with(pod, node, world, resource, asked, plain=True)
            if usage is not None:
                used, allocatable = usage
                before.append(min(1.0, (used - asked.get(resource, 0)) / allocatable))
                after.append(min(1.0, used / allocatable))
        return 50 + (50 + _balance(after) - _balance(before)) // 2


def _balance(fractions: list[float]) -> int:
    return int((1 - _deviation(fractions)) * 100)


def _deviation(fractions: list[float]) -> float:
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return abs((fractions[0] - fractions[1]) / 2)
    mean = sum(fractions) / len(fractions)
    squares = 0.0
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return math.sqrt(squares / len(fractions))
