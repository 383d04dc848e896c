"""NodeResourcesFit: a node is feasible if the pod's requests are free; it scores by the configured
strategy (`resource_allocation`).

Reservations are part of what `View.free` returns: what is left of a reservation is claimed, as the
requests of pods are (`scheduler.cluster.ledger` has the equation and all arithmetic on capacity). On a
node with a reservation that the pod matches, the filter is computed with views to which what is left of
that reservation is free (`AllocatingOne`, `AllocatingSome` in
`framework.feasibility.reservation_scores`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.api.resources import is_extended
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import NONZERO_MEMORY, PODS
from holdfast.scheduler.cluster.view import Cells, View, upright
from holdfast.scheduler.framework.config import NodeResourcesFitArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    ClusterPlugin,
    Filter,
    Need,
    Reason,
    Scope,
    Score,
    Settled,
    Version,
)
from holdfast.scheduler.plugins.resource_allocation import allocation_score

TOO_MANY_PODS = "Too many pods"

_NOTHING = -(2**63)
"""Less than any free amount: for slots that are not requested."""


class NodeResourcesFit(ClusterPlugin):
    """Compares requests with `View.free`, where reservations count as claimed."""

    name = "NodeResourcesFit"
    wakes_on = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_LEFT | Change.DEVICE_CLASSES

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, NodeResourcesFitArgs) else NodeResourcesFitArgs()
        self._ignored = frozenset(self._args.ignored_resources)
        self._ignored_groups = frozenset(self._args.ignored_resource_groups)

    def filter(self, cls: PodClass) -> Filter:
        names = self.cluster.nodes.slots
        wanted = [Need(PODS, cls.pod_slots, TOO_MANY_PODS)] + [
            Need(slot, amount, f"Insufficient {names.name(slot)}")
            for slot, amount in cls.requests
            if slot != PODS and not self._is_ignored(names.name(slot))
        ]
        if cls.pre_allocation:
            return self._pre_allocation_filter(cls, wanted)
        version = self._version(cls)
        if delegated := {slot for slot, _ in self.cluster.claims.delegated(cls)}:
            return self._delegating_filter(wanted, delegated, version)
        amounts = {need.slot: need.amount for need in wanted}
        slots = slice(0, max(amounts) + 1)
        least = upright([amounts.get(slot, _NOTHING) for slot in range(slots.stop)])

        def passes(view: View) -> Cells:
            if not view.single:
                return np.logical_and.reduce(view.free(slots) >= least)
            for slot, amount in amounts.items():
                if view.free(slot) < amount:
                    return False
            return True

        def reasons(view: View) -> list[Reason]:
            return [
                Reason(
                    text,
                    view.free(slot) < amount,
                    resolvable=(slot == PODS) | (view.allocatable(slot) >= amount),
                )
                for slot, amount, text in wanted
            ]

        return Filter(passes, reasons, Scope.USAGE, version, needs=tuple(wanted))

    def _version(self, cls: PodClass) -> Version | None:
        """Changes when device classes begin or cease to serve a resource of the class; None if it
        requests no resource that they can serve."""
        names, claims = self.cluster.nodes.slots, self.cluster.claims
        resources = [names.name(slot) for slot, _ in cls.requests if slot > NONZERO_MEMORY]
        if not resources:
            return None
        return Settled(lambda: tuple([each in claims.extended for each in resources]))

    def _delegating_filter(
        self, wanted: list[Need], delegated: set[int], version: Version | None
    ) -> Filter:
        """The filter of a class that requests resources which device classes serve: on nodes that have
        none of such a resource, DynamicResources allocates devices instead."""

        def lacking(view: View, slot: int, amount: int) -> Cells:
            lacks = view.free(slot) < amount
            return lacks & (view.allocatable(slot) > 0) if slot in delegated else lacks

        def passes(view: View) -> Cells:
            enough = view.full(True)
            for slot, amount, _ in wanted:
                enough = enough & view.negate(lacking(view, slot, amount))
            return enough

        def reasons(view: View) -> list[Reason]:
            return [
                Reason(
                    text,
                    lacking(view, slot, amount),
                    resolvable=(slot == PODS) | (view.allocatable(slot) >= amount),
                )
                for slot, amount, text in wanted
            ]

        return Filter(passes, reasons, Scope.USAGE, version)

    def _pre_allocation_filter(self, cls: PodClass, wanted: list[Need]) -> Filter:
        """The filter of a pre-allocation: pods that end by themselves count as gone, and what they use
        of reusable reservations counts as reserved."""
        table, holds = self.cluster.nodes, self.cluster.reservations.starvation_holds

        def capacity(view: View, slot: int) -> Cells:
            kept = view.take(table.held_once_pods_end[slot]) + view.take(table.daemon_requested[slot])
            return view.allocatable(slot) - kept + holds.outranked(cls, view, slot)

        def passes(view: View) -> Cells:
            enough = view.full(True)
            for slot, amount, _ in wanted:
                enough = enough & (capacity(view, slot) >= amount)
            return enough

        def reasons(view: View) -> list[Reason]:
            return [
                Reason(
                    text,
                    capacity(view, slot) < amount,
                    resolvable=view.allocatable(slot) - view.take(table.daemon_requested[slot])
                    >= amount,
                )
                for slot, amount, text in wanted
            ]

        return Filter(passes, reasons, Scope.USAGE)

    def score(self, cls: PodClass) -> Score | None:
        score = allocation_score(self.cluster.nodes, cls, self._args.scoring_strategy)
        return Score(score, Scope.USAGE, by_amounts=True)

    def _is_ignored(self, resource: str) -> bool:
        return is_extended(resource) and (
            resource in self._ignored or resource.split("/")[0] in self._ignored_groups
        )
