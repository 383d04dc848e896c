"""Rows whose amounts changed, in order, and what the amounts were after the change.

Every pod class that catches up with the rows changed since it was last used needs the same numbers of
them. They are copied out of the table once, into arrays in the order of the log, so that a class finds
those it missed side by side. A row that changed several times is in there as often; its last entry is
the one that counts.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.core.nodes import NodeTable
from holdfast.core.rowlog import RowLog
from holdfast.core.view import Some

_KEEP = 8192
_FEW = 8
"""Up to this many rows are copied one by one, which is then faster."""


class Journal(RowLog):
    """A log of rows, of which each entry follows the change it tells of."""

    __slots__ = ("_allocatable", "_claimed", "_free", "_table", "_written")

    def __init__(self, table: NodeTable) -> None:
        super().__init__(_KEEP)
        self._table = table
        self._make_room()

    def entries(self, position: int) -> Some:
        """The rows since a position that is still known, oldest first, with repeats."""
        self._write()
        span = slice(position - self._base, self.end - self._base)
        return Some(
            self._rows[span], self._allocatable[:, span], self._claimed[:, span], self._free[:, span]
        )

    def _write(self) -> None:
        """Copies the amounts of rows that came into the log since the last time."""
        table = self._table
        if len(self._free) != len(table.claimed):
            self._make_room()
        span = slice(max(self._written - self._base, 0), self.end - self._base)
        rows = self._rows[span]
        self._written = self.end
        if len(rows) > _FEW:
            self._allocatable[:, span] = table.allocatable.take(rows, axis=1)
            self._claimed[:, span] = table.claimed.take(rows, axis=1)
            self._free[:, span] = self._allocatable[:, span] - self._claimed[:, span]
            return
        for at, row in enumerate(rows.tolist(), span.start):
            self._allocatable[:, at] = offered = table.allocatable[:, row]
            self._claimed[:, at] = claimed = table.claimed[:, row]
            np.subtract(offered, claimed, out=self._free[:, at])

    def _forget(self, count: int) -> None:
        super()._forget(count)
        for amounts in (self._allocatable, self._claimed, self._free):
            amounts[:, :-count] = amounts[:, count:]

    def _make_room(self) -> None:
        shape = (len(self._table.claimed), len(self._rows))
        self._allocatable: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._claimed: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._free: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._written = self._base
        """The position up to which amounts were copied."""
