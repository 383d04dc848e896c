"""Whether a server can be reached, and what is reported if it cannot."""

from __future__ import annotations

import asyncio
import errno
import socket

import aiohttp
import pytest

from harness.virtual_time import run
from holdfast.kube.client import Client, get
from holdfast.kube.client_settings import Access
from holdfast.kube.errors import NoConnection, Unreachable
from holdfast.kube.flow_control import Reach, not_connected, unreachable


def test_waiters_wake_when_the_server_is_back() -> None:
    async def story() -> None:
        reports: list[tuple[str, str]] = []
        reach = Reach(lambda what, detail: reports.append((what, detail)))
        loop = asyncio.get_running_loop()
        reach.failed(Unreachable("the connection was interrupted"))
        assert not await reach.wait(10), "a connection that is cut is not yet a server that is away"
        reach.failed(NoConnection("connection refused"))
        reach.failed(NoConnection("no route to host"))
        assert not await reach.wait(10)
        assert loop.time() == 20
        loop.call_later(5, reach.answered)
        assert all(await asyncio.gather(reach.wait(100), reach.wait(200)))
        assert loop.time() == 25
        reach.answered()
        assert not await reach.wait(1)
        assert reports == [("unreachable", "connection refused"), ("back", "")]

    run(story())


REFUSED = OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 6443)")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (not_connected(REFUSED), "connection refused"),
        (not_connected(TimeoutError()), "no connection in time"),
        (not_connected(socket.gaierror(-2, "Name or service not known")), "name or service not known"),
        (unreachable(TimeoutError()), "no response in time"),
        (unreachable(aiohttp.ClientPayloadError("not completed")), "the connection was interrupted"),
        (unreachable(aiohttp.ServerDisconnectedError()), "the connection was interrupted"),
        (
            unreachable(ConnectionResetError(104, "Connection reset by peer")),
            "the connection was interrupted",
        ),
        (unreachable(ValueError()), "ValueError"),
    ],
)
def test_connection_errors_are_short(error: Unreachable, words: str) -> None:
    assert str(error) == words


def test_a_client_reports_once_that_its_server_is_unreachable() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{closed.getsockname()[1]}"
    reports: list[tuple[str, str]] = []

    async def story() -> None:
        async with Client(Access(server), report=lambda *each: reports.append(each)) as client:
            for _ in range(2):
                with pytest.raises(NoConnection, match="connection refused"):
                    await client.send(get("/api/v1/pods"))
            with pytest.raises(NoConnection, match="connection refused"):
                async with client.watch("/api/v1/pods?watch=true", 1):
                    pass

    asyncio.run(story())
    assert reports == [("unreachable", "connection refused")]
