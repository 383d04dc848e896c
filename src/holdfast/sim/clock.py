"""Virtual time: seconds since the start of the simulation.

The core and the objects count from the epoch, as they do everywhere; timelines and scenarios count
from the start. The two meet here and nowhere else.
"""

from holdfast.api.timestamps import format_time, parse_time

START = parse_time("2026-01-01T00:00:00Z")
_DIGITS = 6


class VirtualClock:
    """Stands still until it is told to move, and never goes back."""

    def __init__(self, start: float = START) -> None:
        self.t = 0.0
        self._start = start
        self._epoch = start
        self._stamp = format_time(start)

    def advance(self, t: float) -> None:
        self.t = max(self.t, t)
        self._epoch = self._start + self.t
        self._stamp = format_time(self._epoch)

    def advance_to_timer(self, due: float) -> None:
        """To the moment a timer of the core asks for. What the core is then told as the time is no
        earlier than that, whatever rounding does to it, so that the timer has run out."""
        self.advance(self.since_start(due))
        self._epoch = max(self._epoch, due)

    def epoch(self) -> float:
        """Now, as the core counts."""
        return self._epoch

    def stamp(self, after: float = 0.0) -> str:
        """Now, or some seconds later, as objects say it."""
        return format_time(self._start + self.t + after) if after else self._stamp

    def since_start(self, epoch: float) -> float:
        return round(epoch - self._start, _DIGITS)
