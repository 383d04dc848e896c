"""What time it is."""

import time

_TOLERATED = 1.0
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock:
    """`elapsed` goes on while the machine sleeps, so a lease that ran out meanwhile is seen to have.

    `now` counts from the epoch and never goes back: a wall clock that is set back is not followed, one
    that is set forward is.
    """

    def __init__(self) -> None:
        self._offset = self.wall() - self.elapsed()

    def elapsed(self) -> float:
        return time.clock_gettime(_ELAPSED) if _ELAPSED is not None else time.monotonic()

    def now(self) -> float:
        elapsed = self.elapsed()
        ahead = self.wall() - elapsed - self._offset
        if ahead > _TOLERATED:
            self._offset += ahead
        return elapsed + self._offset

    def wall(self) -> float:
        """What others' clocks should show, for stamps on objects."""
        return time.time()
