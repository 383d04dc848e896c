"""Whether the server can be reached, and in what words it is said that it cannot."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

import aiohttp

from holdfast.backends.kubernetes.errors import NoConnection, Unreachable

CUT = "the connection was cut"
LATE = "no answer in time"

Report = Callable[[str, str], None]
"""Told `unreachable` or `back`, and the particulars."""


class Reach:
    """Learns from each request. Who waits for a server that is away hears when it is back, so that
    nobody sits out a long back-off."""

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
    """From what went wrong in a library."""
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
