"""Which rows changed, in order, so that a cache catches up with what it missed and no more.

A reader keeps a position. The log forgets its oldest part when it grows past what anyone would
rather read than start afresh; a reader whose position was forgotten is told so.
"""


class RowLog:
    __slots__ = ("_base", "_keep", "_rows", "end")

    def __init__(self, keep: int = 65536) -> None:
        self._rows: list[int] = []
        self._base = 0
        self._keep = keep
        self.end = 0
        """The position after the newest entry."""

    def add(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > 2 * self._keep:
            drop = len(self._rows) - self._keep
            del self._rows[:drop]
            self._base += drop

    def since(self, position: int) -> list[int] | None:
        """Rows changed since `position`, with repeats; None if that is no longer known."""
        if position < self._base:
            return None
        return self._rows[position - self._base :]
