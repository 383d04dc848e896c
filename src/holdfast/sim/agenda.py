"""What is yet to happen, in order of time and then of declaration."""

import heapq
from collections.abc import Callable

Order = tuple[int, int]
LAST: Order = (2, 0)
"""After everything the documents say of that time."""


class Agenda:
    def __init__(self) -> None:
        self._heap: list[tuple[float, Order, int, Callable[[], None]]] = []
        self._entered = 0

    def add(self, t: float, what: Callable[[], None], order: Order = LAST) -> None:
        self._entered += 1
        heapq.heappush(self._heap, (t, order, self._entered, what))

    def next_time(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def take(self, t: float) -> Callable[[], None] | None:
        """The next thing due by then."""
        if not self._heap or self._heap[0][0] > t:
            return None
        return heapq.heappop(self._heap)[3]
