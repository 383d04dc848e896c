"""What matters of each device for the claims of a pod: the columns of one `ClaimsRequest`.

Devices with the same *code* are interchangeable for the request, unless one is in use: they match the
same requests, tolerate alike, have equal values in the attributes of constraints, consume the same
counters and capacity. Rows of the device table that are new since the last call are added on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest, RequestPart
from holdfast.scheduler.managers.claims.device_table import NO_COUNTERS, Consumption, DeviceTable
from holdfast.scheduler.managers.claims.selector_columns import (
    ERROR,
    MATCH,
    AttributeColumn,
    DemandColumn,
    SelectorColumn,
    ShapeColumn,
    TolerationColumn,
    Verdicts,
)

C = TypeVar("C", bound=ShapeColumn)
_MOST_COLUMNS = 2048


class ColumnCache:
    """Columns by what they are made from: requests with the same class or selector share them."""

    def __init__(self, table: DeviceTable) -> None:
        self.table = table
        self._columns: dict[Hashable, ShapeColumn] = {}

    def column(self, key: Hashable, make: Callable[[], C]) -> C:
        found = self._columns.get(key)
        if found is not None:
            return cast(C, found)
        if len(self._columns) >= _MOST_COLUMNS:
            self._columns.clear()
        made = self._columns[key] = make()
        return made

    def selectors(self, texts: tuple[str, ...]) -> SelectorColumn:
        return self.column(("selectors", texts), lambda: SelectorColumn(self.table, texts))

    def attribute(self, name: str) -> AttributeColumn:
        return self.column(("attribute", name), lambda: AttributeColumn(self.table, name))


class PartColumns:
    """The columns of one part of a request."""

    def __init__(self, part: RequestPart, cache: ColumnCache) -> None:
        table, asked = cache.table, tuple(sorted((k, str(v)) for k, v in part.asked.items()))
        self.of_class = cache.selectors(part.class_selectors)
        self.of_request = cache.selectors(part.selectors)
        self.tolerations = cache.column(
            ("tolerations", part.tolerations), lambda: TolerationColumn(table, part.tolerations)
        )
        self.demand = cache.column(("demand", asked), lambda: DemandColumn(table, part.asked))


class RequestColumns:
    """By row of the device table."""

    def __init__(self, request: ClaimsRequest, cache: ColumnCache) -> None:
        self._table = table = cache.table
        self.parts = [PartColumns(part, cache) for part in request.parts]
        self._single = request.single
        names = {
            each.match_attribute or each.distinct_attribute or ""
            for claim in request.claims
            for each in claim.constraints
        }
        self.attribute_at = {name: at for at, name in enumerate(sorted(names))}
        self._attributes = [cache.attribute(name) for name in self.attribute_at]
        size = len(table.shape)
        self.match: Verdicts = np.zeros((len(self.parts), size), dtype=np.int8)
        """By part: whether a device matches the selectors of class and request."""
        self.tolerated: NDArray[np.bool_] = np.zeros((len(self.parts), size), dtype=np.bool_)
        self.demand: NDArray[np.int32] = np.zeros((len(self.parts), size), dtype=np.int32)
        self.attributes: NDArray[np.int32] = np.zeros((len(names), size), dtype=np.int32)
        self.code: NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        self.easy: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        """For a request whose number of matching devices decides: those that count if they are free."""
        self.hard: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        """For such a request: devices for which more than that decides."""
        self.has_hard = False
        self._codes: dict[bytes, int] = {}
        self._seen = 0

    def refresh(self) -> None:
        """Brings the columns up to date with the table."""
        table = self._table
        if self._seen == table.version:
            return
        more = len(table.shape) - len(self.code)
        if more > 0:
            self.match = np.pad(self.match, ((0, 0), (0, more)))
            self.tolerated = np.pad(self.tolerated, ((0, 0), (0, more)))
            self.demand = np.pad(self.demand, ((0, 0), (0, more)))
            self.attributes = np.pad(self.attributes, ((0, 0), (0, more)))
            self.code = np.pad(self.code, (0, more))
            self.easy, self.hard = np.pad(self.easy, (0, more)), np.pad(self.hard, (0, more))
        rows = table.newer(self._seen)
        self._seen = table.version
        rows = rows[[table.entries[row] is not None for row in rows.tolist()]]
        if not len(rows):
            return
        shapes, taints = table.shape[rows], table.taints[rows]
        for at, part in enumerate(self.parts):
            of_class, of_request = part.of_class.cells[shapes], part.of_request.cells[shapes]
            self.match[at, rows] = np.where(of_class == MATCH, of_request, of_class)
            self.tolerated[at, rows] = part.tolerations.cells[taints]
            self.demand[at, rows] = part.demand.cells[shapes]
        for at, column in enumerate(self._attributes):
            self.attributes[at, rows] = column.cells[shapes]
        self._encode(rows)
        if self._single is not None:
            matched = (self.match[0, rows] == MATCH) & self.tolerated[0, rows]
            special = table.shared[rows] | (table.counters[rows] != NO_COUNTERS)
            wrong = (self.match[0, rows] == ERROR) | (self.demand[0, rows] == ERROR)
            self.easy[rows] = matched & (self.demand[0, rows] == MATCH) & ~special
            self.hard[rows] = (matched & special) | wrong
            self.has_hard = bool(self.hard.any())

    def consumption(self, counters: int) -> Consumption:
        return self._table.consumptions.value(counters)

    def _encode(self, rows: NDArray[np.intp]) -> None:
        table = self._table
        shared = table.shared[rows]
        parts = (
            self.match[:, rows],
            self.tolerated[:, rows],
            self.demand[:, rows],
            self.attributes[:, rows],
            shared[np.newaxis],
            table.counters[rows][np.newaxis],
        )
        lines = np.ascontiguousarray(np.concatenate(parts, axis=0, dtype=np.int32).T)
        width = lines.shape[1] * lines.itemsize
        raw, codes = lines.tobytes(), self._codes
        self.code[rows] = [
            codes.setdefault(raw[at : at + width], len(codes) + 1) for at in range(0, len(raw), width)
        ]
