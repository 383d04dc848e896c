"""Which rows changed, in order, so that a cache catches up with what it missed and no more.

A reader keeps a position. The log forgets its oldest part when it grows past what anyone would
rather read than start afresh; a reader whose position was forgotten is told so.
"""

import numpy as np
from numpy.typing import NDArray

_FIRST = 64
"""Entries there is room for at first: there can be thousands of logs, of which few are ever long."""


class RowLog:
    __slots__ = ("_base", "_most", "_rows", "end")

    def __init__(self, keep: int = 65536) -> None:
        self._most = 2 * keep
        self._rows: NDArray[np.intp] = np.zeros(min(_FIRST, self._most), dtype=np.intp)
        self._base = 0
        self.end = 0
        """The position after the newest entry."""

    def add(self, row: int) -> None:
        at = self.end - self._base
        if at == len(self._rows):
            if at < self._most:
                self._rows = np.pad(self._rows, (0, min(at, self._most - at)))
            else:
                at //= 2
                self._rows[:at] = self._rows[at:]
                self._base += at
        self._rows[at] = row
        self.end += 1

    def newest(self) -> int:
        """The row added last, of which there must be one."""
        return self._rows.item(self.end - self._base - 1)

    def rewind(self, position: int) -> None:
        """Forgets what was added since `position`, which nobody may have read yet."""
        self.end = max(position, self._base)

    def since(self, position: int) -> NDArray[np.intp] | None:
        """Rows changed since `position`, with repeats; None if that is no longer known."""
        if position < self._base:
            return None
        return self._rows[position - self._base : self.end - self._base]


def distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each row once, the lowest first. For the few there mostly are this is ten times as fast as
    `np.unique`, which also loads a good deal of numpy that nobody needs."""
    if len(rows) < 2:
        return rows
    ordered = np.sort(rows)
    first = np.empty(len(ordered), dtype=np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
