"""A client whose server is in the same process: no sockets, so time can be virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from harness.fake_api import FakeApi
from holdfast.kube.client import Client, Request
from holdfast.kube.client_settings import Access
from holdfast.kube.errors import Unreachable


class FakeClient(Client):
    def __init__(self, api: FakeApi) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.api = api

    async def send(self, request: Request) -> bytes:
        request = request._replace(path=request.path + request.guard().query)
        with self._noting():
            return await self.api.handle(request)

    @asynccontextmanager
    async def watch(self, path: str, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        stream = self.api.watch(path, idle)
        try:
            with self._noting():
                yield stream
        finally:
            await stream.aclose()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """As the real one does."""
        try:
            yield
        except Unreachable as error:
            self.reach.failed(error)
            raise
        self.reach.answered()
