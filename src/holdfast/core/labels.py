"""Node labels as columns of codes.

A column exists for a key only once somebody asks for it, and is kept in step with the nodes from
then on. A value's code is stable for the life of the column, so a code can stand for a topology
domain. Absent is -1.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.core.row_columns import RowColumns, cells_of

ABSENT = -1
NO_SUCH_VALUE = -2
"""A code no row has: what a value never seen on a node compares as."""


class LabelColumn:
    """The values of one label key over all rows."""

    codes: NDArray[np.int32] = cells_of("_codes")

    def __init__(self, key: str, columns: RowColumns) -> None:
        self.key = key
        self._codes = columns.new(np.int32, ABSENT)
        self.values: list[str] = []
        self._code: dict[str, int] = {}

    def code(self, value: str) -> int:
        """The code of a value, or one that matches nothing."""
        return self._code.get(value, NO_SUCH_VALUE)

    def intern(self, value: str) -> int:
        code = self._code.get(value)
        if code is None:
            code = self._code[value] = len(self.values)
            self.values.append(value)
        return code

    def set(self, row: int, value: str | None) -> None:
        self.codes[row] = ABSENT if value is None else self.intern(value)


class LabelColumns:
    """The columns asked for so far, over the labels of the nodes there are."""

    def __init__(self, columns: RowColumns) -> None:
        self._rows = columns
        self._columns: dict[str, LabelColumn] = {}
        self._labels: dict[int, Mapping[str, str]] = {}

    def column(self, key: str) -> LabelColumn:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(key, self._rows)
            for row, labels in self._labels.items():
                column.set(row, labels.get(key))
        return column

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def clear(self, row: int) -> None:
        self._labels.pop(row, None)
        for column in self._columns.values():
            column.set(row, None)

    def of(self, row: int) -> Mapping[str, str]:
        return self._labels.get(row, {})

    def known(self) -> Iterable[LabelColumn]:
        return self._columns.values()
