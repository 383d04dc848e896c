"""What time it is, in the three ways a cluster asks."""

import time
from typing import Protocol

from holdfast.api.timestamps import format_time


class Clock(Protocol):
    @property
    def t(self) -> float:
        """As agendas count, in seconds."""

    def epoch(self) -> float:
        """As the core counts: seconds since 1970."""

    def stamp(self, after: float = 0.0) -> str:
        """Now, or some seconds later, as objects say it."""


class RealClock:
    """The machine's. Set back, it stands still until its time comes again."""

    def __init__(self) -> None:
        self._latest = 0.0
        self._second = -1
        self._stamp = ""

    @property
    def t(self) -> float:
        return self.epoch()

    def epoch(self) -> float:
        now = time.time()
        if now > self._latest:
            self._latest = now
        return self._latest

    def stamp(self, after: float = 0.0) -> str:
        now = self.epoch()
        if after:
            return format_time(now + after)
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, format_time(second)
        return self._stamp
