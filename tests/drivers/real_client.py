"""Requests to a real server whose outcome is waited for, in the scenario's time.

Two ways lead there: `Requests`, for users and for the cluster's own parts, waits for each answer;
`SeenClient` is the scheduler's own client, overheard.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from drivers.player import JSON
from drivers.watches import Scope, Stream, Times, Watches
from holdfast.kube.client import Client, Request
from holdfast.kube.client_settings import Access
from holdfast.local.store.objects import Raw
from realserver import client as plain


class Requests:
    def __init__(self, client: plain.Client, times: Times) -> None:
        self._client = client
        self._times = times
        self.watches = Watches(self._look)

    def make(
        self, method: str, path: str, body: Raw | None = None, content_type: str = JSON
    ) -> tuple[int, Raw]:
        if body is not None:
            body = self._times.without(body)
        try:
            answer = self._client.request(method, path, body, content_type.partition("/")[2])
        except plain.RefusedError as error:
            return error.status, {"message": str(error)}
        assert isinstance(answer, dict), answer
        if method != "GET":
            self.watches.wrote(method, path, answer)
        return 200, self._times.put_right(answer)

    def _look(self, path: str) -> Raw | None:
        status, found = self.make("GET", path)
        return found if status == 200 else None


class SeenClient(Client):
    def __init__(self, access: Access, watches: Watches, times: Times) -> None:
        super().__init__(access)
        self._watches = watches
        self._times = times
        self._shown: dict[Scope, set[str]] = {}
        """The uids of what was listed and watched."""

    async def send(self, request: Request) -> bytes:
        answer = json.loads(await super().send(request))
        if request.method != "GET":
            self._watches.wrote(request.method, request.path, answer)
        elif "items" in answer:
            uids = {item["metadata"]["uid"] for item in answer["items"] or ()}
            self._shown[Scope.of(request.path)] = uids
        return msgspec.json.encode(self._times.put_right(answer))

    @asynccontextmanager
    async def watch(self, path: str, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        async with super().watch(path, idle) as chunks:
            shown = self._shown.setdefault(Scope.of(path), set())
            stream = self._watches.opened(path, shown)
            try:
                yield self._lines(stream, chunks)
            finally:
                self._watches.closed(stream)

    async def _lines(self, stream: Stream, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                event["object"] = self._times.put_right(event["object"])
                yield msgspec.json.encode(event) + b"\n"
                # Asked for the next, the reader has done with this one.
                stream.showed(event["type"], event["object"])
                self._watches.moved()
