"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used to a like degree."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.view import Cells, View
from holdfast.framework.config import NodeResourcesBalancedAllocationArgs
from holdfast.framework.interface import MAX_SCORE, Plugin, Scope, Score
from holdfast.plugins.resource_scores import counted


class NodeResourcesBalancedAllocation(Plugin):
    name = "NodeResourcesBalancedAllocation"
    wakes_on = Change.NONE

    def __init__(self, cluster: Cluster, args: Mapping[str, Any] | Any) -> None:
        super().__init__(cluster, args)
        if not isinstance(args, NodeResourcesBalancedAllocationArgs):
            args = NodeResourcesBalancedAllocationArgs()
        self._resources = args.resources

    def score(self, cls: PodClass) -> Score | None:
        nodes = self.cluster.nodes
        if not any(cls.request(nodes.slot(resource.name)) for resource in self._resources):
            return None
        rows = [
            (slot, added) for slot, _, added, _ in counted(nodes, cls, self._resources, defaulted=False)
        ]

        def score(view: View) -> Cells:
            return balance([used_share(view, slot, added) for slot, added in rows])

        return Score(score, Scope.USAGE)


def used_share(view: View, slot: int, added: int) -> tuple[Cells, Cells]:
    """Whether the node has the resource, and what share of it would be used, at most all."""
    offered = view.allocatable(slot)
    present = offered > 0
    share = (view.claimed(slot) + added) / (offered + (offered == 0))
    return present, present * (share * (share < 1) + (share >= 1))


def balance(shares: list[tuple[Cells, Cells]]) -> Cells:
    """100 less the standard deviation of the shares, in whole points."""
    count = sum(present for present, _ in shares)
    if len(shares) == 2:
        (one, a), (two, b) = shares
        deviation = (one & two) * abs(a - b) / 2
    else:
        some = count + (count == 0)
        mean = sum(share for _, share in shares) / some
        squares = sum(present * (share - mean) ** 2 for present, share in shares)
        deviation = np.sqrt(squares / some)
    return (1 - deviation) * MAX_SCORE // 1
