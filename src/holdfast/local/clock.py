"""The clock of a local cluster, and the timer queue of its components."""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.api.times import format_time
from holdfast.local.store.objects import Key


class LocalClock(Protocol):
    @property
    def t(self) -> float:
        """As agendas count, in seconds."""

    def epoch(self) -> float:
        """As the core counts: seconds since 1970."""

    def stamp(self, after: float = 0.0) -> str:
        """Now, or some seconds later, as objects say it."""


class RealClock:
    """The machine's clock. When it is set back, it stands still until it catches up."""

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


Order = tuple[int, int]
ENDS, STATED_FIRST, STATED, FOLLOWING = range(4)
"""The first part of an order; the second is the place of the document."""
_FEW = 1000


@dataclass(slots=True, eq=False)
class TimerEntry:
    what: Callable[[], None] | None
    """None once it is called off."""
    owner: Key | None = None


class TimerQueue:
    """Due work, ordered by time, then by declaration.

    At one moment, ends and deletions of existing objects come first, then what the documents state,
    then its direct consequences.
    """

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self.place = 0
        """The document being dealt with."""
        self._places: dict[Key, int] = {}
        self._heap: list[tuple[float, Order, int, TimerEntry]] = []
        self._entered = 0
        self._tidy_at = _FEW
        self._owned: dict[Key, list[TimerEntry]] = {}

    def __len__(self) -> int:
        """Entries, with those that were called off."""
        return len(self._heap)

    def created(self, key: Key) -> None:
        """An object has come to be, by the document being dealt with."""
        if self.place:
            self._places[key] = self.place

    def when_due(self, key: Key, t: float, what: Callable[[], None]) -> TimerEntry:
        """Plans something for an object, which does not happen if the object is gone by then."""
        now = self._clock.t
        rank = ENDS if t > now else FOLLOWING
        return self.add(max(t, now), what, (rank, self._places.get(key, 0)), owner=key)

    def add(
        self, t: float, what: Callable[[], None], order: Order = (STATED, 0), owner: Key | None = None
    ) -> TimerEntry:
        """What an owner is given for is called off with `forget`."""
        self._entered += 1
        entry = TimerEntry(what, owner)
        heapq.heappush(self._heap, (t, order, self._entered, entry))
        if owner is not None:
            self._owned.setdefault(owner, []).append(entry)
        if len(self._heap) > self._tidy_at:
            self._tidy()
        return entry

    def _tidy(self) -> None:
        """What was called off may be due in years, and what an owner had may be long done."""
        self._heap = [each for each in self._heap if each[3].what is not None]
        heapq.heapify(self._heap)
        self._owned = {}
        for *_, entry in self._heap:
            if entry.owner is not None:
                self._owned.setdefault(entry.owner, []).append(entry)
        self._tidy_at = max(_FEW, 2 * len(self._heap))

    def forget(self, owner: Key) -> None:
        self._places.pop(owner, None)
        for entry in self._owned.pop(owner, ()):
            entry.what = None

    def next_time(self) -> float | None:
        heap = self._heap
        while heap and heap[0][3].what is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, t: float) -> Callable[[], None] | None:
        """The next thing due by then."""
        due = self.next_time()
        if due is None or due > t:
            return None
        entry = heapq.heappop(self._heap)[3]
        what, entry.what = entry.what, None
        return what
