"""The write queue: lanes by priority, order per object, retries, and the fence before every write."""

import asyncio
import enum
import math
from collections import deque
from collections.abc import Awaitable, Callable, Container, Hashable
from typing import Any

import msgspec

from holdfast.kube.client import JSON, Client, Request, RequestLimits
from holdfast.kube.connections import ON_THE_WAY
from holdfast.kube.errors import ApiError, CredentialsError, LeadershipLost, Unreachable
from holdfast.kube.flow_control import Backoff, RateLimit
from holdfast.kube.leader_election import Fence

SLOTS = 32
"""Writes in flight at once."""
FEW = 4
"""Of these, writes of the last lane while other lanes have work, since they would delay those."""


class Lane(enum.IntEnum):
    BIND = 0
    STATUS = 1
    EVENT = 2


WriteResult = None | float | asyncio.Future[None]
"""Done; or again after so many seconds; or again when the future is done."""
Write = Callable[[], Awaitable[WriteResult]]
"""Sends a write, or its next step; called again until its result is None."""
Key = Hashable
Failed = Callable[[BaseException], None]


class WriteQueue:
    """Serves the first lane that has a write.

    Writes of one object go out in order, one at a time; writes of different objects only wait for a
    free slot. A write that has to wait (for a back-off, or for an event) gives its slot back.
    """

    def __init__(self, failed: Failed, limit: RateLimit | None = None, slots: int = SLOTS) -> None:
        self._failed = failed
        self._limit = limit or RateLimit()
        self._slots = slots
        self._lanes: dict[Lane, deque[tuple[Key, Write]]] = {lane: deque() for lane in Lane}
        self._chains: dict[Key, deque[tuple[Lane, Write]]] = {}
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

    def submit(self, lane: Lane, key: Key, write: Write) -> None:
        if self._closed:
            return
        chain = self._chains.get(key)
        if chain is not None:
            chain.append((lane, write))
            return
        self._chains[key] = deque()
        self._empty.clear()
        self._stand(lane, key, write)
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
        """Drops the writes that were not sent."""
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

    def _stand(self, lane: Lane, key: Key, write: Write) -> None:
        self._lanes[lane].append((key, write))
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
            key, write = self._lanes[lane].popleft()
            task = asyncio.create_task(self._run(lane, key, write))
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

    async def _run(self, lane: Lane, key: Key, write: Write) -> None:
        result: WriteResult = None
        try:
            result = await write()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)
        if self._closed:
            return
        if result is None:
            self._next_of(key)
        elif isinstance(result, asyncio.Future):
            result.add_done_callback(lambda _: self._again(lane, key, write))
        else:
            self._after(result, lane, key, write)

    def _after(self, wait: float, lane: Lane, key: Key, write: Write) -> None:
        def come() -> None:
            self._timers.discard(timer)
            self._again(lane, key, write)

        timer = asyncio.get_running_loop().call_later(wait, come)
        self._timers.add(timer)

    def _again(self, lane: Lane, key: Key, write: Write) -> None:
        if not self._closed:
            self._stand(lane, key, write)
            self._pump()

    def _next_of(self, key: Key) -> None:
        chain = self._chains[key]
        if chain:
            lane, write = chain.popleft()
            self._stand(lane, key, write)
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


WRITE_TIMEOUT = 10.0
"""How long an answer is waited for at most; with an election, the server is asked not to carry a write
out later than this either."""
_SERVER_TIMEOUT = 60.0
"""After which a server gives a request up if it is not asked to do so earlier."""
_SHORTEST = 1.0


class ApiWriter:
    """Sends one write to the server if the fence allows it."""

    def __init__(self, client: Client, fence: Fence) -> None:
        self._client = client
        self._fence = fence
        self._unsure_until = -math.inf
        """The time until which the server may still execute an unanswered write."""

    def backoff(self, first: float, most: float) -> Backoff:
        return self._client.backoff(first, most)

    async def write(self, method: str, path: str, body: Any, content_type: str = JSON) -> bytes:
        """`body` is bytes, or what they encode as JSON. Raises LeadershipLost, ApiError, Unreachable or
        CredentialsError."""
        content = (
            body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        )
        request = Request(method, path, content, content_type, WRITE_TIMEOUT, self._limits)
        try:
            return await self._client.send(request)
        except (ApiError, Unreachable) as error:
            if may_be_carried_out(error):
                self._unsure_until = asyncio.get_running_loop().time() + self.latest
            raise

    def _limits(self) -> RequestLimits:
        """For how long a write that is sent now may be carried out. Raises LeadershipLost."""
        self._fence.check()
        exclusive_for = self._fence.exclusive_for()
        if exclusive_for == math.inf:
            return RequestLimits()
        allowed = int(min(WRITE_TIMEOUT, max(_SHORTEST, exclusive_for - ON_THE_WAY)))
        return RequestLimits(f"?timeout={allowed}s", allowed + ON_THE_WAY)

    async def sure(self, patience: float) -> bool:
        """Waits until the server can no longer execute unanswered writes. False, at
        once, if that would take too long."""
        left = self._unsure_until - asyncio.get_running_loop().time()
        if left > patience:
            return False
        await asyncio.sleep(max(0.0, left))
        return True

    @property
    def latest(self) -> float:
        """Seconds after which the server no longer executes a write that was sent."""
        bounded = self._fence.exclusive_for() < math.inf
        return ON_THE_WAY + (WRITE_TIMEOUT if bounded else _SERVER_TIMEOUT)

    async def read(self, path: str, accept: str = JSON) -> bytes:
        return await self._client.send(Request("GET", path, timeout=WRITE_TIMEOUT, accept=accept))


def may_be_carried_out(error: ApiError | Unreachable) -> bool:
    """Whether the server may still carry out a write that failed with this error."""
    return error.status >= 500 if isinstance(error, ApiError) else error.sent


TRANSIENT = (ApiError, Unreachable, CredentialsError)
"""Errors that a retry may resolve; an ApiError only if `is_transient`."""


def wait_after(error: Exception, backoff: Backoff) -> float | None:
    """How long to wait before a retry; None if a retry is useless."""
    if isinstance(error, ApiError):
        return backoff.next(error.retry_after) if error.is_transient else None
    return backoff.next()


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Meta


def version_of(answer: bytes) -> str:
    """The resourceVersion of the object that an answer has; empty if it has none."""
    try:
        return msgspec.json.decode(answer, type=_Versioned).metadata.resource_version
    except msgspec.DecodeError:
        return ""


def is_conflict(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status == 409


_ATTEMPTS = 8


def persistent(
    api: ApiWriter,
    send: Callable[[], Awaitable[object]],
    refused: Callable[[Exception], None],
    settled: Container[int] = (),
    final: Container[int] = (),
) -> Write:
    """A write that is retried while that may help; a refusal is fed to the scheduler if it never
    succeeds.

    A `settled` status means that nothing is left to write; a `final` status is not retried.
    """
    backoff = api.backoff(0.2, 10.0)

    async def write() -> WriteResult:
        try:
            await send()
        except LeadershipLost:
            return None
        except TRANSIENT as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status in settled:
                return None
            wait = wait_after(error, backoff)
            if wait is not None and status not in final and backoff.tries < _ATTEMPTS:
                return wait
            refused(error)
        return None

    return write
