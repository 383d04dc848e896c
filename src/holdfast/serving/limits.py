"""Resource limits of the API server of `holdfast up`, per client and in total.

SECURITY.md has the table for users. Where kube-apiserver has a limit, it is the same here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

MIB = 1024**2

# A request

BODY_BYTES = 3 * MIB
"""Limit of a request's body, as sent and again when decompressed; the same as the real API server's."""
REQUEST_LINE_BYTES = 32 * 1024
"""Method, path and query. Long selectors are legal; no client of Kubernetes comes near this."""
HEADER_BYTES = 16 * 1024
"""Limit of one header: tokens and lists of media types are longer than most servers expect."""
HEADERS = 64
"""With the two above, headers take at most 1 MiB, as with the real API server."""

# Time, in seconds

HANDSHAKE_SECONDS = 10.0
"""For TLS to be agreed on. On a busy machine it takes some tenths of a second."""
FAREWELL_SECONDS = 2.0
"""For a client to answer when TLS is ended; then the connection is cut."""
HEADER_SECONDS = 32.0
"""From the connection to the end of the first request's headers: the real API server's."""
IDLE_SECONDS = 90.0
"""Between two requests: the real API server's, and what Go's clients count on."""
REQUEST_SECONDS = 60.0
"""For a body to come: the real API server's timeout of a request."""
STALLED_SECONDS = 60.0
"""Seconds for which a client may read nothing. Longer than a laptop swaps."""
UNREAD_SECONDS = 1.0
"""How long the rest of a refused request is read, so that the client sees the answer."""
SWEEP_SECONDS = 1.0
"""Between two looks for connections that are to be cut."""

# Numbers

STRANGERS = 256
"""Connections that have not authenticated yet. One more cuts the oldest: honest clients authenticate in
milliseconds, so half-sent requests never keep them out."""
MEMBERS = 1000
"""Connections that have: 20 operators with a watch for each of 50 kinds. With TLS each takes 300 KiB,
and up to 200 KiB more for a client that does not read."""
WATCHES = 800
"""Watches among these, so that 200 connections are left for everything else."""
IN_FLIGHT = 600
"""Requests being answered, watches aside: the real API server's 400 reads and 200 writes."""
SPARE_FILES = 64
"""File descriptors never used for connections: the database, its journal, and what libraries open."""
BACKLOG = 512
"""Connections the kernel holds until they are accepted."""

# Memory

WATCHER_BYTES = 64 * MIB
"""Events that wait for one watcher. A list of 20,000 pods, all changed while it looked away."""
WATCHERS_BYTES = 128 * MIB
"""Events that wait for all watchers, each counted once. Beyond it the slowest are cut."""
RESPONSES_BYTES = 128 * MIB
"""Responses of more than a chunk that are being sent, likewise. Beyond it others wait to be encoded."""
WAIT_SECONDS = 30.0
"""How long a response waits for that before it is 429: half of the real API server's timeout."""
SENDING_RATE = 1 * MIB
"""Bytes a second that a client reads at least if others wait. Most are a hundred times faster."""
LAG_SECONDS = 1.0
"""How long a client may lag behind that rate before it is cut in favour of those that wait. Hundreds of
clients that do not read are then gone in less than `WAIT_SECONDS`."""
CHUNK_BYTES = 64 * 1024
"""Sent at a time of events or of a response, before it is asked whether the client keeps up."""
SEND_BUFFER_BYTES = 256 * 1024
"""The kernel's, for one connection. Left to itself it takes 4 MiB for a client that does not read."""
ENCODED_BYTES = 64 * MIB
"""Objects kept encoded to be sent again, as they take memory in both forms."""
TEMPLATE_BYTES = 64 * 1024
"""Limit of a cached pod template; 1,024 of these are kept."""

# The event loop, and the log

SLICE_SECONDS = 0.01
"""Work on one request before others are served."""
LOG_LINES_PER_MINUTE = 60
"""Log lines of one kind about errors of clients; those left out are counted."""


class RareLog:
    """A rate-limited log that clients cannot flood: some lines of each kind a minute, the rest
    counted.
    """

    def __init__(
        self,
        logger: Any = None,
        clock: Callable[[], float] = time.monotonic,
        per_minute: int = LOG_LINES_PER_MINUTE,
    ) -> None:
        self._logger = logger if logger is not None else structlog.get_logger()
        self._clock = clock
        self._per_minute = per_minute
        self._minutes: dict[str, tuple[int, int, int]] = {}
        """By kind of line: which minute it is, lines written in it, lines left out since."""

    def warning(self, event: str, **particulars: Any) -> None:
        left_out = self._may(event)
        if left_out is not None:
            self._logger.warning(event, **particulars, **left_out)

    def exception(self, event: str, error: Any, **particulars: Any) -> None:
        """With its traceback."""
        left_out = self._may(event)
        if left_out is not None:
            self._logger.error(event, exc_info=error, **particulars, **left_out)

    def _may(self, event: str) -> dict[str, int] | None:
        """Fields to log besides, or None not to log."""
        minute = int(self._clock() // 60)
        then, written, left_out = self._minutes.get(event, (minute, 0, 0))
        if then != minute:
            written = 0
        if written >= self._per_minute:
            self._minutes[event] = (minute, written, left_out + 1)
            return None
        self._minutes[event] = (minute, written + 1, 0)
        return {"left_out": left_out} if left_out else {}


class Turns:
    """Shares the event loop among work that is due at the same moment.

    A change watched by a thousand clients causes a thousand writes at once; without this, no other
    request would be served in that iteration of the loop. Each write takes a turn first; when the turns
    of an iteration have taken long enough, the rest wait for the next one.
    """

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
