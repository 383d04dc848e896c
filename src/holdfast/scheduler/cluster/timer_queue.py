"""When things are due, by key.

A timer that is set anew or called off leaves its old entry behind, which may be due in years: entries
that no longer count are dropped as soon as they make up half of what is kept.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

_FEW = 1000


class TimerQueue(Generic[K]):
    """Keys of one moment come in their own order."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, K]] = []
        self._due: dict[K, float] = {}
        self._tidy_at = _FEW

    def __len__(self) -> int:
        """Entries, with those that no longer count."""
        return len(self._heap)

    def set(self, key: K, due: float | None) -> None:
        """The key is due then, and not at any time set before; never if that is None."""
        if due is None:
            self._due.pop(key, None)
        elif self._due.get(key) != due:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            if len(self._heap) > self._tidy_at:
                self._tidy()

    def next_time(self) -> float | None:
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: float) -> K | None:
        """The first key that is due by now, which then has no timer any more."""
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
