"""The clock of a local cluster, and the timers of its components."""

import time
from collections.abc import Callable
from typing import Protocol

from holdfast.api.raw_objects import Key
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.timer_queue import TimerQueue

_DIGITS = 6


class LocalClock(Protocol):
    @property
    def t(self) -> float:
        """The time of timers, in seconds."""

    def epoch(self) -> float:
        """The time of the scheduler: seconds since 1970."""

    def stamp(self, after: float = 0.0) -> str:
        """Now, or some seconds later, as objects state it."""


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


class VirtualClock:
    """Stands still until it is advanced, and never goes back. The scheduler and the objects use Unix
    time; timelines and scenarios count seconds from the start, and only this class converts between the
    two."""

    def __init__(self, start: float) -> None:
        self.t = 0.0
        self._start = start
        self._epoch = start
        self._stamp = format_time(start)

    def advance(self, t: float) -> None:
        self.t = max(self.t, t)
        self._epoch = self._start + self.t
        self._stamp = format_time(self._epoch)

    def advance_to_timer(self, due: float) -> None:
        """Advances to a timer of the scheduler. What the core is then told as the time is no
        earlier than that, whatever rounding does to it, so that the timer has run out."""
        self.advance(self.since_start(due))
        self._epoch = max(self._epoch, due)

    def epoch(self) -> float:
        """Now, as the core counts."""
        return self._epoch

    def stamp(self, after: float = 0.0) -> str:
        """Now, or some seconds later, as a timestamp of objects."""
        return format_time(self._start + self.t + after) if after else self._stamp

    def since_start(self, epoch: float) -> float:
        return round(epoch - self._start, _DIGITS)


Order = tuple[int, int]
ENDS, STATED_FIRST, STATED, FOLLOWING = range(4)
"""The first part of an order; the second is the position of the scenario document."""

Timer = tuple[Order, int]
"""An order, and the number of timers set before."""


class ComponentTimers:
    """The timers of a cluster's components, ordered by time, then by order, then as they were set.

    At one moment, ends and deletions of existing objects come first, then what the documents state,
    then its direct consequences. A timer with an owner is cancelled when the owner is deleted.
    """

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self.place = 0
        """The position of the document whose objects are being created; 0 if there is none."""
        self._places: dict[Key, int] = {}
        self._queue: TimerQueue[Timer] = TimerQueue()
        self._actions: dict[Timer, tuple[Callable[[], None], Key | None]] = {}
        """The action and the owner of each timer."""
        self._owned: dict[Key, dict[Timer, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        """The number of entries in the queue, including outdated ones."""
        return len(self._queue)

    def created(self, key: Key) -> None:
        """An object was created from the current document."""
        if self.place:
            self._places[key] = self.place

    def when_due(self, key: Key, t: float, action: Callable[[], None]) -> Timer:
        """Sets a timer that is cancelled if the object is deleted before it is due."""
        now = self._clock.t
        rank = ENDS if t > now else FOLLOWING
        return self.add(max(t, now), action, (rank, self._places.get(key, 0)), owner=key)

    def add(
        self, t: float, action: Callable[[], None], order: Order = (STATED, 0), owner: Key | None = None
    ) -> Timer:
        self._count += 1
        timer = (order, self._count)
        self._queue.set(timer, t)
        self._actions[timer] = action, owner
        if owner is not None:
            self._owned.setdefault(owner, {})[timer] = None
        return timer

    def cancel(self, timer: Timer) -> None:
        """Does nothing if the timer is over."""
        if timer in self._actions:
            self._queue.set(timer, None)
            self._end(timer)

    def forget(self, owner: Key) -> None:
        """Cancels the timers of an owner."""
        self._places.pop(owner, None)
        for timer in list(self._owned.get(owner, ())):
            self.cancel(timer)

    def next_time(self) -> float | None:
        return self._queue.next_time()

    def take(self, t: float) -> Callable[[], None] | None:
        """The action of the first timer that is due by then."""
        timer = self._queue.pop(t)
        return self._end(timer) if timer is not None else None

    def _end(self, timer: Timer) -> Callable[[], None]:
        action, owner = self._actions.pop(timer)
        if owner is not None:
            timers = self._owned[owner]
            del timers[timer]
            if not timers:
                del self._owned[owner]
        return action
