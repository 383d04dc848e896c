"""LimitAware: bounds the sum of the limits of a node's pods, and prefers nodes where it is lower.

The bound of a resource is a percentage of the node's allocatable amount. The annotation of a node
replaces the default ratios as a whole; resources named in neither are not limited. A node with an
invalid annotation is infeasible, and gets a warning event.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.names import LIMIT_TO_ALLOCATABLE
from holdfast.scheduler.cluster.columns import RowColumns, cells_of
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.limit_sums import UNLIMITED
from holdfast.scheduler.cluster.node_table import NodeInfo
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pod_limits import CountedLimit
from holdfast.scheduler.cluster.slots import MOST
from holdfast.scheduler.cluster.view import Cells, One, View
from holdfast.scheduler.framework.config import LimitAwareArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    ByRange,
    ClusterPlugin,
    Filter,
    Reason,
    Scope,
    Score,
    Settled,
    everywhere,
)
from holdfast.scheduler.state.cluster import Cluster

INVALID = "InvalidLimitToAllocatable"


class Ceiling:
    """The highest sum of limits of one resource, by row."""

    cells: NDArray[np.int64] = cells_of("column")

    def __init__(self, counted: CountedLimit, columns: RowColumns) -> None:
        self.counted = counted
        self.column = columns.new(np.int64, UNLIMITED)


class Ceilings:
    """The ceilings of all resources, kept up to date as nodes change."""

    valid: NDArray[np.bool_] = cells_of("_valid")
    """The rows whose nodes have no invalid annotation."""

    def __init__(self, cluster: Cluster, default: dict[str, int]) -> None:
        self._cluster = cluster
        self._default = default
        self._faulty: dict[int, ObjectRef] = {}
        self.by_resource: dict[str, Ceiling] = {}
        """The ceilings of resources that are, or were, limited on some node."""
        self._valid = cluster.nodes.columns.new(np.bool_, True)
        self._kinds: dict[int, tuple[int, ...]] = {}
        for _, row in cluster.nodes.names():
            self._node_changed(row)
        cluster.node_listeners.append(self._node_changed)
        cluster.limits.ceilings.append(self.most)
        cluster.limits.columns.append(self.column)
        cluster.limits.valid.append(lambda: self.valid)

    def most(self, resource: str, row: int) -> int:
        ceiling = self.by_resource.get(resource)
        return ceiling.cells.item(row) if ceiling is not None else UNLIMITED

    def column(self, resource: str) -> NDArray[np.int64] | None:
        ceiling = self.by_resource.get(resource)
        return ceiling.cells if ceiling is not None else None

    def kind(self, row: int) -> tuple[int, ...] | None:
        """Equal for rows with equal ceilings; None for a row without a node."""
        return self._kinds.get(row)

    def version(self) -> tuple[int, bool]:
        """Changes when a resource becomes limited, or invalid annotations appear or disappear."""
        return len(self.by_resource), bool(self._faulty)

    def _node_changed(self, row: int) -> None:
        info = self._cluster.nodes.info.get(row)
        ratios, problem = self._ratios(info) if info is not None else ({}, "")
        self._warn(row, info, problem)
        allocatable = info.allocatable if info is not None else {}
        for resource in sorted(ratios.keys() - self.by_resource.keys()):
            counted = self._cluster.limits.count(resource)
            self.by_resource[resource] = Ceiling(counted, self._cluster.nodes.columns)
        cells = [0 if problem else 1]
        for resource, ceiling in self.by_resource.items():
            percent = ratios.get(resource)
            cell = UNLIMITED
            if percent is not None:
                cell = min(percent * allocatable.get(resource, 0) // 100, MOST)
            ceiling.cells[row] = cell
            cells.append(cell)
        self._kinds[row] = tuple(cells)
        self.valid[row] = not problem

    def _ratios(self, info: NodeInfo) -> tuple[dict[str, int], str]:
        """The ratio of each resource in percent; and the error in the node's annotation, if any."""
        text = info.annotations.get(LIMIT_TO_ALLOCATABLE)
        if text is None:
            return self._default, ""
        try:
            return limit_to_allocatable(text), ""
        except InvalidObject as error:
            return {}, f"{error.field}: {error.message}"

    def _warn(self, row: int, info: NodeInfo | None, problem: str) -> None:
        warned = self._faulty.pop(row, None)
        if problem and info is not None:
            self._faulty[row] = ObjectRef("Node", "", info.name, info.uid)
        if warned is not None and self._faulty.get(row) != warned:
            self._cluster.warn_once(warned, INVALID, "")
        if row in self._faulty:
            self._cluster.warn_once(self._faulty[row], INVALID, problem)


REASON = "Insufficient {} limit"
REASON_MALFORMED = "node(s) had a malformed limit-to-allocatable annotation"

_LEAST_LEFT = -(2**56)
_WORST = -(10**13)
"""Bounds far beyond real amounts, which keep sums within 64 bits."""


class LimitAware(ClusterPlugin):
    name = "LimitAware"
    wakes_on = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_OTHER | Change.POD_LEFT

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        given = args if isinstance(args, LimitAwareArgs) else LimitAwareArgs()
        self._weights = {resource.name: resource.weight for resource in given.resources}
        self._ceilings = Ceilings(self.cluster, given.default_limit_to_allocatable_ratio)
        self._version = Settled(self._ceilings.version)

    def filter(self, cls: PodClass) -> Filter | None:
        if any(owner.kind == "DaemonSet" for owner in cls.owners):
            return None
        ceilings = self._ceilings
        wanted = [
            (ceiling, amount, REASON.format(resource))
            for resource, ceiling in sorted(ceilings.by_resource.items())
            if (amount := cls.limits.of(resource))
        ]
        _, some_malformed = ceilings.version()
        if not wanted and not some_malformed:
            return Filter.nothing(self._version)
        left = partial(self._left_for_pre_allocation, cls) if cls.pre_allocation else _left
        needs = [(ceiling.column, ceiling.counted.slot, amount) for ceiling, amount, _ in wanted]
        plain = not cls.pre_allocation and not some_malformed

        def passes(view: View) -> Cells:
            if not (plain and isinstance(view, One)):
                return several(view)
            row, claims = view.rows, view.claims
            for most, slot, amount in needs:
                if most.cells.item(row) - claims[slot] < amount:
                    break
            else:
                return True
            return False

        def several(view: View) -> Cells:
            enough = view.take(ceilings.valid) if some_malformed else True
            for ceiling, amount, _ in wanted:
                enough = enough & (left(view, ceiling) >= amount)
            return enough

        def reasons(view: View) -> list[Reason]:
            malformed = view.negate(view.take(ceilings.valid))
            return [Reason(REASON_MALFORMED, malformed, resolvable=False)] + [
                Reason(
                    text,
                    left(view, ceiling) < amount,
                    resolvable=view.take(ceiling.cells) >= amount,
                )
                for ceiling, amount, text in wanted
            ]

        kind = None if cls.pre_allocation else ceilings.kind
        return Filter(passes, reasons, Scope.USAGE, self._version, kind=kind, lasting=everywhere)

    def _left_for_pre_allocation(self, cls: PodClass, view: View, ceiling: Ceiling) -> Cells:
        """What is left for a pre-allocation, which does not count pods that end by themselves."""
        table, slot = self.cluster.nodes, ceiling.counted.slot
        kept = view.take(table.held_once_pods_end[slot]) + view.take(table.daemon_requested[slot])
        holds = self.cluster.reservations.starvation_holds
        return view.take(ceiling.cells) - kept + holds.outranked(cls, view, slot)

    def score(self, cls: PodClass) -> Score:
        """The percentage of the ceiling that is left with the pod placed; negative where limits exceed
        the ceiling."""
        counted = [
            (ceiling, ceiling.column, ceiling.counted.scored, cls.limits.scored(resource), weight)
            for resource, weight in self._weights.items()
            if (ceiling := self._ceilings.by_resource.get(resource)) is not None
        ]
        if not counted:
            return Score.same(0, self._version)

        def score(view: View) -> Cells:
            if not isinstance(view, One):
                return several(view)
            total = weights = 0
            row, claims = view.rows, view.claims
            for _, column, slot, added, weight in counted:
                most = column.cells.item(row)
                if most < UNLIMITED and most > 0:
                    left = (most - claims[slot] - added) * MAX_SCORE
                    if left >= 0:
                        total += left // most * weight
                    else:
                        total -= min(-left // most, -_WORST) * weight
                    weights += weight
            if total < 0:
                return -(-total // weights)
            return total // weights if weights else 0

        def several(view: View) -> Cells:
            """The same for several rows, as array operations."""
            total, weights = 0, 0
            for ceiling, _, slot, added, weight in counted:
                most = view.take(ceiling.cells)
                counts = (most > 0) & (most < UNLIMITED)
                most = most * counts
                left = view.maximum(most - view.claimed(slot) - added, _LEAST_LEFT)
                part = toward_zero(left * MAX_SCORE, most + (most == 0))
                total = total + view.maximum(part, _WORST) * weight * counts
                weights = weights + weight * counts
            return toward_zero(total, weights + (weights == 0))

        return Score(
            score,
            Scope.USAGE,
            ByRange(),
            self._version,
            by_amounts=True,
            kind=self._ceilings.kind,
        )


def _left(view: View, ceiling: Ceiling) -> Cells:
    return view.take(ceiling.cells) - view.claimed(ceiling.counted.slot)


def toward_zero(dividend: Cells, divisor: Cells) -> Cells:
    """The quotient, truncated toward zero."""
    return abs(dividend) // divisor * (1 - 2 * (dividend < 0))
