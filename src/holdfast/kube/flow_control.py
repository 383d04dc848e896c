"""Clocks, back-off, client-side rate limiting, and tracking of whether the server is reachable."""

import asyncio
import os
import random
import socket
import ssl
import time
from collections.abc import Callable

import aiohttp

from holdfast.kube.errors import NoConnection, Unreachable


class Backoff:
    """Exponential back-off with jitter: wait k is `first * 2^k`, at most `most`, times a factor of 1
    to 2.
    """

    def __init__(self, rng: random.Random, first: float = 0.5, most: float = 30.0) -> None:
        self._first = first
        self._most = most
        self._rng = rng
        self.tries = 0

    def next(self, at_least: float | None = None) -> float:
        """The next wait, no shorter than the server's Retry-After."""
        wait = min(self._first * 2.0 ** min(self.tries, 30), self._most) * (1 + self._rng.random())
        self.tries += 1
        return max(wait, at_least or 0.0)

    def reset(self) -> None:
        self.tries = 0


class RateLimit:
    """A token bucket that fills at `qps` and holds `burst`. A negative `qps` means no limit."""

    def __init__(self, qps: float = -1.0, burst: int = 1) -> None:
        self._qps = qps
        self._burst = float(max(burst, 1))
        self._left = self._burst
        self._filled_at: float | None = None

    def take(self) -> float:
        """0 if one more request may be made now, which then counts; else when to ask again."""
        if self._qps < 0:
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._filled_at is not None:
            self._left = min(self._burst, self._left + (now - self._filled_at) * self._qps)
        self._filled_at = now
        if self._left >= 1.0 - 1e-9:
            self._left -= 1.0
            return 0.0
        return max((1.0 - self._left) / self._qps, 0.001)


CUT = "the connection was interrupted"
LATE = "no response in time"

Report = Callable[[str, str], None]
"""Called with `unreachable` or `back`, and the details."""


class Reach:
    """Tracks from each request whether the server is reachable.

    Waiters are woken when the server is back, so that they do not sit out a long back-off.
    """

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._away = False
        self._back = asyncio.Event()

    def answered(self) -> None:
        if not self._away:
            return
        self._away = False
        self._back.set()
        self._back = asyncio.Event()
        if self._report is not None:
            self._report("back", "")

    def failed(self, error: Unreachable) -> None:
        if self._away or not isinstance(error, NoConnection):
            return
        self._away = True
        if self._report is not None:
            self._report("unreachable", str(error))

    async def wait(self, seconds: float) -> bool:
        """Returns after that time, or when a server that was away is back: then True."""
        back = self._back
        if not self._away:
            await asyncio.sleep(seconds)
            return False
        try:
            async with asyncio.timeout(seconds):
                await back.wait()
        except TimeoutError:
            return False
        return True


def unreachable(error: BaseException) -> Unreachable:
    """The Unreachable error for an exception of the HTTP library."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return NoConnection(_words(error.certificate_error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return NoConnection(_words(error.os_error))
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NoConnection("no connection in time")
    return Unreachable(_words(error))


def not_connected(error: OSError | TimeoutError) -> NoConnection:
    late = isinstance(error, TimeoutError) and not error.errno
    return NoConnection("no connection in time" if late else _words(error))


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return LATE
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return CUT
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return CUT
    if isinstance(error, OSError) and error.errno:
        known = isinstance(error, socket.gaierror | ssl.SSLError)
        text = error.strerror if known else os.strerror(error.errno)
        return (text or str(error)).lower()
    return str(error) or type(error).__name__


# Clocks: monotonic elapsed time, and wall-clock time that never goes back


_TOLERATED = 1.0
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock:
    """`elapsed` continues while the machine is suspended, so that an expired lease is noticed on
    resume.

    `now` is the Unix time and never goes back: it ignores a wall clock that is set back and follows one
    that is set forward.
    """

    def __init__(self) -> None:
        self._offset = self.wall() - self.elapsed()

    def elapsed(self) -> float:
        return time.clock_gettime(_ELAPSED) if _ELAPSED is not None else time.monotonic()

    def now(self) -> float:
        elapsed = self.elapsed()
        ahead = self.wall() - elapsed - self._offset
        if ahead > _TOLERATED:
            self._offset += ahead
        return elapsed + self._offset

    def wall(self) -> float:
        """The wall clock time, for timestamps of objects."""
        return time.time()
