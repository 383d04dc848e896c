"""One write to the server, past the fence."""

import asyncio
import math
from typing import Any

import msgspec

from holdfast.backends.kubernetes.errors import ApiError, CredentialsError, Unreachable
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.backoff import Backoff
from holdfast.backends.kubernetes.http.client import JSON, Client, Limits, Request
from holdfast.backends.kubernetes.http.wire import ON_THE_WAY

WRITE_TIMEOUT = 10.0
"""How long an answer is waited for at most; with an election, the server is asked not to carry a write
out later than this either."""
_SERVER_TIMEOUT = 60.0
"""After which a server gives a request up if it is not asked to do so earlier."""
_SHORTEST = 1.0


class Sender:
    def __init__(self, client: Client, fence: Fence) -> None:
        self._client = client
        self._fence = fence
        self._unsure_until = -math.inf
        """Until when a write that was sent may still be carried out, of which it is not known."""

    def backoff(self, first: float, most: float) -> Backoff:
        return self._client.backoff(first, most)

    async def write(self, method: str, path: str, body: Any, content_type: str = JSON) -> bytes:
        """Raises Deposed, ApiError, Unreachable or CredentialsError."""
        content = msgspec.json.encode(body) if body is not None else b""
        request = Request(method, path, content, content_type, WRITE_TIMEOUT, self._limits)
        try:
            return await self._client.send(request)
        except (ApiError, Unreachable) as error:
            if may_be_carried_out(error):
                self._unsure_until = asyncio.get_running_loop().time() + self.latest
            raise

    def _limits(self) -> Limits:
        """For how long a write that is sent now may be carried out. Raises Deposed."""
        self._fence.check()
        alone_for = self._fence.alone_for()
        if alone_for == math.inf:
            return Limits()
        allowed = int(min(WRITE_TIMEOUT, max(_SHORTEST, alone_for - ON_THE_WAY)))
        return Limits(f"?timeout={allowed}s", allowed + ON_THE_WAY)

    async def sure(self, patience: float) -> bool:
        """Waits until nothing that was sent can be carried out any more without an answer. False, at
        once, if that would take too long."""
        left = self._unsure_until - asyncio.get_running_loop().time()
        if left > patience:
            return False
        await asyncio.sleep(max(0.0, left))
        return True

    @property
    def latest(self) -> float:
        """So many seconds after it was sent a write that is not carried out will not be any more."""
        bounded = self._fence.alone_for() < math.inf
        return ON_THE_WAY + (WRITE_TIMEOUT if bounded else _SERVER_TIMEOUT)

    async def read(self, path: str) -> bytes:
        return await self._client.send(Request("GET", path, timeout=WRITE_TIMEOUT))


def may_be_carried_out(error: ApiError | Unreachable) -> bool:
    """Whether the write may still be, though it was answered like this or not at all."""
    return error.status >= 500 if isinstance(error, ApiError) else error.sent


Passing = (ApiError, Unreachable, CredentialsError)
"""What may be different next time; an ApiError only if it says so."""


def wait_after(error: Exception, backoff: Backoff) -> float | None:
    """How long to wait before trying again; None if that is of no use."""
    if isinstance(error, ApiError):
        return backoff.next(error.retry_after) if error.is_passing else None
    return backoff.next()


def is_conflict(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status == 409
