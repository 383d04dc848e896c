"""Accepts connections within limits, and closes slow and idle ones.

    accepted ─► stranger: TLS, headers, token ─► member ─► … ─► closed
                  │ too slow, or too many            │ does not read, or is idle for too long
                  └──► closed, oldest first          └──► closed

Unauthenticated connections share a small number of places, so that they cannot keep authenticated
clients out. All limits are in `limits`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from holdfast.serving import limits
from holdfast.serving.limits import RareLog, Turns

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.1
"""Before connections are accepted again when there is no descriptor for one."""
_MALFORMED = 400, "400 Bad Request"
_TOO_LONG = 431, "431 Request Header Fields Too Large"


class Bounds(NamedTuple):
    """The maximum numbers of connections."""

    strangers: int = limits.STRANGERS
    members: int = limits.MEMBERS

    @staticmethod
    def affordable() -> Bounds:
        """The number of connections that the process has file descriptors for; raises its limit if
        necessary."""
        wanted = limits.STRANGERS + limits.MEMBERS + limits.SPARE_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = resource.RLIM_INFINITY
        if soft != unlimited and soft < wanted:
            more = wanted if hard == unlimited else min(wanted, hard)
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
                soft = more
        if soft == unlimited or soft >= wanted:
            return Bounds()
        usable = max(soft - limits.SPARE_FILES, 8)
        strangers = min(limits.STRANGERS, usable // 4)
        return Bounds(strangers, usable - strangers)


class Connection(web.RequestHandler):
    """One client; the `request.protocol` of its requests."""

    __slots__ = ("_listener", "_since", "_stalled_since")

    def __init__(self, server: _Server, listener: Listener, **options: Any) -> None:
        super().__init__(server, **options)
        self._listener = listener
        self._since = self._loop.time()
        self._stalled_since: float | None = None

    def authenticated(self) -> bool:
        """Called when a request has shown the token. False if there is no place for this client."""
        return self._listener.admit(self)

    def heard(self) -> None:
        """A whole request has come."""
        self._since = self._loop.time()

    def is_idle(self) -> bool:
        return self._current_request is None

    def is_overdue(self, now: float, stranger: bool) -> bool:
        if self._stalled_since is not None and now - self._stalled_since > limits.STALLED_SECONDS:
            return True
        return stranger and self.is_idle() and now - self._since > limits.HEADER_SECONDS

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            # With TLS, Python would hold eight times as much for a client that does not read.
            self.transport.set_write_buffer_limits(high=limits.CHUNK_BYTES)
        self._listener.came(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._listener.went(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_since = self._loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Responds to invalid HTTP like the real API server. It is not logged, because any client can
        send it; nor is a client that goes before it has read the response."""
        if not isinstance(exc, HttpProcessingError | ConnectionError):
            self.log_exception("request failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a response was already started")
        code, text = _TOO_LONG if isinstance(exc, LineTooLong) else _MALFORMED
        if status >= 500:
            code, text = 500, "500 Internal Server Error"
        response = web.Response(text=text, status=code)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **particulars: Any) -> None:
        self._listener.log.exception(str(args[0]), particulars.get("exc_info"))


class _Server(web.Server):
    """Creates a `Connection` for each connection."""

    def __init__(self, handler: Handler, listener: Listener) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._listener = listener

    def __call__(self) -> Connection:
        return Connection(
            self,
            self._listener,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.IDLE_SECONDS,
            lingering_time=limits.UNREAD_SECONDS,
            max_line_size=limits.REQUEST_LINE_BYTES,
            max_field_size=limits.HEADER_BYTES,
            max_headers=limits.HEADERS,
            auto_decompress=False,  # only from authenticated clients, and with a limit: `incoming`
            access_log=None,
        )


class Listener:
    """From `start` or `serve` until `close`."""

    def __init__(
        self,
        handler: Handler,
        tls: ssl.SSLContext | None = None,
        bounds: Bounds | None = None,
        log: RareLog | None = None,
    ) -> None:
        self._tls = tls
        self._bounds = bounds if bounds is not None else Bounds.affordable()
        self.log = log if log is not None else RareLog()
        self._server = _Server(handler, self)
        self._turns = Turns()
        self._doors: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._shaking: dict[asyncio.Task[None], None] = {}
        """Connections on which TLS is being agreed on, oldest first."""
        self._strangers: dict[Connection, None] = {}
        """Connections that have not authenticated yet, oldest first."""
        self._members: dict[Connection, None] = {}
        self._spare: int | None = None

    @property
    def addresses(self) -> list[Any]:
        return [door.getsockname() for door in self._doors]

    @property
    def connections(self) -> int:
        return len(self._shaking) + len(self._strangers) + len(self._members)

    async def start(self, host: str, port: int) -> None:
        """Listens there. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        doors: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                # All addresses of a name have one port, that of the first.
                taken = doors[0].getsockname()[1] if doors else port
                where = (address[0], taken, *address[2:])
                doors.append(socket.create_server(where, family=family, backlog=limits.BACKLOG))
        except OSError:
            if not doors or port:
                for door in doors:
                    door.close()
                raise
        self.serve(*doors)

    def serve(self, *doors: socket.socket) -> None:
        """Accepts from sockets that listen already."""
        self._open_spare()
        for door in doors:
            door.setblocking(False)
            self._doors.append(door)
            self._tasks.append(asyncio.create_task(self._accept(door)))
        self._tasks.append(asyncio.create_task(self._sweep_regularly()))

    async def stop_accepting(self) -> None:
        for task in (*self._tasks, *self._shaking):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._shaking, return_exceptions=True)
        self._tasks.clear()
        for door in self._doors:
            door.close()
        self._doors.clear()
        self._close_spare()
        await asyncio.sleep(0)
        self._server.pre_shutdown()

    async def close(self, patience: float) -> None:
        """Requests under way have that many seconds to end."""
        await self.stop_accepting()
        await self._server.shutdown(patience)

    def cut_all(self) -> None:
        for each in (*self._strangers, *self._members):
            each.cut()

    # Connections come and go

    def came(self, connection: Connection) -> None:
        self._strangers[connection] = None

    def went(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        self._members.pop(connection, None)

    def admit(self, connection: Connection) -> bool:
        if connection in self._members:
            return True
        if len(self._members) >= self._bounds.members:
            idle = next((each for each in self._members if each.is_idle()), None)
            if idle is None:
                return False
            idle.cut()
            self.went(idle)
        self._strangers.pop(connection, None)
        self._members[connection] = None
        return True

    def sweep(self, now: float) -> None:
        """Cuts what is overdue."""
        for connection in [each for each in self._strangers if each.is_overdue(now, True)]:
            connection.cut()
        for connection in [each for each in self._members if each.is_overdue(now, False)]:
            connection.cut()

    async def _sweep_regularly(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(limits.SWEEP_SECONDS)
            self.sweep(loop.time())

    # Accepting

    async def _accept(self, door: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(door)
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self.log.warning("connection refused", error=os.strerror(error.errno))
                    self._refuse_one(door)
                    self._cut_oldest_stranger()
                    await asyncio.sleep(_PAUSE)
                continue
            if len(self._shaking) + len(self._strangers) >= self._bounds.strangers:
                self._cut_oldest_stranger()
            with suppress(OSError):
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)
            task = asyncio.create_task(self._begin(accepted))
            self._shaking[task] = None
            task.add_done_callback(lambda done: self._shaking.pop(done, None))
            # Those that were cut let go of their descriptors before the next is accepted.
            await asyncio.sleep(0)

    async def _begin(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        patience = farewell = None
        try:
            if self._tls is not None:
                until = loop.time() + limits.HANDSHAKE_SECONDS
                async with asyncio.timeout_at(until):
                    await _readable(accepted)
                    # Agreeing on TLS is work, and hundreds may want to at the same moment.
                    await self._turns.take()
                patience, farewell = max(until - loop.time(), 1.0), limits.FAREWELL_SECONDS
            await loop.connect_accepted_socket(
                self._server,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=farewell,
            )
        except (OSError, EOFError):
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _cut_oldest_stranger(self) -> None:
        """One that has agreed on TLS and then sent nothing is older than one that has yet to."""
        for connection in self._strangers:
            if connection.is_idle():
                connection.cut()
                self.went(connection)
                return
        for task in self._shaking:
            task.cancel()
            del self._shaking[task]
            return

    def _refuse_one(self, door: socket.socket) -> None:
        """Without a descriptor to accept with, the one in reserve is used to close a connection."""
        self._close_spare()
        with suppress(OSError):
            door.accept()[0].close()
        self._open_spare()

    def _open_spare(self) -> None:
        if self._spare is None:
            with suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


async def _readable(stream: socket.socket) -> None:
    """Returns when the client has sent something or disconnected."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(stream, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(stream)
