"""A minimal HTTP/1.1 client: a pool of kept-alive connections for requests, one connection per stream.

A scheduler makes two requests per pod and the API server answers each in about a millisecond, so client
overhead would be most of the scheduler's time. This client sends a request head of prepared bytes in
one write and parses one response. Requests through a proxy use aiohttp instead (see `client`).

The request head is built in the same step as the write, so that nothing can happen between the
leadership check and the write.

Every request and every stream terminates: with a response, a closed connection, bytes that are not
HTTP, or a timeout. All but the first raise Unreachable.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, TypeVar, cast

import httptools

from holdfast.kube.errors import Unreachable
from holdfast.kube.flow_control import CUT, LATE, not_connected

_LARGEST = 64 * 2**20
"""An answer longer than this is not read."""
ON_THE_WAY = 3.0
"""A request that is not delivered within so many seconds is not delivered at all."""
_BUFFERED = 2**20
"""A stream is not read further while this many bytes of it wait to be taken."""

_P = TypeVar("_P", bound=asyncio.BaseProtocol)


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


class Wire:
    def __init__(self, host: str, port: int, connections: int, connect_timeout: float) -> None:
        self._host = host
        self._port = port
        self._most = connections
        self._connect_timeout = connect_timeout
        self._idle: list[_Connection] = []
        self._open: dict[_Connection, None] = {}
        self._streams: set[Stream] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tls: ssl.SSLContext | None = None
        self._server_name: str | None = None

    def secure(self, tls: ssl.SSLContext | None, server_name: str | None) -> None:
        """Use this context from now on; connections made with another are closed."""
        self._tls = tls
        self._server_name = server_name
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        for connection in self._open:
            connection.last = True

    def close(self) -> None:
        """Aborts all connections without a graceful close."""
        for connection in list(self._open):
            connection.abort()
        for stream in list(self._streams):
            stream.abort()
        self._idle.clear()

    async def request(self, prepare: Callable[[], tuple[bytes, float]], body: bytes) -> Answer:
        """`prepare` is called when there is a connection; it gives the head, which lacks only the
        length of the body, and how long the answer is waited for. Raises Unreachable, and whatever
        `prepare` does."""
        connection = await self._take()
        try:
            head, timeout = prepare()
            answer = await connection.exchange(head, body, timeout)
        except BaseException:
            connection.close()
            self._free(connection)
            raise
        self._free(connection)
        return answer

    @asynccontextmanager
    async def stream(self, head: bytes, idle: float) -> AsyncIterator["Stream"]:
        """A streamed response, on its own connection. Raises Unreachable, also
        if nothing came for `idle` seconds."""
        stream = await self._open_connection(lambda: Stream(idle))
        self._streams.add(stream)
        try:
            stream.send(head)
            await stream.wait_for_head()
            yield stream
        finally:
            self._streams.discard(stream)
            stream.abort()

    async def _take(self) -> "_Connection":
        while True:
            while self._idle:
                connection = self._idle.pop()
                if connection.usable:
                    return connection
                self._open.pop(connection, None)
            if len(self._open) + self._opening < self._most:
                return await self._connect()
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_next()
                raise

    async def _connect(self) -> "_Connection":
        self._opening += 1
        try:
            connection = await self._open_connection(_Connection)
        except BaseException:
            self._wake_next()
            raise
        finally:
            self._opening -= 1
        self._open[connection] = None
        return connection

    async def _open_connection(self, protocol: Callable[[], _P]) -> _P:
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    protocol,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            raise not_connected(error) from error
        return connection

    def _free(self, connection: "_Connection") -> None:
        if connection.usable and not connection.last:
            self._idle.append(connection)
        else:
            connection.close()
            self._open.pop(connection, None)
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


def _deliver_soon_or_never(connection: socket.socket | None) -> None:
    """Sets socket options so that a write does not arrive late, when another process may lead: data
    that is not acknowledged in time is not retransmitted, and data left at close is discarded.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, int(ON_THE_WAY * 1000))


class _Connection(asyncio.Protocol):
    """One pooled connection, one request at a time. The parser calls the `on_…` methods."""

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
        """Like `close`, without waiting for the peer."""
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
        _deliver_soon_or_never(transport.get_extra_info("socket"))

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
            self._fail(f"a response of more than {_LARGEST} bytes")
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
            self.close()  # a response without a request


class Stream(asyncio.Protocol):
    """One response whose body is yielded in the chunks it arrives in."""

    def __init__(self, idle: float) -> None:
        self.status = 0
        self.retry_after: str | None = None
        self._idle = idle
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._has_head = False
        self._ended = False
        self._failure: Unreachable | None = None
        self._reader: asyncio.Future[None] | None = None
        self._heard_at = 0.0
        self._silence: asyncio.TimerHandle | None = None

    def send(self, head: bytes) -> None:
        """`head` is whole but for the empty line that ends it."""
        if self._transport is None:
            raise Unreachable(CUT, sent=False)
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._silence = loop.call_later(self._idle, self._check_silence)
        self._transport.write(head + b"\r\n")

    async def wait_for_head(self) -> None:
        while not self._has_head:
            await self._more()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the body in pieces. Raises Unreachable if it ends early."""
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._waiting_bytes -= len(piece)
                if self._paused and self._waiting_bytes <= _BUFFERED // 2:
                    self._pause(False)
                yield piece
            if self._ended:
                return
            await self._more()

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    def abort(self) -> None:
        """The server is not waited for."""
        if self._silence is not None:
            self._silence.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        """Returns when something came that has not been looked at."""
        if self._failure is not None:
            raise self._failure
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _fail(self, why: str) -> None:
        if self._failure is None and not self._ended:
            self._failure = Unreachable(why)
            self._wake()

    def _check_silence(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._heard_at + self._idle - loop.time()
        if left > 0 or self._paused:
            self._silence = loop.call_later(max(left, 1.0), self._check_silence)
        else:
            self._fail(LATE)

    def _pause(self, paused: bool) -> None:
        self._paused = paused
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._heard_at = asyncio.get_running_loop().time()
            self._transport.resume_reading()

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self._heard_at = asyncio.get_running_loop().time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")
            self.abort()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(str(exc) if exc and not isinstance(exc, ConnectionError) else CUT)

    # The parser's calls

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._waiting_bytes += len(body)
        if not self._paused and self._waiting_bytes > _BUFFERED:
            self._pause(True)

    def on_message_complete(self) -> None:
        if self._has_head:
            self._ended = True
        else:
            self._parser = httptools.HttpResponseParser(self)
