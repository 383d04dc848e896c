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
from holdfast.core.slots import MOST

INVALID = "InvalidLimitToAllocatable"


class Ceiling:
    """Of one resource."""

    def __init__(self, counted: CountedLimit, capacity: int) -> None:
        self.counted = counted
        self.cells: NDArray[np.int64] = np.full(capacity, UNLIMITED, dtype=np.int64)
        self.at: list[int] = [UNLIMITED] * capacity
        """The same as plain numbers, for who looks at one row."""

    def grow(self, capacity: int) -> None:
        more = capacity - len(self.at)
        self.cells = np.pad(self.cells, (0, more), constant_values=UNLIMITED)
        self.at += [UNLIMITED] * more

    def put(self, row: int, most: int) -> None:
        self.cells[row] = self.at[row] = most


class Ceilings:
    def __init__(self, cluster: Cluster, default: dict[str, int]) -> None:
        self._cluster = cluster
        self._default = default
        self._faulty: dict[int, ObjectRef] = {}
        self.by_resource: dict[str, Ceiling] = {}
        """Of all resources that are limited on some node, or were."""
        self.makes_sense: NDArray[np.bool_] = np.ones(cluster.nodes.capacity, dtype=np.bool_)
        """The rows whose nodes are not malformed."""
        self._kinds: dict[int, tuple[int, ...]] = {}
        for _, row in cluster.nodes.names():
            self._node_changed(row)
        cluster.node_listeners.append(self._node_changed)
        cluster.limits.ceilings.append(self.most)
        cluster.limits.columns.append(self.column)

    def most(self, resource: str, row: int) -> int:
        ceiling = self.by_resource.get(resource)
        return ceiling.at[row] if ceiling is not None else UNLIMITED

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
            self.by_resource[resource] = Ceiling(counted, self._cluster.nodes.capacity)
        self._grow()
        cells = [0 if problem else 1]
        for resource, ceiling in self.by_resource.items():
            percent = ratios.get(resource)
            cell = UNLIMITED
            if percent is not None:
                cell = min(percent * offered.get(resource, 0) // 100, MOST)
            ceiling.put(row, cell)
            cells.append(cell)
        self._kinds[row] = tuple(cells)
        self.makes_sense[row] = not problem

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

    def _grow(self) -> None:
        capacity = self._cluster.nodes.capacity
        if len(self.makes_sense) < capacity:
            more = capacity - len(self.makes_sense)
            self.makes_sense = np.pad(self.makes_sense, (0, more), constant_values=True)
        for ceiling in self.by_resource.values():
            if len(ceiling.at) < capacity:
                ceiling.grow(capacity)
