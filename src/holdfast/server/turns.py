"""Turns of the event loop, for work that many requests have at the same moment.

A change that a thousand clients watch is a thousand writes, all due at once: in that iteration of the
loop nobody else would be served until the last is done. Each takes a turn first; when the turns of an
iteration have lasted long enough, the others wait for the next.
"""

from __future__ import annotations

import asyncio

from holdfast.server.limits import SLICE_SECONDS


class Turns:
    def __init__(self) -> None:
        self._until: float | None = None
        """When the turns of this iteration are over; None before the first."""

    async def take(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if self._until is None:
                self._until = now + SLICE_SECONDS
                loop.call_soon(self._next)
            if now < self._until:
                return
            await asyncio.sleep(0)

    def _next(self) -> None:
        self._until = None
