from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin, Unfit
from reference.requests import requests
from reference.resource_scores import Strategy
from reference.state import ReferenceState


class NodeResourcesFit(ReferencePlugin):
    name = "NodeResourcesFit"

    def __init__(
        self,
        strategy: Strategy,
        ignored: tuple[str, ...] = (),
        ignored_groups: tuple[str, ...] = (),
    ) -> None:
        self._strategy = strategy
        self._ignored = ignored
        self._ignored_groups = ignored_groups

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        reasons = []
        resolvable = True
        if len(world.on(node.metadata.name)) + 1 > world.allocatable(node, "pods"):
            reasons.append("Too many pods")
        for resource, amount in requests(pod).items():
            if amount == 0 or resource == "pods" or self._is_ignored(resource):
                continue
            allocatable = world.allocatable(node, resource)
            if amount > allocatable - world.used(node, resource):
                reasons.append(f"Insufficient {resource}")
                resolvable = resolvable and amount <= allocatable
        return Unfit(tuple(reasons), resolvable) if reasons else None

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        return self._strategy.score(pod, node, world)

    def _is_ignored(self, resource: str) -> bool:
        domain, slash, _ = resource.partition("/")
        if not slash or "kubernetes.io" in domain:
            return False
        return resource in self._ignored or domain in self._ignored_groups
