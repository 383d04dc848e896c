"""The clock of a scheduler process: monotonic elapsed time, and wall-clock time that never goes
back.
"""

import time

_TOLERATED = 1.0
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock:
    """`elapsed` continues while the machine is suspended, so that an expired lease is noticed on
    resume.

    `now` is the Unix time and never goes back: it ignores a wall clock that is set back and follows one
    that is set forward.
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
        """The wall clock time, for timestamps of objects."""
        return time.time()
