"""Short requests over a pool of kept connections.

A scheduler makes two requests per pod, and the API server answers each in about a millisecond: what the
client spends on them is most of the scheduler's own time. This is the little that such requests need: a
head made of prepared bytes, one write, one parsed answer. Watches and proxies go another way.

`guard` is called in the same step as the write, so nothing can come between the two.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from holdfast.backends.kubernetes.errors import Unreachable
from holdfast.backends.kubernetes.http.reach import CUT, LATE, not_connected

_LARGEST = 64 * 2**20
"""An answer longer than this is not read."""


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


def _no_guard() -> None:
    pass


class Wire:
    def __init__(self, host: str, port: int, connections: int, connect_timeout: float) -> None:
        self._host = host
        self._port = port
        self._most = connections
        self._connect_timeout = connect_timeout
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tls: ssl.SSLContext | None = None
        self._server_name: str | None = None

    def secure(self, tls: ssl.SSLContext | None, server_name: str | None) -> None:
        """Use this context from now on; connections made with another are let go."""
        self._tls = tls
        self._server_name = server_name
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        for connection in self._open:
            connection.last = True

    def close(self) -> None:
        """For good, and without a word to the server, whose answer nobody would wait for."""
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()

    async def request(
        self, head: bytes, body: bytes, timeout: float, guard: Callable[[], None] = _no_guard
    ) -> Answer:
        """`head` lacks only the length of the body. Raises Unreachable, and whatever `guard` does."""
        connection = await self._take()
        try:
            guard()
            answer = await connection.exchange(head, body, timeout)
        except BaseException:
            connection.close()
            self._free(connection)
            raise
        self._free(connection)
        return answer

    async def _take(self) -> "_Connection":
        while True:
            while self._idle:
                connection = self._idle.pop()
                if connection.usable:
                    return connection
                self._open.discard(connection)
            if len(self._open) + self._opening < self._most:
                return await self._connect()
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next_turn()
                raise

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        self._opening += 1
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    _Connection,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            self._next_turn()
            raise not_connected(error) from error
        except BaseException:
            self._next_turn()
            raise
        finally:
            self._opening -= 1
        self._open.add(connection)
        return connection

    def _free(self, connection: "_Connection") -> None:
        if connection.usable and not connection.last:
            self._idle.append(connection)
        else:
            connection.close()
            self._open.discard(connection)
        self._next_turn()

    def _next_turn(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Connection(asyncio.Protocol):
    """One request at a time. The methods named `on_…` are called by the parser."""

    def __init__(self) -> None:
        self.last = False
        """Whether the connection is to be closed after this exchange."""
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._size = 0
        self._retry_after: str | None = None

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """As `close`, but the other side is not waited for."""
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, head: bytes, body: bytes, timeout: float) -> Answer:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise Unreachable("the connection was closed", sent=False)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._answer = answer
        transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        late = loop.call_later(timeout, self._fail, LATE)
        try:
            return await answer
        finally:
            late.cancel()
            self._answer = None

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unreachable(why))

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close()
            self._fail(f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(str(exc) if exc and not isinstance(exc, ConnectionError) else CUT)

    # The parser's calls

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > _LARGEST:
            self.close()
            self._fail(f"an answer of more than {_LARGEST} bytes")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        parser = self._parser
        answer = Answer(parser.get_status_code(), b"".join(self._body), self._retry_after)
        self.last = self.last or not parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        self._body, self._size, self._retry_after = [], 0, None
        if answer.status < 200:
            return  # an interim answer; the real one follows
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        else:
            self.close()  # an answer nobody asked for
