from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction

from holdfast.api.node import Node
from holdfast.api.pod import Pod, ResourceRequirements
from reference.plugin import ReferencePlugin, Unfit
from reference.quantities import counted, exact
from reference.requests import DEFAULTS, Amounts, peak
from reference.state import ReferenceState

ANNOTATION = "node.koordinator.sh/limit-to-allocatable"


class LimitAware(ReferencePlugin):
    name = "LimitAware"

    def __init__(self, default: Mapping[str, int | str], weights: Mapping[str, int]) -> None:
        self._default = dict(default)
        self._weights = weights

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
            return None
        ceilings = self._ceilings(node, world)
        if ceilings is None:
            return Unfit(("node(s) had a malformed limit-to-allocatable annotation",), False)
        reasons, resolvable = [], True
        for resource, ceiling in ceilings.items():
            own = limits(pod).get(resource, 0)
            if own and own > ceiling - _sum(node, world, resource, limits):
                reasons.append(f"Insufficient {resource} limit")
                resolvable = resolvable and own <= ceiling
        return Unfit(tuple(reasons), resolvable) if reasons else None

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        total = weights = 0
        for resource, ceiling in (self._ceilings(node, world) or {}).items():
            weight = self._weights.get(resource, 0)
            if not ceiling or not weight:
                continue
            used = _sum(node, world, resource, scored_limits) + scored_limits(pod).get(resource, 0)
            total += weight * int(Fraction((ceiling - used) * 100, ceiling))
            weights += weight
        return int(Fraction(total, weights)) if weights else 0

    def normalize(self, scores: dict[str, int]) -> dict[str, int]:
        low, high = min(scores.values(), default=0), max(scores.values(), default=0)
        if low == high:
            return dict.fromkeys(scores, 0)
        return {name: 100 * (score - low) // (high - low) for name, score in scores.items()}

    def _ceilings(self, node: Node, world: ReferenceState) -> dict[str, int] | None:
        """By resource that is limited; None if the annotation of the node is invalid."""
        ratios = self._default
        text = node.metadata.annotations.get(ANNOTATION)
        if text is not None:
            try:
                ratios = json.loads(text)
                percents = {name: int(str(value).removesuffix("%")) for name, value in ratios.items()}
            except (ValueError, AttributeError):
                return None
            if any(percent < 0 for percent in percents.values()):
                return None
            if any(isinstance(value, str) and not value.endswith("%") for value in ratios.values()):
                return None
        return {
            name: int(str(ratio).removesuffix("%")) * world.allocatable(node, name) // 100
            for name, ratio in ratios.items()
        }


def limits(pod: Pod) -> dict[str, int]:
    return _limits(pod, {})


def scored_limits(pod: Pod) -> dict[str, int]:
    return _limits(pod, DEFAULTS)


def _limits(pod: Pod, defaults: Amounts) -> dict[str, int]:
    total = peak(pod, lambda resources: defaults | _most(resources))
    whole = pod.spec.resources
    if whole is not None:
        of_containers = peak(pod, _most)
        for name, value in _most(whole).items():
            if name in ("cpu", "memory") or "hugepages-" in name:
                least = Fraction(0) if name in whole.limits else of_containers.get(name, Fraction(0))
                total[name] = max(value, least)
    for name, quantity in pod.spec.overhead.items():
        total[name] = total.get(name, Fraction(0)) + exact(quantity)
    return {name: counted(name, value) for name, value in total.items()}


def _most(resources: ResourceRequirements) -> Amounts:
    most: Amounts = {}
    for given in (resources.requests, resources.limits):
        for name, quantity in given.items():
            most[name] = max(most.get(name, Fraction(0)), exact(quantity))
    return most


def _sum(node: Node, world: ReferenceState, resource: str, of: Callable[[Pod], dict[str, int]]) -> int:
    return sum(of(pod).get(resource, 0) for pod in world.on(node.metadata.name))
