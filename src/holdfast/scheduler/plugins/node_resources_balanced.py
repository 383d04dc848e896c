"""NodeResourcesBalancedAllocation: prefers nodes whose utilization of resources the pod balances.

The balance of a node is 100 if all its resources are used to the same share, and 50 at the least. The
score says how the pod changes it: 75 where it does not, more where it improves it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View, several, upright
from holdfast.scheduler.framework.config import NodeResourcesBalancedAllocationArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import MAX_SCORE, ClusterPlugin, Scope, Score
from holdfast.scheduler.plugins.resource_allocation import counted

# As arrays: converting a plain number costs numpy more than a hundred additions.
_WHOLE = np.array(1.0)
_MINUS_HALF = np.array(-0.5)
_POINTS = np.array(float(MAX_SCORE))
_LEAST = MAX_SCORE // 2
_HALF_POINTS = np.array(_LEAST)
_ONE_BIT = np.array(1)


class NodeResourcesBalancedAllocation(ClusterPlugin):
    name = "NodeResourcesBalancedAllocation"
    wakes_on = Change.NONE

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        if not isinstance(args, NodeResourcesBalancedAllocationArgs):
            args = NodeResourcesBalancedAllocationArgs()
        self._resources = args.resources

    def score(self, cls: PodClass) -> Score | None:
        nodes = self.cluster.nodes
        if not any(cls.request(nodes.pinned_slot(resource.name)) for resource in self._resources):
            return None
        rows = [
            (slot, added) for slot, _, added, _ in counted(nodes, cls, self._resources, defaulted=False)
        ]

        if len(rows) == 2:
            return Score(balance_of_two(nodes, *rows), Scope.USAGE, by_amounts=True)
        return Score(balance_of_many(rows), Scope.USAGE, by_amounts=True)


Row = tuple[int, int]
"""The slot of a resource, and how much of it the pod adds."""


def balance_of_two(nodes: NodeTable, one: Row, other: Row) -> Callable[[View], Cells]:
    (slot_a, added_a), (slot_b, added_b) = one, other
    slots = frozenset((slot_a, slot_b))
    both = several((slot_a, slot_b))
    without_and_with = np.stack([upright((0, 0)), upright((added_a, added_b))])
    with_gaps = balance_of_many([one, other])

    def score(view: View) -> Cells:
        if not slots.isdisjoint(nodes.sparse):
            return with_gaps(view)
        if view.single:
            offered_a, offered_b = view.allocatable(slot_a), view.allocatable(slot_b)
            claimed_a, claimed_b = view.claimed(slot_a), view.claimed(slot_b)
            a, b = min(claimed_a / offered_a, 1.0), min(claimed_b / offered_b, 1.0)
            before = int((1 - abs(a - b) / 2) * MAX_SCORE)
            a, b = (
                min((claimed_a + added_a) / offered_a, 1.0),
                min((claimed_b + added_b) / offered_b, 1.0),
            )
            return _change(before, int((1 - abs(a - b) / 2) * MAX_SCORE))
        shares = (view.claimed(both) + without_and_with) / view.allocatable(both)
        np.minimum(shares, _WHOLE, out=shares)
        apart = shares[:, 0] - shares[:, 1]
        np.abs(apart, out=apart)
        apart *= _MINUS_HALF
        apart += _WHOLE
        apart *= _POINTS
        before, after = view.whole(apart)
        change = after - before
        change += _HALF_POINTS
        change >>= _ONE_BIT
        change += _HALF_POINTS
        return change

    return score


def balance_of_many(rows: list[Row]) -> Callable[[View], Cells]:
    """The balance is 100 minus the standard deviation of the utilization of resources. A resource that
    the node does not have is left out."""

    def share(view: View, slot: int, added: int) -> tuple[Cells, Cells]:
        allocatable = view.allocatable(slot)
        used = (view.claimed(slot) + added) / (allocatable + (allocatable == 0))
        return allocatable > 0, view.minimum(used, 1.0)

    def balance(view: View, shares: list[tuple[Cells, Cells]]) -> Cells:
        count = sum(present for present, _ in shares)
        some = count + (count == 0)
        mean = sum(present * share for present, share in shares) / some
        squares = sum(present * (share - mean) * (share - mean) for present, share in shares)
        # Of two resources it is half the difference, which the general formula rounds differently.
        most = np.maximum.reduce([present * share for present, share in shares])
        least = np.minimum.reduce([share + (present == 0) * 2 for present, share in shares])
        two = count == 2
        deviation = two * ((most - least) / 2) + (two == 0) * np.sqrt(squares / some)
        return view.whole((1 - deviation) * MAX_SCORE)

    def score(view: View) -> Cells:
        before = balance(view, [share(view, slot, 0) for slot, _ in rows])
        return _change(before, balance(view, [share(view, slot, added) for slot, added in rows]))

    return score


def _change(before: Cells, after: Cells) -> Cells:
    """The score for a change of balance."""
    return _LEAST + (_LEAST + after - before) // 2
