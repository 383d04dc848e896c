"""Requests over real sockets: answers, refusals, cuts, certificates, proxies."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.kube.client import Client, Request, RequestLimits, get
from holdfast.kube.client_settings import Access, Tls
from holdfast.kube.credentials import ClientIdentity, Credentials, FileCredentials
from holdfast.kube.decoding import WATCHED
from holdfast.kube.errors import ApiError, CredentialsError, LeadershipLost, Unreachable
from holdfast.kube.reflector import Reflector

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def go(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 30))


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = web.Server(cast("Any", handler))
    runner = web.ServerRunner(server, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def echo(request: web.Request) -> web.Response:
    body = await request.text()
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "body": body,
            "type": request.headers.get("Content-Type"),
            "auth": request.headers.get("Authorization"),
            "agent": request.headers.get("User-Agent", "").partition("/")[0],
        }
    )


@pytest.fixture(params=["wire", "proxy"])
def way(request: pytest.FixtureRequest) -> str:
    """Requests go one way, and another where there is a proxy; both must do the same."""
    return str(request.param)


def access_to(port: int, way: str, **more: Any) -> Access:
    """A plain-HTTP proxy is sent the whole URL, so the server itself can play it."""
    proxy = f"http://127.0.0.1:{port}" if way == "proxy" else None
    return Access(f"http://127.0.0.1:{port}/prefix", proxy=proxy, **more)


def test_a_request_arrives_whole(way: str) -> None:
    async def story() -> None:
        credentials = Credentials(ClientIdentity("Bearer t"))
        async with (
            serving(echo) as port,
            Client(access_to(port, way, credentials=credentials)) as client,
        ):
            answer = await client.send(Request("POST", "/a?b=c%20d", b'{"x":1}'))
            assert answer.count(b'/prefix/a?b=c%20d"') == 1
            for part in (
                b'"POST"',
                b'"Bearer t"',
                b'"application/json"',
                b'"holdfast"',
                b'{\\"x\\":1}',
            ):
                assert part in answer
            patched = await client.send(Request("PATCH", "/a", b"{}", "application/merge-patch+json"))
            assert b'"application/merge-patch+json"' in patched
            assert b'"body": ""' in await client.send(get("/a"))

    go(story())


def test_a_refusal_has_status_reason_and_message(way: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        if "plain" in request.path:
            return web.Response(status=502, text="Bad Gateway")
        status = {
            "kind": "Status",
            "reason": "TooManyRequests",
            "message": "slow down",
            "details": {"retryAfterSeconds": 3},
        }
        headers = {"Retry-After": "9"} if "header" in request.path else {}
        return web.json_response(status, status=429, headers=headers)

    async def story() -> None:
        async with serving(refuse) as port, Client(access_to(port, way)) as client:
            for path, after in (("/a", 3.0), ("/header", 9.0)):
                with pytest.raises(ApiError, match="429 TooManyRequests: slow down") as raised:
                    await client.send(get(path))
                assert raised.value.retry_after == after
                assert raised.value.is_transient
            with pytest.raises(ApiError, match="502: Bad Gateway"):
                await client.send(get("/plain"))

    go(story())


def test_a_refused_connection_is_unreachable() -> None:
    async def story() -> None:
        async with serving(echo) as port:
            pass
        async with Client(access_to(port, "wire")) as client:
            with pytest.raises(Unreachable) as raised:
                await client.send(get("/a"))
            assert raised.value.sent is False

    go(story())


def test_no_answer_in_time_and_none_at_all(way: str) -> None:
    async def story() -> None:
        never = asyncio.Event()

        async def hang(request: web.Request) -> web.Response:
            if "cut" in request.path:
                assert request.transport is not None
                request.transport.abort()
            await never.wait()
            return web.Response()

        async with serving(hang) as port, Client(access_to(port, way)) as client:
            for path in ("/slow", "/cut"):
                with pytest.raises(Unreachable) as raised:
                    await client.send(Request("POST", path, b"{}", timeout=0.2))
                assert raised.value.sent is True
            never.set()

    go(story())


def test_connections_are_kept_and_bounded() -> None:
    async def story() -> None:
        peers: set[Any] = set()
        at_once = most = 0

        async def count(request: web.Request) -> web.Response:
            nonlocal at_once, most
            assert request.transport is not None
            peers.add(request.transport.get_extra_info("peername"))
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1
            return web.Response(text="ok")

        async with serving(count) as port, Client(access_to(port, "wire"), connections=3) as client:
            await asyncio.gather(*(client.send(get(f"/{i}")) for i in range(50)))
            assert len(peers) <= 3 and most <= 3
            # A request that is cancelled while it waits for a connection does not keep it.
            waiting = [asyncio.create_task(client.send(get("/"))) for _ in range(10)]
            await asyncio.sleep(0)
            for task in waiting[3:7]:
                task.cancel()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert [d for d in done if d != b"ok" and not isinstance(d, asyncio.CancelledError)] == []
            assert await client.send(get("/")) == b"ok"

    go(story())


def test_a_connection_the_server_closes_is_not_used_again() -> None:
    async def story() -> None:
        async def close(_: web.Request) -> web.Response:
            response = web.Response(text="bye")
            response.force_close()
            return response

        async with serving(close) as port, Client(access_to(port, "wire")) as client:
            for _ in range(5):
                assert await client.send(get("/")) == b"bye"

    go(story())


def test_a_guard_holds_a_write_back(way: str) -> None:
    async def story() -> None:
        asked: list[str] = []

        async def seen(request: web.Request) -> web.Response:
            asked.append(request.path_qs)
            return web.Response(text="ok")

        def refuse() -> RequestLimits:
            raise LeadershipLost("no")

        async with serving(seen) as port, Client(access_to(port, way)) as client:
            with pytest.raises(LeadershipLost):
                await client.send(Request("POST", "/x", b"{}", guard=refuse))
            assert asked == []
            limited = Request("POST", "/x", b"{}", guard=lambda: RequestLimits("?timeout=3s", 6.0))
            assert await client.send(limited) == b"ok"
            assert asked.pop() == "/prefix/x?timeout=3s"
            assert await client.send(get("/y")) == b"ok"

    go(story())


def test_a_refused_token_is_read_again_once(way: str, tmp_path: Path) -> None:
    async def story() -> None:
        token = tmp_path / "token"
        token.write_text("old")
        asked: list[str | None] = []

        async def check(request: web.Request) -> web.Response:
            asked.append(request.headers.get("Authorization"))
            good = request.headers.get("Authorization") == "Bearer new"
            return web.Response(status=200 if good else 401, text="ok")

        access = FileCredentials(token)
        async with serving(check) as port, Client(access_to(port, way, credentials=access)) as client:
            with pytest.raises(ApiError, match="401"):
                await client.send(get("/"))
            assert asked == ["Bearer old"] * 2
            token.write_text("new")
            assert await client.send(get("/")) == b"ok"
            assert await client.send(get("/")) == b"ok"
            assert asked[2:] == ["Bearer old", "Bearer new", "Bearer new"]

    go(story())


def test_a_token_cannot_smuggle_headers() -> None:
    async def story() -> None:
        bad = Credentials(ClientIdentity("Bearer a\r\nX-Evil: 1"))
        async with serving(echo) as port, Client(access_to(port, "wire", credentials=bad)) as client:
            with pytest.raises(CredentialsError, match="Authorization"):
                await client.send(get("/"))

    go(story())


def test_what_passes_is_tried_again(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        left = 3
        waits: list[float] = []

        async def fail(_: web.Request) -> web.Response:
            nonlocal left
            left -= 1
            if left >= 0:
                return web.Response(status=503, headers={"Retry-After": "7"})
            return web.Response(text="ok")

        async with serving(fail) as port, Client(access_to(port, way)) as client:
            real_sleep = asyncio.sleep

            async def no_wait(seconds: float) -> None:
                waits.append(seconds)
                await real_sleep(0)

            monkeypatch.setattr("holdfast.kube.client.asyncio.sleep", no_wait)
            assert await client.call(get("/")) == b"ok"
            left = 3
            with pytest.raises(ApiError, match="503"):
                await client.call(get("/"), attempts=2)
        assert all(wait >= 7 for wait in waits if wait)

    go(story())


def test_a_watch_gives_bytes_as_they_come_and_ends_when_quiet() -> None:
    async def story() -> None:
        more = asyncio.Event()

        async def stream(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"one\n")
            await more.wait()
            await response.write(b"two\n")
            if "quiet" in request.path:
                await asyncio.Event().wait()
            return response

        async with serving(stream) as port, Client(access_to(port, "wire")) as client:
            got = []
            async with client.watch("/w", idle=10) as chunks:
                async for chunk in chunks:
                    got.append(chunk)
                    more.set()
            assert b"".join(got) == b"one\ntwo\n"
            with pytest.raises(Unreachable, match="no response in time"):
                async with client.watch("/quiet", idle=0.2) as chunks:
                    async for _ in chunks:
                        pass

    go(story())


_STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [b"5\r\nabcd\n\r\n", b"ZZ\r\n\xff\xfe"],
        [b"ZZ\r\n\xff\xfe"],
        [b"5\r\nabcd\nXXXX"],
        [b"a\r\nabcd\n", b"\xff" * 12 + b"\r\n"],
        [b"5\r\nabcd\n\r\n", b"FFFFFFFFFFFFFFFFFFFFFF\r\nabc"],
        [b"-5\r\nabcd\n\r\n"],
    ],
    ids=["later size", "first size", "no end", "binary", "huge size", "negative size"],
)
def test_a_watch_that_is_not_http_any_more_ends(parts: list[bytes], way: str) -> None:
    async def story() -> None:
        async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_STREAM)
            for part in parts:
                await writer.drain()
                await asyncio.sleep(0.01)  # so that they are read one by one
                writer.write(part)
            await reader.read()  # the connection stays open until the other side closes it
            writer.close()

        server = await asyncio.start_server(garble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(access_to(port, way)) as client:
            with pytest.raises(Unreachable):
                async with client.watch("/w", idle=0.5) as chunks:
                    async for _ in chunks:
                        pass

    go(story())


def test_a_kind_is_followed_again_after_a_watch_that_is_not_http_any_more() -> None:
    async def story() -> None:
        watches = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal watches
            head = await reader.readuntil(b"\r\n\r\n")
            if b"watch=true" not in head:
                body = b'{"metadata": {"resourceVersion": "7"}, "items": []}'
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            else:
                watches += 1
                meta = b'{"metadata": {"name": "n%d", "uid": "u%d", "resourceVersion": "%d"}}'
                line = b'{"type": "ADDED", "object": %b}\n' % (meta % (watches, watches, 7 + watches))
                writer.write(_STREAM + b"%x\r\n%b\r\n" % (len(line), line))
                await writer.drain()
                if watches == 1:
                    await asyncio.sleep(0.01)
                    writer.write(b"\x00\xff garbage")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        seen: asyncio.Queue[str] = asyncio.Queue()
        async with server, Client(access_to(port, "wire")) as client:

            def saw(event: Any) -> None:
                seen.put_nowait(event.object.metadata.name)

            reflector = Reflector(client, WATCHED[0], saw, stream=False)
            task = asyncio.create_task(reflector.run())
            assert [await seen.get(), await seen.get()] == ["n1", "n2"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    go(story())


# Certificates


class Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("authority", self._key.public_key(), self._key, "authority", True)

    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key.public_key(), self._key, "authority", False)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return certificate.public_bytes(serialization.Encoding.PEM), secret

    def _sign(self, name: str, public: Any, key: Any, issuer: str, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(key, hashes.SHA256())
        )


def server_context(authority: Authority, tmp_path: Path, name: str) -> ssl.SSLContext:
    certificate, key = authority.issue(name)
    pair = tmp_path / f"{name}.pem"
    pair.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority.pem().decode())
    return context


async def who(request: web.Request) -> web.Response:
    assert request.transport is not None
    peer = request.transport.get_extra_info("peercert")
    return web.Response(
        text=dict(part[0] for part in peer["subject"])["commonName"] if peer else "nobody"
    )


def test_the_server_is_checked_and_so_are_we(tmp_path: Path) -> None:
    async def story() -> None:
        authority, stranger = Authority(), Authority()
        ours = ClientIdentity("", *authority.issue("holdfast"))
        async with serving(who, server_context(authority, tmp_path, "kube")) as port:
            server = f"https://127.0.0.1:{port}"

            async def ask(tls: Tls, identity: ClientIdentity = ours) -> bytes:
                async with Client(Access(server, tls, Credentials(identity))) as client:
                    async with client.watch("/", idle=5) as chunks:
                        watched = b"".join([chunk async for chunk in chunks])
                    assert watched == await client.send(get("/"))
                    return watched

            assert await ask(Tls(authority.pem(), server_name="kube")) == b"holdfast"
            assert await ask(Tls(insecure=True), ClientIdentity()) == b"nobody"
            for wrong in (
                Tls(authority.pem()),
                Tls(authority.pem(), server_name="other"),
                Tls(stranger.pem(), server_name="kube"),
                Tls(server_name="kube"),
            ):
                with pytest.raises(Unreachable, match=r"(?i)certificate"):
                    await ask(wrong)
            with pytest.raises(CredentialsError, match="client certificate and key"):
                await ask(Tls(insecure=True), ClientIdentity("", b"no", b"sense"))

    go(story())


def test_a_new_certificate_is_used_for_new_requests(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority()
        first, second = (
            ClientIdentity("", *authority.issue("first")),
            ClientIdentity("", *authority.issue("second")),
        )
        async with serving(who, server_context(authority, tmp_path, "kube")) as port:
            credentials = Credentials(first)
            tls = Tls(authority.pem(), server_name="kube")
            async with Client(Access(f"https://127.0.0.1:{port}", tls, credentials)) as client:
                assert await client.send(get("/")) == b"first"
                credentials._identity = second
                assert await client.send(get("/")) == b"second"

    go(story())
