"""What goes out when.

Writes stand in lanes; the first lane that has one is served. Writes about one object go out in the
order they were made, one at a time; those about different objects never wait for each other, but for a
free slot. A write that must wait (for a back-off to end, for something to happen) gives its slot back.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

from holdfast.backends.kubernetes.http.rate import RateLimit

SLOTS = 32
"""So many writes are on their way at once."""
FEW = 4
"""So many of them may be of the last lane while others are at work: they would slow those down."""


class Lane(enum.IntEnum):
    BIND = 0
    STATUS = 1
    EVENT = 2


Outcome = None | float | asyncio.Future[None]
"""Done; or again after so many seconds; or again when the future is done."""
Job = Callable[[], Awaitable[Outcome]]
Key = Hashable
Failed = Callable[[BaseException], None]


class WriteQueue:
    def __init__(self, failed: Failed, limit: RateLimit | None = None, slots: int = SLOTS) -> None:
        self._failed = failed
        self._limit = limit or RateLimit()
        self._slots = slots
        self._lanes: dict[Lane, deque[tuple[Key, Job]]] = {lane: deque() for lane in Lane}
        self._chains: dict[Key, deque[tuple[Lane, Job]]] = {}
        """Objects that have a write standing in a lane, on its way or waiting; and what follows it."""
        self._running: dict[asyncio.Task[None], Lane] = {}
        self._events_running = 0
        self._timers: set[asyncio.TimerHandle] = set()
        self._later: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._still = asyncio.Event()
        self._still.set()
        self._closed = False

    def __len__(self) -> int:
        return sum(1 + len(chain) for chain in self._chains.values())

    def length(self, lane: Lane) -> int:
        """How many stand in the lane, ready to go."""
        return len(self._lanes[lane])

    def submit(self, lane: Lane, key: Key, job: Job) -> None:
        if self._closed:
            return
        chain = self._chains.get(key)
        if chain is not None:
            chain.append((lane, job))
            return
        self._chains[key] = deque()
        self._empty.clear()
        self._stand(lane, key, job)
        self._pump()

    async def drain(self, patience: float) -> bool:
        """Waits until all is written; False if that took longer than it may."""
        try:
            async with asyncio.timeout(patience):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def finish(self, patience: float) -> bool:
        """Starts nothing more; waits for what has been sent. False if that took longer than it may."""
        self._closed = True
        if not self._running:
            return True
        _, waiting = await asyncio.wait(self._running, timeout=patience)
        return not waiting

    async def still(self) -> None:
        """Returns when no write goes on by itself: those there are wait for something to happen."""
        await self._still.wait()

    async def close(self) -> None:
        """Whatever is not written yet is not written at all."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        if self._later is not None:
            self._later.cancel()
        for lane in self._lanes.values():
            lane.clear()
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stand(self, lane: Lane, key: Key, job: Job) -> None:
        self._lanes[lane].append((key, job))
        self._still.clear()

    def _pump(self) -> None:
        while len(self._running) < self._slots:
            lane = self._next_lane()
            if lane is None:
                return
            if (wait := self._limit.take()) > 0:
                if self._later is None:
                    loop = asyncio.get_running_loop()
                    self._later = loop.call_later(wait, self._pump_again)
                return
            key, job = self._lanes[lane].popleft()
            task = asyncio.create_task(self._run(lane, key, job))
            self._running[task] = lane
            self._events_running += lane is Lane.EVENT
            task.add_done_callback(self._ended)

    def _pump_again(self) -> None:
        self._later = None
        self._pump()

    def _next_lane(self) -> Lane | None:
        for lane in (Lane.BIND, Lane.STATUS):
            if self._lanes[lane]:
                return lane
        others = len(self._running) - self._events_running
        if self._lanes[Lane.EVENT] and (not others or self._events_running < FEW):
            return Lane.EVENT
        return None

    async def _run(self, lane: Lane, key: Key, job: Job) -> None:
        outcome: Outcome = None
        try:
            outcome = await job()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)
        if self._closed:
            return
        if outcome is None:
            self._next_of(key)
        elif isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(lambda _: self._again(lane, key, job))
        else:
            self._after(outcome, lane, key, job)

    def _after(self, wait: float, lane: Lane, key: Key, job: Job) -> None:
        def come() -> None:
            self._timers.discard(timer)
            self._again(lane, key, job)

        timer = asyncio.get_running_loop().call_later(wait, come)
        self._timers.add(timer)

    def _again(self, lane: Lane, key: Key, job: Job) -> None:
        if not self._closed:
            self._stand(lane, key, job)
            self._pump()

    def _next_of(self, key: Key) -> None:
        chain = self._chains[key]
        if chain:
            lane, job = chain.popleft()
            self._stand(lane, key, job)
        else:
            del self._chains[key]
            if not self._chains:
                self._empty.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._events_running -= self._running.pop(task) is Lane.EVENT
        if not self._closed:
            self._pump()
        if not (self._running or self._timers or any(self._lanes.values())):
            self._still.set()
