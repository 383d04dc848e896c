"""The story of an object: its recent events and decisions, in order.

A failing invariant prints it, and the log has it for an object whose decisions do not converge. The
number and the length of entries are bounded, so memory does not grow with the age of the scheduler.
"""

from collections import deque
from typing import NamedTuple

_KEPT = 10_000
"""The number of lines kept, of about 200 bytes each."""
_LONGEST = 1024
"""The maximum length of a detail, in characters."""


class Line(NamedTuple):
    """One entry of a story."""

    time: float
    object: str
    what: str
    detail: str

    def __str__(self) -> str:
        tail = f": {self.detail}" if self.detail else ""
        return f"{self.time:10.3f}  {self.what}{tail}"


class Chronicle:
    """The last entries of all objects."""

    def __init__(self, keep: int = _KEPT) -> None:
        self._lines: deque[tuple[float, object, str, str]] = deque(maxlen=keep)

    def note(self, time: float, about: object, what: str, detail: str = "") -> None:
        """Adds an entry. `str(about)` names the object, and is called only when a story is read."""
        if detail:
            detail = detail[:_LONGEST]
        self._lines.append((time, about, what, detail))

    def story(self, name: str) -> list[Line]:
        """The entries about `Pod/namespace/name` or `Kind/name`, oldest first."""
        return [
            Line(time, name, what, detail)
            for time, about, what, detail in self._lines
            if str(about) == name
        ]
