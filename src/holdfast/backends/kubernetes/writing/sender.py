"""One write to the server, past the fence."""

from typing import Any

import msgspec

from holdfast.backends.kubernetes.errors import ApiError, CredentialsError, Unreachable
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.backoff import Backoff
from holdfast.backends.kubernetes.http.client import JSON, Client, Request

WRITE_TIMEOUT = 10.0
"""Shorter than it takes another to become the leader after our last renewal."""


class Sender:
    def __init__(self, client: Client, fence: Fence) -> None:
        self._client = client
        self._fence = fence

    async def write(self, method: str, path: str, body: Any, content_type: str = JSON) -> bytes:
        """Raises Deposed, ApiError, Unreachable or CredentialsError."""
        request = Request(
            method,
            path,
            msgspec.json.encode(body) if body is not None else b"",
            content_type,
            WRITE_TIMEOUT,
            self._fence.check,
        )
        return await self._client.send(request)

    async def read(self, path: str) -> bytes:
        return await self._client.send(Request("GET", path, timeout=WRITE_TIMEOUT))


Passing = (ApiError, Unreachable, CredentialsError)
"""What may be different next time; an ApiError only if it says so."""


def wait_after(error: Exception, backoff: Backoff) -> float | None:
    """How long to wait before trying again; None if that is of no use."""
    if isinstance(error, ApiError):
        return backoff.next(error.retry_after) if error.is_passing else None
    return backoff.next()


def is_conflict(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status == 409
