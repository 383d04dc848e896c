"""How far the limits of a node's pods may add up, as columns over rows.

What a node says in its annotation stands in the place of the default as a whole; resources that are
named in neither are not limited. A node that says something that makes no sense is `malformed`, and
told so.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.names import LIMIT_TO_ALLOCATABLE
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import ObjectRef
from holdfast.core.limit_sums import UNLIMITED
from holdfast.core.limits import CountedLimit
from holdfast.core.nodes import NodeInfo
from holdfast.core.row_columns import RowColumns, cells_of
from holdfast.core.slots import MOST

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
            self._cluster.complain(told, INVALID, "")
        if row in self._faulty:
            self._cluster.complain(self._faulty[row], INVALID, problem)
