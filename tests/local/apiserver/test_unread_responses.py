"""Clients that do not read: what the server keeps for them, and that others are served."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from harness.apiserver import CONFIG_MAPS, TABLE, LiveServer
from harness.objects import config_map
from holdfast.local.apiserver import server as serving
from holdfast.serving import limits, unsent
from holdfast.serving.listener import Connection
from holdfast.serving.unsent import ResponseBudget

CLIENTS = 24
SIZE = 1_400_000
"""More than the kernel and the transport take together."""


@contextmanager
def unread(server: LiveServer, path: str, clients: int, accept: str = "*/*") -> Iterator[None]:
    """While it is entered, that many clients have asked and read nothing."""
    with ExitStack() as stack:
        for _ in range(clients):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nAccept: {accept}\r\n\r\n".encode())
        yield


def connections(server: LiveServer) -> list[Connection]:
    assert server.listener is not None
    return list(server.listener._members)


async def stalled(server: LiveServer, count: int) -> None:
    """Until that many clients keep the server from writing."""
    while sum(each.writing_paused for each in connections(server)) < count:
        await asyncio.sleep(0)


def buffered(server: LiveServer) -> list[int]:
    """The bytes that each transport holds."""
    transports = [each.transport for each in connections(server)]
    return [each.get_write_buffer_size() for each in transports if each is not None]


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> ResponseBudget:
    """That of the server of the test."""
    budget = ResponseBudget()
    monkeypatch.setattr(serving, "ResponseBudget", lambda: budget)
    return budget


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("?watch=1", "*/*"),
        ("?watch=1&includeObject=Object", TABLE),
        ("", "*/*"),
        ("/large", "*/*"),
        ("/large", "application/yaml"),
    ],
)
def test_a_connection_buffers_two_pieces_at_most(query: str, accept: str) -> None:
    with LiveServer() as server:
        server.post(CONFIG_MAPS, {**config_map("large"), "data": {"x": "x" * SIZE}})
        with unread(server, f"{CONFIG_MAPS}{query}", 3, accept):
            server.wait(stalled(server, 3))
            held = server.run(lambda: buffered(server))
        assert len(held) == 3
        assert 0 < max(held) <= 2 * limits.CHUNK_BYTES + 1024


def test_watches_that_are_not_read_take_little_memory() -> None:
    with LiveServer() as server:
        start = server.get(CONFIG_MAPS).revision
        path = f"{CONFIG_MAPS}?watch=1&resourceVersion={start}"
        with unread(server, path, CLIENTS):
            tracemalloc.start()
            for name in "ab":
                server.post(CONFIG_MAPS, {**config_map(name), "data": {"x": "x" * SIZE}})
            server.wait(stalled(server, CLIENTS))
            taken, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    # Each change is an object, its JSON and its event, however many wait for it.
    assert taken < 8 * SIZE + CLIENTS * 3 * limits.CHUNK_BYTES


def test_lists_that_are_not_read_are_bounded(
    monkeypatch: pytest.MonkeyPatch, budget: ResponseBudget
) -> None:
    monkeypatch.setattr(unsent, "RESPONSES_BYTES", 3 * SIZE)
    with LiveServer() as server:
        server.post(CONFIG_MAPS, {**config_map("large"), "data": {"x": "x" * SIZE}})

        async def settled() -> int:
            while len(budget._sending) + len(budget._waiting) < CLIENTS:
                await asyncio.sleep(0)
            return len(budget._sending)

        tracemalloc.start()
        with unread(server, CONFIG_MAPS, CLIENTS):
            sent = server.wait(settled())
            taken, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert sent == 3
            assert taken < 5 * SIZE
            assert server.get(f"{CONFIG_MAPS}?limit=1&labelSelector=a%3Db").code == 200, "a small one"
            with monkeypatch.context() as patched:
                patched.setattr(unsent, "WAIT_SECONDS", 0.0)
                patched.setattr(unsent, "SWEEP_SECONDS", 0.0)
                refused = server.get(CONFIG_MAPS)
            assert (refused.code, refused.reason) == (429, "TooManyRequests")
            assert refused.body["details"]["retryAfterSeconds"] == 1
            # Once those that do not read are slow enough, they make way.
            monkeypatch.setattr(unsent, "LAG_SECONDS", 0.0)
            monkeypatch.setattr(unsent, "SENDING_RATE", 1e12)
            monkeypatch.setattr(unsent, "SWEEP_SECONDS", 0.0)
            assert server.get(CONFIG_MAPS).code == 200

        async def gone() -> None:
            while budget.unsent.total or budget.crowded:
                await asyncio.sleep(0)

        server.wait(gone())


def test_a_large_write_is_answered_in_place_of_the_slowest(
    monkeypatch: pytest.MonkeyPatch, budget: ResponseBudget
) -> None:
    monkeypatch.setattr(unsent, "RESPONSES_BYTES", SIZE)
    monkeypatch.setattr(unsent, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(unsent, "SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(unsent, "SENDING_RATE", 1e12)
    with LiveServer() as server:
        server.post(CONFIG_MAPS, {**config_map("a"), "data": {"x": "x" * SIZE}})
        with unread(server, CONFIG_MAPS, 1):
            server.wait(stalled(server, 1))
            assert server.get(CONFIG_MAPS).code == 429
            made = server.post(CONFIG_MAPS, {**config_map("b"), "data": {"x": "x" * SIZE}})
            assert made.code == 201

            async def gone() -> None:
                while budget.unsent.total:
                    await asyncio.sleep(0)

            server.wait(gone())
            assert server.get(CONFIG_MAPS).code == 200
