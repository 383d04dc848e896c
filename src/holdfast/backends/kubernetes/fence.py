"""Keeps a leader that may have been deposed from writing.

Leases do not stop anyone: a process that was asleep past its lease wakes up believing that it leads. So
every write asks here, in the same step in which it goes out, whether the last renewal is recent enough.
What has been sent may still be on its way, or in the server's hands, when the lease runs out: so a
write also says for how long it may be carried out, which is no longer than nobody else can lead.
"""

import math
from collections.abc import Callable

from holdfast.backends.kubernetes.errors import Deposed


class Fence:
    """Open until the given moment of `elapsed`; without an election, for ever once opened."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until = -math.inf
        self._alone_until = math.inf

    def open_until(self, moment: float, alone_until: float = math.inf) -> None:
        """Nobody else leads before `alone_until`."""
        self._until = moment
        self._alone_until = alone_until

    def close(self) -> None:
        self._until = -math.inf

    @property
    def is_open(self) -> bool:
        return self._elapsed() < self._until

    def alone_for(self) -> float:
        """For how long nobody else can lead."""
        return self._alone_until - self._elapsed()

    def check(self) -> None:
        """Raises Deposed."""
        if self._elapsed() >= self._until:
            raise Deposed("held back: the lease was not renewed in time")
