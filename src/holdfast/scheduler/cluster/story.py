"""The recent past, told object by object.

The last events fed and decisions made are kept in order; `story` picks those about one object. It is
what a failing test prints, and what an operator asks for when a pod does something strange.

It is bounded in lines and in what a line may say, so that a scheduler that runs for weeks has its size
after the first minutes of load.
"""

from collections import deque
from typing import NamedTuple

_KEPT = 10_000
"""Lines; some 200 bytes each."""
_LONGEST = 1024
"""Characters of a detail."""


class Line(NamedTuple):
    time: float
    object: str
    what: str
    detail: str

    def __str__(self) -> str:
        tail = f": {self.detail}" if self.detail else ""
        return f"{self.time:10.3f}  {self.what}{tail}"


class Chronicle:
    def __init__(self, keep: int = _KEPT) -> None:
        self._lines: deque[tuple[float, object, str, str]] = deque(maxlen=keep)

    def note(self, time: float, about: object, what: str, detail: str = "") -> None:
        """`about` is anything whose str() names the object; it is not rendered until asked for."""
        if detail:
            detail = detail[:_LONGEST]
        self._lines.append((time, about, what, detail))

    def story(self, name: str) -> list[Line]:
        """What happened to `Pod/namespace/name` or `Kind/name`, oldest first."""
        return [
            Line(time, name, what, detail)
            for time, about, what, detail in self._lines
            if str(about) == name
        ]
