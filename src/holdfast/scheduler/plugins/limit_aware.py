"""How far the limits of a node's pods may add up, as columns over rows.

What a node says in its annotation stands in the place of the default as a whole; resources that are
named in neither are not limited. A node that says something that makes no sense is `malformed`, and
told so.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.names import LIMIT_TO_ALLOCATABLE
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.columns import RowColumns, cells_of
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.limit_sums import UNLIMITED
from holdfast.scheduler.cluster.node_table import NodeInfo
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pod_limits import CountedLimit
from holdfast.scheduler.cluster.slots import MOST
from holdfast.scheduler.cluster.view import Cells, One, View
from holdfast.scheduler.framework.cluster_plugin import ClusterPlugin
from holdfast.scheduler.framework.config import LimitAwareArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    ByRange,
    Filter,
    Reason,
    Scope,
    Score,
    Settled,
)

INVALID = "InvalidLimitToAllocatable"


class Ceiling:
    """Of one resource."""

    cells: NDArray[np.int64] = cells_of("column")

    def __init__(self, counted: CountedLimit, columns: RowColumns) -> None:
        self.counted = counted
        self.column = columns.new(np.int64, UNLIMITED)


class Ceilings:
    valid: NDArray[np.bool_] = cells_of("_valid")
    """The rows whose nodes are not malformed."""

    def __init__(self, cluster: Cluster, default: dict[str, int]) -> None:
        self._cluster = cluster
        self._default = default
        self._faulty: dict[int, ObjectRef] = {}
        self.by_resource: dict[str, Ceiling] = {}
        """Of all resources that are limited on some node, or were."""
        self._valid = cluster.nodes.columns.new(np.bool_, True)
        self._kinds: dict[int, tuple[int, ...]] = {}
        for _, row in cluster.nodes.names():
            self._node_changed(row)
        cluster.node_listeners.append(self._node_changed)
        cluster.limits.ceilings.append(self.most)
        cluster.limits.columns.append(self.column)

    def most(self, resource: str, row: int) -> int:
        ceiling = self.by_resource.get(resource)
        return ceiling.cells.item(row) if ceiling is not None else UNLIMITED

    def column(self, resource: str) -> NDArray[np.int64] | None:
        ceiling = self.by_resource.get(resource)
        return ceiling.cells if ceiling is not None else None

    def kind(self, row: int) -> tuple[int, ...] | None:
        """Rows of one kind have the same ceilings; or none, where that is None."""
        return self._kinds.get(row)

    def version(self) -> tuple[int, bool]:
        """Changes when plugins have more to look at than before."""
        return len(self.by_resource), bool(self._faulty)

    def _node_changed(self, row: int) -> None:
        info = self._cluster.nodes.info.get(row)
        ratios, problem = self._ratios(info) if info is not None else ({}, "")
        self._tell(row, info, problem)
        offered = info.allocatable if info is not None else {}
        for resource in sorted(ratios.keys() - self.by_resource.keys()):
            counted = self._cluster.limits.count(resource)
            self.by_resource[resource] = Ceiling(counted, self._cluster.nodes.columns)
        cells = [0 if problem else 1]
        for resource, ceiling in self.by_resource.items():
            percent = ratios.get(resource)
            cell = UNLIMITED
            if percent is not None:
                cell = min(percent * offered.get(resource, 0) // 100, MOST)
            ceiling.cells[row] = cell
            cells.append(cell)
        self._kinds[row] = tuple(cells)
        self.valid[row] = not problem

    def _ratios(self, info: NodeInfo) -> tuple[dict[str, int], str]:
        """By resource; and what is wrong with what the node says."""
        text = info.annotations.get(LIMIT_TO_ALLOCATABLE)
        if text is None:
            return self._default, ""
        try:
            return limit_to_allocatable(text), ""
        except InvalidObject as error:
            return {}, f"{error.field}: {error.message}"

    def _tell(self, row: int, info: NodeInfo | None, problem: str) -> None:
        told = self._faulty.pop(row, None)
        if problem and info is not None:
            self._faulty[row] = ObjectRef("Node", "", info.name, info.uid)
        if told is not None and self._faulty.get(row) != told:
            self._cluster.warn_once(told, INVALID, "")
        if row in self._faulty:
            self._cluster.warn_once(self._faulty[row], INVALID, problem)


# LimitAware: the limits of a node's pods may add up to so much of what it has, and no more; and of
# several nodes the one is better where they add up to less.


REASON = "Insufficient {} limit"
REASON_MALFORMED = "node(s) had a malformed limit-to-allocatable annotation"

_LEAST_LEFT = -(2**56)
_WORST = -(10**13)
"""Bounds beyond anything that makes sense, within which sums stay within 64 bits."""


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
        left = self._left_ahead if cls.pre_allocation else _left
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
        return Filter(passes, reasons, Scope.USAGE, self._version, kind=kind)

    def _left_ahead(self, view: View, ceiling: Ceiling) -> Cells:
        """For a reservation made ahead of time pods that will end are as good as gone."""
        table, slot = self.cluster.nodes, ceiling.counted.slot
        kept = view.take(table.reserved[slot]) + view.take(table.daemon_requested[slot])
        return view.take(ceiling.cells) - kept

    def score(self, cls: PodClass) -> Score:
        """The share of what limits may add up to that would still be left; less than nothing where they
        add up to more already."""
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
            """As for one row, in what arrays understand."""
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
    """Without what is behind the point, whatever the sign."""
    return abs(dividend) // divisor * (1 - 2 * (dividend < 0))
