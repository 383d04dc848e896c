"""Who is told of changes, and when.

*Observers* are part of the cluster: all they do is write to the same store, and since the journal
keeps the order of writes, a crash that takes back what they saw takes back what they did too. They are
told at once. *Subscribers* tell the outside, so they are told only what is durable.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

from holdfast.store.errors import StoreFailed
from holdfast.store.objects import Change

Listener = Callable[[Change], None]


class Listeners:
    """Tells everyone of one change before anyone of the next: a listener may itself cause one. One that
    fails keeps no other from being told; what it raised is raised in the end."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._untold: deque[Change] = deque()
        self._telling = False

    def add(self, listener: Listener) -> Callable[[], None]:
        # Each time another function, so that one that listens twice can stop once.
        def tell(change: Change) -> None:
            listener(change)

        self._listeners = (*self._listeners, tell)

        def stop() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not tell)

        return stop

    def tell(self, change: Change) -> None:
        if not self._listeners:
            return
        self._untold.append(change)
        if self._telling:
            return
        self._telling = True
        failed: Exception | None = None
        try:
            while self._untold:
                told = self._untold.popleft()
                for listener in self._listeners:
                    try:
                        listener(told)
                    except Exception as error:
                        failed = failed or error
        finally:
            self._telling = False
        if failed is not None:
            raise failed


class Waiting:
    """Those who wait for a revision to be durable."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._entered = 0

    async def until(self, revision: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entered += 1
        heapq.heappush(self._heap, (revision, self._entered, future))
        await future

    def reached(self, revision: int) -> None:
        while self._heap and self._heap[0][0] <= revision:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: StoreFailed) -> None:
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(error)
        self._heap.clear()
