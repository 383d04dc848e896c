"""Bytes that wait to be sent to clients, counted over all of them.

A client that does not read keeps what it asked for in memory. It is sent in pieces, of which a
connection buffers a few at most (`limits.CHUNK_BYTES`), and what is not sent yet is counted here.
`UnsentBytes` counts, `ResponseBudget` bounds the responses; watches bound their events themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from holdfast.serving.limits import (
    LAG_SECONDS,
    RESPONSES_BYTES,
    SENDING_RATE,
    SWEEP_SECONDS,
    WAIT_SECONDS,
)


class UnsentBytes:
    """Counts what is held for clients. Bytes that several clients wait for are counted once, since they
    are one object in memory."""

    def __init__(self) -> None:
        self.total = 0
        self._holders: dict[int, int] = {}
        """The number of holders of each object, by its identity: it exists as long as one holds it."""
        self._by_key: dict[Hashable, bytes] = {}
        self._keys: dict[int, Hashable] = {}

    def hold(self, data: bytes, key: Hashable = None) -> None:
        """Until it is released, `find` returns it for the key, if there is one."""
        holders = self._holders.get(id(data), 0)
        self._holders[id(data)] = holders + 1
        if holders:
            return
        self.total += len(data)
        if key is not None and key not in self._by_key:
            self._by_key[key] = data
            self._keys[id(data)] = key

    def release(self, data: bytes) -> None:
        holders = self._holders[id(data)] - 1
        if holders:
            self._holders[id(data)] = holders
            return
        del self._holders[id(data)]
        self.total -= len(data)
        key = self._keys.pop(id(data), None)
        if key is not None:
            del self._by_key[key]

    def find(self, key: Hashable) -> bytes | None:
        return self._by_key.get(key)


class Sending:
    """A response that is being sent, and how far its client lags behind."""

    def __init__(self, size: int, cut: Callable[[], None], clock: Callable[[], float]) -> None:
        self.size = size
        self.cut = cut
        """Ends the connection."""
        self._clock = clock
        self._sent = 0
        self._blocked = 0.0
        self._since: float | None = None

    @contextmanager
    def piece(self, size: int) -> Iterator[None]:
        """While a piece is written and the client makes space for the next one."""
        self._since = self._clock()
        yield
        self._blocked += self._clock() - self._since
        self._since = None
        self._sent += size

    def lag(self) -> float:
        """Seconds the client has kept the server waiting beyond what it may take for what it read."""
        blocked = self._blocked
        if self._since is not None:
            blocked += self._clock() - self._since
        return blocked - self._sent / SENDING_RATE


class ResponseBudget:
    """Bounds the responses that are being sent, all together.

    While they are too many, further ones are not encoded: they wait for their turn. Clients that are
    slower than `SENDING_RATE` are cut if others wait for them, so that clients that do not read keep
    no others from reading. The response to a write cannot wait: the write is made, and a request
    that waits takes as much memory as its response.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.unsent = UnsentBytes()
        self._clock = clock
        self._sending: dict[Sending, None] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken = False
        """Whether one that waited is about to encode its response. The next is woken afterwards: when
        many clients are cut, the responses in their place must not all be encoded in one iteration."""

    @property
    def full(self) -> bool:
        return self.unsent.total >= RESPONSES_BYTES

    @property
    def crowded(self) -> bool:
        """Whether another response has to wait."""
        return self.full or bool(self._waiting)

    async def space(self) -> bool:
        """Waits until another response may be encoded, first come, first served; False if that takes
        too long."""
        if not self.crowded:
            return True
        loop, until = asyncio.get_running_loop(), self._clock() + WAIT_SECONDS
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        self._wake_next()
        try:
            while True:
                if self._waiting and self._waiting[0] is turn:
                    self.cut_slow()
                await asyncio.wait((turn,), timeout=SWEEP_SECONDS)
                if turn.done() and not self.full:
                    return True
                if self._clock() >= until:
                    return False
                if turn.done():  # another response was held in the meantime
                    self._woken = False
                    turn = loop.create_future()
                    self._waiting.appendleft(turn)
        finally:
            if not turn.done():
                self._waiting.remove(turn)
            else:
                # By then the caller holds its response, or has given up.
                loop.call_soon(self._continue)

    def cut_slow(self) -> None:
        """Cuts the clients that are too slow, since others wait."""
        for each in [each for each in self._sending if each.lag() > LAG_SECONDS]:
            self._cut(each)

    def make_space(self) -> None:
        """Cuts the slowest clients, as many as are too many, for a response that cannot wait."""
        excess = self.unsent.total - RESPONSES_BYTES
        slow = [each for each in self._sending if each.lag() > 0] if excess >= 0 else []
        for each in sorted(slow, key=Sending.lag, reverse=True):
            if excess < 0:
                return
            excess -= each.size
            self._cut(each)

    def _cut(self, sending: Sending) -> None:
        del self._sending[sending]
        sending.cut()

    @contextmanager
    def sending(self, body: bytes, cut: Callable[[], None]) -> Iterator[Sending]:
        sending = Sending(len(body), cut, self._clock)
        self.unsent.hold(body)
        self._sending[sending] = None
        try:
            yield sending
        finally:
            self._sending.pop(sending, None)
            self.unsent.release(body)
            self._wake_next()

    def _continue(self) -> None:
        self._woken = False
        self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting and not self._woken and not self.full:
            self._woken = True
            self._waiting.popleft().set_result(None)
