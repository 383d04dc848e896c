"""Which rows use a thing: a claim, a disk, a volume.

There are thousands of things, each used on a row or two, so this is kept sparsely. Somebody who asks
about one thing over all rows gets a column of marks, kept up to date for as long as it is held.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from holdfast.core.nodes import NodeTable
from holdfast.core.row_columns import cells_of

Thing = TypeVar("Thing", bound=Hashable)

_NONE: Mapping[int, int] = {}


class Marks:
    """The rows that use a thing."""

    __slots__ = ("__weakref__", "_column")

    cells: NDArray[np.bool_] = cells_of("_column")

    def __init__(self, nodes: NodeTable, rows: Mapping[int, int]) -> None:
        self._column = nodes.columns.new(np.bool_)
        for row in rows:
            self.cells[row] = True


class RowUse(Generic[Thing]):
    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._rows: dict[Thing, dict[int, int]] = {}
        self._things: dict[int, dict[Thing, int]] = {}
        self._watched: WeakValueDictionary[Thing, Marks] = WeakValueDictionary()

    def add(self, thing: Thing, row: int, count: int) -> None:
        """The row uses the thing so many times more, or less."""
        things = self._things.setdefault(row, {})
        uses = things.get(thing, 0) + count
        if uses:
            things[thing] = self._rows.setdefault(thing, {})[row] = uses
        else:
            del things[thing]
            rows = self._rows[thing]
            del rows[row]
            if not rows:
                del self._rows[thing]
            if not things:
                del self._things[row]
        marks = self._watched.get(thing)
        if marks is not None:
            marks.cells[row] = uses > 0

    def rows(self, thing: Thing) -> Mapping[int, int]:
        """How often each row that uses the thing does."""
        return self._rows.get(thing, _NONE)

    def on(self, row: int) -> Mapping[Thing, int]:
        """How often the row uses each thing it uses."""
        return self._things.get(row, {})

    def marks(self, thing: Thing) -> Marks:
        marks = self._watched.get(thing)
        if marks is None:
            marks = self._watched[thing] = Marks(self._nodes, self.rows(thing))
        return marks

    def counts(self) -> dict[tuple[Thing, int], int]:
        """Everything, to be compared with a recount."""
        return {(thing, row): n for thing, rows in self._rows.items() for row, n in rows.items()}
