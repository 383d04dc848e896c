"""Node labels as columns of codes.

A column exists for a label key as long as its users (compiled selectors and topology terms of pod
classes) keep it, and is updated with the nodes. A value keeps its code as long as a node has the value
or a user holds it, so a code can stand for a topology domain. Then the code may be given to another
value, which `reused` counts. The code of an absent label is -1.
"""

import heapq
from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import RowColumns, cells_of

ABSENT = -1
NO_SUCH_VALUE = -2
"""A code no row has: the code of a value that no node has."""


class LabelColumn:
    """The values of one label key over all rows."""

    codes: NDArray[np.int32] = cells_of("column")

    def __init__(self, key: str, columns: RowColumns) -> None:
        self.key = key
        self.column = columns.new(np.int32, ABSENT)
        self.values: list[str] = []
        """By code; empty where the code is not in use."""
        self.reused = 0
        """Moves when a code is given to another value."""
        self._code: dict[str, int] = {}
        self._users: list[int] = []
        """How many rows and holders use each code."""
        self._free: list[int] = []

    def code(self, value: str) -> int:
        """The code of a value; NO_SUCH_VALUE if it has none."""
        return self._code.get(value, NO_SUCH_VALUE)

    def hold(self, value: str) -> int:
        """The code of a value, which it keeps until `let_go` is called as often as `hold`."""
        code = self._code.get(value)
        if code is None:
            if self._free:
                code = heapq.heappop(self._free)
                self.values[code] = value
                self.reused += 1
            else:
                code = len(self.values)
                self.values.append(value)
                self._users.append(0)
            self._code[value] = code
        self._users[code] += 1
        return code

    def let_go(self, code: int) -> None:
        """Ends a `hold`; the code is released with the last one."""
        self._users[code] -= 1
        if not self._users[code]:
            del self._code[self.values[code]]
            self.values[code] = ""
            heapq.heappush(self._free, code)

    def in_use(self) -> int:
        return len(self._code)

    def set(self, row: int, value: str | None) -> None:
        before = self.codes.item(row)
        if value is not None and before >= 0 and self.values[before] == value:
            return
        # The new value first: the row must not get its old code for another value.
        self.codes[row] = ABSENT if value is None else self.hold(value)
        if before >= 0:
            self.let_go(before)


class LabelColumns:
    """The label columns in use, weakly referenced, over the labels of all nodes."""

    def __init__(self, columns: RowColumns) -> None:
        self._rows = columns
        self._columns: WeakValueDictionary[str, LabelColumn] = WeakValueDictionary()
        self._labels: dict[int, Mapping[str, str]] = {}
        self._nodes: dict[str, int] = {}
        """How many nodes have each key."""
        self.keys_version = 0
        """Moves when the first node gets a key, or the last one loses it."""

    def has(self, key: str) -> bool:
        """Whether any node has the key."""
        return key in self._nodes

    def column(self, key: str) -> LabelColumn:
        """The column of a key, a new one if there is none."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(key, self._rows)
            for row, labels in self._labels.items():
                column.set(row, labels.get(key))
        return column

    def find(self, key: str) -> LabelColumn | None:
        """The column of a key, if there is one."""
        return self._columns.get(key)

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        self._count(self._labels.get(row, {}), labels)
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def _count(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        nodes = self._nodes
        for key in after:
            if key not in before:
                count = nodes[key] = nodes.get(key, 0) + 1
                self.keys_version += count == 1
        for key in before:
            if key not in after:
                nodes[key] -= 1
                if not nodes[key]:
                    del nodes[key]
                    self.keys_version += 1

    def clear(self, row: int) -> None:
        self._count(self._labels.pop(row, {}), {})
        for column in self._columns.values():
            column.set(row, None)

    def of(self, row: int) -> Mapping[str, str]:
        return self._labels.get(row, {})

    def known(self) -> Iterable[LabelColumn]:
        return self._columns.values()
