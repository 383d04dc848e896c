"""Connections, headers and bodies within limits; and that nothing is done for strangers."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import socket
import ssl
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from aiohttp import web

from harness.apiserver import CONFIG_MAPS, PODS, LiveServer
from harness.objects import config_map, pod
from holdfast.local.apiserver.credentials import make_credentials
from holdfast.serving import limits
from holdfast.serving.limits import RareLog
from holdfast.serving.listener import Bounds, Listener

TOO_LONG = b"431 Request Header Fields Too Large"
BOUNDS = Bounds(strangers=4, members=3)


@pytest.fixture(scope="module")
def secured() -> Iterator[LiveServer]:
    with LiveServer(credentials=make_credentials()) as server:
        yield server


def connected(server: LiveServer) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    if server.credentials is None:
        return plain
    context = ssl.create_default_context(cadata=server.credentials.authority.decode())
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def exchanged(server: LiveServer, sent: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    with connected(server) as stream:
        stream.sendall(sent)
        parts = []
        try:
            while part := stream.recv(65536):
                parts.append(part)
        except ConnectionError:
            pass
        return b"".join(parts)


def request(
    server: LiveServer, body: bytes, *headers: str, token: bool = True, path: str = CONFIG_MAPS
) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", "Connection: close"]
    if token and server.credentials is not None:
        lines.append(f"Authorization: Bearer {server.credentials.token}")
    return "\r\n".join([*lines, "Content-Type: application/json", *headers, "", ""]).encode() + body


def code(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def bomb() -> bytes:
    """A hundred megabytes of blanks, a hundred kilobytes long."""
    packed = zlib.compressobj(9, wbits=31)
    return b"".join([*(packed.compress(b" " * 1_000_000) for _ in range(100)), packed.flush()])


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_nothing_of_a_strangers_body_is_read_or_decompressed(
    secured: LiveServer, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("a body was decompressed")

    monkeypatch.setattr(zlib, "decompressobj", never)
    sent = request(secured, bomb()[:100_000], f"Content-Encoding: {encoding}", token=False)
    assert code(exchanged(secured, sent)) == 401


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/v1/nowhere", "/metrics", "/apis", "/readyzz"])
@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "PROPFIND"])
def test_strangers_do_not_learn_what_there_is(secured: LiveServer, path: str, method: str) -> None:
    assert secured.ask(method, path, token="").code == 401


def test_a_body_may_be_compressed_within_the_limit(secured: LiveServer) -> None:
    made = json.dumps(config_map("zipped")).encode()
    sent = request(secured, gzip.compress(made, mtime=0), "Content-Encoding: gzip")
    assert code(exchanged(secured, sent)) == 201
    sent = request(secured, zlib.compress(made), "Content-Encoding: deflate")
    assert code(exchanged(secured, sent)) == 409


def test_a_bomb_is_refused_with_little_work(secured: LiveServer) -> None:
    answer = exchanged(secured, request(secured, bomb(), "Content-Encoding: gzip"))
    assert code(answer) == 413
    assert b"Request entity too large: limit is 3145728" in answer


@pytest.mark.parametrize(
    ("encoding", "body", "expected"),
    [
        ("gzip", b"not compressed", 400),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-9], 400),
        ("deflate", b"\xff\xff", 400),
        ("br", b"{}", 415),
        ("zstd", b"{}", 415),
        ("gzip, gzip", b"{}", 415),
    ],
)
def test_what_cannot_be_decompressed_is_the_clients_fault(
    secured: LiveServer, encoding: str, body: bytes, expected: int
) -> None:
    answer = exchanged(secured, request(secured, body, f"Content-Encoding: {encoding}"))
    assert code(answer) == expected
    assert b'"kind":"Status"' in answer


def test_too_large_a_body_is_refused_before_it_is_sent(secured: LiveServer) -> None:
    head = request(secured, b"", "Expect: 100-continue").replace(
        b"Content-Length: 0", b"Content-Length: 3145729"
    )
    assert code(exchanged(secured, head)) == 413


def test_a_client_that_expects_100_continue_gets_it(secured: LiveServer) -> None:
    body = json.dumps(config_map("asked")).encode()
    answer = exchanged(secured, request(secured, body, "Expect: 100-continue"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201")


def test_a_chunked_body_has_the_same_limit(secured: LiveServer) -> None:
    head = request(secured, b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    assert code(exchanged(secured, head + chunk * 4 + b"0\r\n\r\n")) == 413
    assert code(exchanged(secured, head + b"zz\r\n")) == 400


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"\x16\x03\x01garbage\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/9.9\r\n\r\n", b"400 Bad Request"),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: h\r\nBad Header: x\r\n\r\n", b"400 Bad Request"),
        (
            b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
            b"431 Request Header Fields Too Large",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
            b"431 Request Header Fields Too Large",
        ),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n", b"400 Bad Request"),
    ],
)
def test_what_is_no_http_is_answered_plainly_and_not_logged(
    server: LiveServer, sent: bytes, expected: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with structlog.testing.capture_logs() as logged:
        head, _, body = exchanged(server, sent).partition(b"\r\n\r\n")
    assert body == expected
    assert head.split(b" ", 1)[1].startswith(expected[:3])
    assert (logged, capfd.readouterr().err) == ([], "")


def test_half_sent_requests_do_not_keep_others_out() -> None:
    with LiveServer(credentials=make_credentials(), bounds=BOUNDS) as server:
        halves = []
        for i in range(30):
            half = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            if i % 2:
                half.send(b"\x16\x03\x01\x02\x00")
            halves.append(half)
        assert server.get(PODS).code == 200
        listener = server.listener
        assert listener is not None
        assert server.run(lambda: listener.connections) <= 4 + 3
        for half in halves:
            half.close()


def test_half_sent_headers_are_cut_in_time() -> None:
    with LiveServer() as server, connected(server) as half:
        half.sendall(b"GET /readyz HTTP/1.1\r\nHost: h\r\nX-Slow: ")
        listener = server.listener
        assert listener is not None
        assert server.get("/readyz").code == 200  # by now the other has been accepted

        def sweep(after: float) -> int:
            listener.sweep(asyncio.get_running_loop().time() + after)
            return listener.connections

        assert server.run(lambda: sweep(limits.HEADER_SECONDS - 5)) >= 1
        server.run(lambda: sweep(limits.HEADER_SECONDS + 5))
        assert half.recv(1) == b""


def test_connections_over_the_limit_are_refused_and_idle_ones_are_closed() -> None:
    with LiveServer(bounds=BOUNDS) as server:
        watching = [server.watch(f"{PODS}?watch=1&timeoutSeconds=60") for _ in range(3)]
        with watching[0], watching[1]:
            idle = connected(server)
            idle.sendall(b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n")
            assert code(idle.recv(65536)) == 200
            with watching[2]:
                answer = server.get(PODS)
                assert (answer.code, answer.reason) == (503, "ServiceUnavailable")
            idle.close()


def test_a_stranger_who_asks_how_it_is_keeps_its_connection() -> None:
    with LiveServer() as server, connected(server) as stream:
        listener = server.listener
        assert listener is not None
        for _ in range(3):
            stream.sendall(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
            assert code(stream.recv(65536)) == 200
            server.run(lambda: listener.sweep(asyncio.get_running_loop().time() + 30))


def test_without_descriptors_connections_are_refused_and_then_accepted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> tuple[list[bytes], list[Any]]:
        async def handle(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(text="fine")

        log = structlog.testing.CapturingLogger()
        listener = Listener(handle, log=RareLog(log))
        await listener.start("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        accept, failures = loop.sock_accept, 1

        async def sometimes(door: socket.socket) -> Any:
            nonlocal failures
            if failures:
                failures -= 1
                raise OSError(errno.EMFILE, "too many")
            return await accept(door)

        monkeypatch.setattr(loop, "sock_accept", sometimes)
        answers = []
        for _ in range(3):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0][1])
                writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                answers.append(await reader.read())
                writer.close()
            except ConnectionError:
                answers.append(b"")
        await listener.close(1)
        return answers, log.calls

    answers, logged = asyncio.run(go())
    assert [answer[-4:] for answer in answers] == [b"", b"fine", b"fine"]
    assert [call.kwargs["error"] for call in logged] == ["Too many open files"]


def test_a_log_cannot_be_filled() -> None:
    log = structlog.testing.CapturingLogger()
    now = 0.0
    rare = RareLog(log, clock=lambda: now, per_minute=3)
    for _ in range(1000):
        rare.warning("odd", a=1)
    rare.warning("another")
    assert len(log.calls) == 4
    now = 61.0
    rare.warning("odd")
    assert log.calls[-1].kwargs == {"left_out": 997}


def test_a_failing_request_reveals_no_internals_and_affects_no_other(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise LookupError("a secret of the program")

    server.post(PODS, pod("there"))
    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logged:
        patched.setattr(server.cluster.encoder, "object", broken)
        answer = server.get(f"{PODS}/there")
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert "apiserver" in answer.message and "secret" not in answer.text
    assert logged
    assert server.get(f"{PODS}/there").code == 200


def test_clients_that_come_at_once_agree_on_tls_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> list[int]:
        loop, iteration, begun_in, now = asyncio.get_running_loop(), 0, list[int](), 0.0
        listener = Listener(_nothing, make_credentials().tls, Bounds(100, 100))
        monkeypatch.setattr(loop, "time", lambda: now)

        async def begin(*_: object, **__: object) -> None:
            nonlocal now
            now += 0.004  # a turn is over after 0.01
            begun_in.append(iteration)
            raise OSError

        monkeypatch.setattr(loop, "connect_accepted_socket", begin)
        pairs = [socket.socketpair() for _ in range(31)]
        tasks = [asyncio.create_task(listener._begin(accepted)) for _, accepted in pairs]
        for client, _ in pairs[1:]:
            client.send(b"hello")
        while not all(task.done() for task in tasks[1:]):
            iteration += 1
            await asyncio.sleep(0)
        assert not tasks[0].done(), "a silent client is waited for"
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client, accepted in pairs:
            assert accepted.fileno() < 0, "the connection is left open"
            client.close()
        return begun_in

    begun_in = asyncio.run(go())
    assert len(begun_in) == 30
    assert max(begun_in.count(each) for each in begun_in) <= 4


async def _nothing(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


def test_a_client_that_goes_before_it_has_read_the_response_is_not_logged(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> Any:
        raise ConnectionResetError("Cannot write to closing transport")

    server.post(PODS, pod("read"))
    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logged:
        patched.setattr(server.cluster.encoder, "object", gone)
        line = f"GET {PODS}/read HTTP/1.1"
        exchanged(server, f"{line}\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    assert logged == []
