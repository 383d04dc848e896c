"""A queue of timers by key.

A timer that is set again or cancelled leaves an outdated entry in the heap, which may be due in years.
Outdated entries are removed when they make up half of the heap.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

_FEW = 1000


class TimerQueue(Generic[K]):
    """At most one timer per key. Keys that are due at the same time are ordered by key."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, K]] = []
        self._due: dict[K, float] = {}
        self._tidy_at = _FEW

    def __len__(self) -> int:
        """The number of entries, including outdated ones."""
        return len(self._heap)

    def set(self, key: K, due: float | None) -> None:
        """Sets the timer of a key, replacing the one before; None cancels it."""
        if due is None:
            self._due.pop(key, None)
        elif self._due.get(key) != due:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            if len(self._heap) > self._tidy_at:
                self._tidy()

    def next_time(self) -> float | None:
        """When the first timer is due; None if there is none."""
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: float) -> K | None:
        """Removes and returns the first key that is due by now; None if there is none."""
        due = self.next_time()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[1]
        del self._due[key]
        return key

    def _tidy(self) -> None:
        self._heap = [(due, key) for key, due in self._due.items()]
        heapq.heapify(self._heap)
        self._tidy_at = max(_FEW, 2 * len(self._heap))
