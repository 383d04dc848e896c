"""The CSIStorageCapacity objects of one storage class: the largest volume that fits, and the capacity
there, by row. Where several objects select a row, the one with the largest volume counts.

Drivers of local storage publish an object per node, which selects the node by a label; these are kept
as a table over the label's values, so that the answer for all rows is one look-up.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.affinity import NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.errors import QuantityError, SelectorError
from holdfast.api.quantity import whole
from holdfast.api.selectors import Selector, compile_selector
from holdfast.api.storage import CSIStorageCapacity
from holdfast.scheduler.cluster.node_labels import LabelColumn
from holdfast.scheduler.cluster.node_selectors import Mask, compile_terms
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.view import Cells, View

_NONE = -1
_MOST = 2**56
"""Bytes; a bound that lets percentages be computed in 64 bits."""

Name = tuple[str, str]


def largest_volume(capacity: CSIStorageCapacity) -> int:
    """The size of the largest volume that fits; -1 if that is not known."""
    limit = capacity.maximum_volume_size
    if limit is None:
        limit = capacity.capacity
    try:
        return _NONE if limit is None else whole(limit)
    except QuantityError:
        return _NONE


class Limit(NamedTuple):
    """What one object reports."""

    volume: int
    """The size of the largest volume that fits; -1 if that is not known."""
    capacity: int


_NOWHERE = Limit(_NONE, _NONE)


class ByValue:
    """The limits for each value of a label."""

    def __init__(self, column: LabelColumn) -> None:
        self._column = column
        self._limits: dict[int, dict[Name, Limit]] = {}
        self._table: NDArray[np.int64] = np.full((2, 1), _NONE, dtype=np.int64)

    def set_limit(self, value: str, name: Name, limit: Limit | None) -> None:
        """Sets what one object reports for a value; None removes the object."""
        code = self._column.hold(value)
        limits = self._limits.setdefault(code, {})
        if limit is None:
            del limits[name]
            self._column.let_go(code)
        elif name not in limits:
            limits[name] = limit
            self._column.hold(value)
        else:
            limits[name] = limit
        self._capacity()[:, code] = max(limits.values(), default=_NOWHERE)
        if not limits:
            del self._limits[code]
        self._column.let_go(code)

    def of(self, view: View) -> tuple[Cells, Cells]:
        """The largest volume, and the capacity."""
        codes = view.take(self._column.codes)
        volume, capacity = self._capacity()
        return volume[codes], capacity[codes]

    @property
    def empty(self) -> bool:
        return not self._limits

    def _capacity(self) -> NDArray[np.int64]:
        """The limits by code of the label's value. The last cell is for rows without the label, whose
        code is -1."""
        if self._table.shape[1] <= len(self._column.values):
            more = len(self._column.values) + 1
            self._table = np.pad(self._table, ((0, 0), (0, more)), constant_values=_NONE)
        return self._table


class Capacities:
    """The CSIStorageCapacity objects of one storage class."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._selectors: dict[Name, Selector] = {}
        self._limits: dict[Name, Limit] = {}
        self._by_key: dict[str, ByValue] = {}
        self._everywhere: dict[Name, Limit] = {}
        self._selected: dict[Name, Mask] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def put(self, name: Name, capacity: CSIStorageCapacity | None) -> None:
        if name in self._limits:
            self._set(name, self._selectors.pop(name), None)
            del self._limits[name]
        if capacity is None or capacity.node_topology is None:
            return
        try:
            selector = compile_selector(capacity.node_topology)
        except SelectorError:
            return
        self._selectors[name] = selector
        self._limits[name] = Limit(min(largest_volume(capacity), _MOST), _reported(capacity))
        self._set(name, selector, self._limits[name])

    def capacity(self, size: int, view: View) -> Cells:
        """The capacity in rows where a volume of that size fits, -1 in others."""
        most = max(self._everywhere.values(), default=_NOWHERE)
        volume, capacity = view.full(most.volume), view.full(most.capacity)
        for limits in self._by_key.values():
            other, there = limits.of(view)
            volume, capacity = _larger(view, volume, capacity, other, there)
        for name, mask in self._selected.items():
            limit, selected = self._limits[name], mask(view)
            other = view.where(selected, limit.volume, _NONE)
            volume, capacity = _larger(view, volume, capacity, other, view.full(limit.capacity))
        return view.where(volume >= size, capacity, _NONE)

    def _set(self, name: Name, selector: Selector, limit: Limit | None) -> None:
        """Sets the limits on the rows that the selector matches; None removes it."""
        wanted = selector.requirements
        if not wanted:
            _set(self._everywhere, name, limit)
        elif len(wanted) == 1 and wanted[0].operator == "In":
            key = wanted[0].key
            if key not in self._by_key:
                self._by_key[key] = ByValue(self._nodes.labels.column(key))
            for value in wanted[0].values:
                self._by_key[key].set_limit(value, name, limit)
            if self._by_key[key].empty:
                del self._by_key[key]
        elif limit is None:
            del self._selected[name]
        else:
            expressions = [
                NodeSelectorRequirement(key=r.key, operator=r.operator, values=list(r.values))
                for r in wanted
            ]
            term = NodeSelectorTerm(match_expressions=expressions)
            self._selected[name] = compile_terms(self._nodes, [term])


def _reported(capacity: CSIStorageCapacity) -> int:
    try:
        return 0 if capacity.capacity is None else min(whole(capacity.capacity), _MOST)
    except QuantityError:
        return 0


def _larger(
    view: View, volume: Cells, capacity: Cells, other: Cells, there: Cells
) -> tuple[Cells, Cells]:
    """Of two limits by row, the one with the larger volume."""
    is_other = (other > volume) | ((other == volume) & (other >= 0) & (there > capacity))
    return view.where(is_other, other, volume), view.where(is_other, there, capacity)


def _set(table: dict[Name, Limit], name: Name, value: Limit | None) -> None:
    if value is None:
        del table[name]
    else:
        table[name] = value
