"""A `holdfast up` in this process, in a thread of its own, and what it logs."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import ssl
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import structlog

from holdfast.local.setup import SchedulerFactory
from holdfast.local.up import Up, UpSettings

T = TypeVar("T")
_PATIENCE = 60.0


class Logged(logging.Handler):
    """All that is logged while it is used, by structlog and by the standard library."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._before: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.exc_info or ''}")

    def _note(self, _: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        line = {key: value for key, value in event.items() if key != "exc_info"}
        self.lines.append(f"{method} {line} {event.get('exc_info')!r}")
        raise structlog.DropEvent

    def __enter__(self) -> Logged:
        self._before = structlog.get_config()
        structlog.configure(processors=[structlog.processors.format_exc_info, self._note])
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)
        logging.getLogger().removeHandler(self)


class LiveUp:
    def __init__(self, folder: Path) -> None:
        self._settings = UpSettings(
            SchedulerFactory.of(), folder / "kubeconfig", nodes=3, folder=folder / "data"
        )
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.logged = Logged()
        self.ended: BaseException | None = None
        self.token = ""
        self._port = 0
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def __enter__(self) -> LiveUp:
        self.logged.__enter__()
        self._thread.start()
        assert self._started.wait(_PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)
        self.logged.__exit__()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._served())
        self._loop.close()

    async def _served(self) -> None:
        up = Up(self._settings)
        await up.start()
        self.token = up.credentials.token
        self._tls = ssl.create_default_context(cadata=up.credentials.authority.decode())
        self._port = int(up.address.rpartition(":")[2])
        running = asyncio.create_task(up.ended())
        running.add_done_callback(self._went_down)
        self._started.set()
        await self._stop.wait()
        running.cancel()
        await up.close()

    def _went_down(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.ended = task.exception()

    def run(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(_PATIENCE)

    async def _settled(self, most: int) -> set[str]:
        """What still runs when clients that have gone had the time to be noticed."""
        for _ in range(100):
            tasks = asyncio.all_tasks()
            if len(tasks) <= most:
                return set()
            await asyncio.sleep(0.05)
        return {repr(task.get_coro()) for task in asyncio.all_tasks()}

    def leftover(self, most: int) -> set[str]:
        return asyncio.run_coroutine_threadsafe(self._settled(most), self._loop).result(_PATIENCE)

    def tasks(self) -> int:
        return self.run(lambda: len(asyncio.all_tasks()))

    def connect(self, tls: bool = True) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self._port), timeout=_PATIENCE)
        return self._tls.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain

    def exchanged(self, sent: bytes, tls: bool = True) -> bytes:
        """All that comes back; the sending side is closed after what is sent."""
        received = b""
        try:
            with self.connect(tls) as stream:
                stream.sendall(sent)
                stream.settimeout(0.2)
                while part := stream.recv(65536):
                    received += part
        except OSError:
            pass  # cut, or nothing more comes
        return received

    def answered(self, sent: bytes, method: str, read: bool) -> tuple[int, bytes]:
        """The status of the answer to a request, and its body."""
        with self.connect() as stream:
            stream.sendall(sent)
            response = http.client.HTTPResponse(stream, method=method)
            response.begin()
            return response.status, response.read() if read else b""

    def ask(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return self.answered(head.encode() + body, method, read=True)
