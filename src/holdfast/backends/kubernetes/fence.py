"""Keeps a leader that may have been deposed from writing.

Leases do not stop anyone: a process that was asleep past its lease wakes up believing that it leads. So
every write asks here, in the same step in which it goes out, whether the last renewal is recent enough.
"""

import math
from collections.abc import Callable

from holdfast.backends.kubernetes.errors import Deposed


class Fence:
    """Open until the given moment of `elapsed`; without an election, for ever once opened."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until = -math.inf

    def open_until(self, moment: float) -> None:
        self._until = moment

    def close(self) -> None:
        self._until = -math.inf

    @property
    def is_open(self) -> bool:
        return self._elapsed() < self._until

    def check(self) -> None:
        """Raises Deposed."""
        if self._elapsed() >= self._until:
            raise Deposed("held back: the lease was not renewed in time")
