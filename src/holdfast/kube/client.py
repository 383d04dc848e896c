"""A Kubernetes API client: paths of resources, requests with retries, and watches."""

import asyncio
import math
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import ClientTimeout
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from holdfast import __version__
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.kube.client_settings import Access, make_context
from holdfast.kube.connections import ON_THE_WAY, Answer, Wire
from holdfast.kube.credentials import ClientIdentity
from holdfast.kube.errors import ApiError, CredentialsError, Unreachable
from holdfast.kube.flow_control import Backoff, Reach, Report, unreachable


def path_of(info: KindInfo, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a collection, of an object in it, or of a subresource of that object."""
    root = f"/apis/{info.api_version}" if info.group else f"/api/{info.api_version}"
    parts = [root]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(info.plural)
    if name:
        parts.append(name)
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


POD = KINDS["v1", "Pod"]
NODE = KINDS["v1", "Node"]
CLAIM = KINDS["v1", "PersistentVolumeClaim"]
VOLUME = KINDS["v1", "PersistentVolume"]
LEASE = KINDS["coordination.k8s.io/v1", "Lease"]


JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

REQUEST_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0
_READ_BUFFER = 2**18
_KEEP_ALIVE = 60.0


class RequestLimits(NamedTuple):
    """How long the server may work on a request, counted from when it is sent."""

    query: str = ""
    """The query string that is added to the path."""
    timeout: float = math.inf
    """The answer is waited for no longer."""


Guard = Callable[[], RequestLimits]
"""Called in the step in which a request is written, when its connection is there; raises to hold it
back."""
Observe = Callable[[str, str, float], None]
"""Called with the method, the status (or `<error>`) and the seconds of every attempt."""


def _no_guard() -> RequestLimits:
    return _UNLIMITED


_UNLIMITED = RequestLimits()


class Request(NamedTuple):
    method: str
    path: str
    """With its query, ready to be sent."""
    body: bytes = b""
    content_type: str = JSON
    timeout: float = REQUEST_TIMEOUT
    guard: Guard = _no_guard
    accept: str = JSON


class _Cause(msgspec.Struct):
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct):
    """The Status object of an error response."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def get(path: str, timeout: float = REQUEST_TIMEOUT) -> Request:
    return Request("GET", path, timeout=timeout)


class Client:
    """Requests to one API server over one connection pool.

    `send` makes one attempt (two if credentials had to be renewed) and raises its error. `call`
    retries, for requests that are safe to repeat. `watch` returns the byte stream of a response that
    does not end. Requests and watches use `Wire`, except behind a proxy, where aiohttp is used.
    """

    def __init__(
        self,
        access: Access,
        connections: int = 100,
        observe: Observe | None = None,
        report: Report | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.access = access
        self.rng = rng or random.Random()
        """Shared by everything that uses this client: seeding a generator takes longer than sending a
        write."""
        self.reach = Reach(report)
        self._connections = connections
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None
        self._identity: ClientIdentity | None = None
        self._tls: ssl.SSLContext | bool = True
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._head = b""
        self._url = URL(access.server)
        self._prefix = self._url.raw_path.rstrip("/").encode()
        self._wire: Wire | None = None
        if not access.proxy:
            assert self._url.host is not None and self._url.port is not None
            self._wire = Wire(self._url.host, self._url.port, connections, CONNECT_TIMEOUT)

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(
            limit=self._connections, keepalive_timeout=_KEEP_ALIVE, enable_cleanup_closed=False
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=True,
            read_bufsize=_READ_BUFFER,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._wire is not None:
            self._wire.close()
        await asyncio.sleep(0)  # in which connections that were cut are let go of

    def backoff(self, first: float = 0.5, most: float = 30.0) -> Backoff:
        return Backoff(self.rng, first, most)

    async def send(self, request: Request) -> bytes:
        """One attempt. Raises ApiError, Unreachable or CredentialsError."""
        try:
            return await self._attempt(request)
        except ApiError as error:
            if error.status != 401 or not self.access.credentials.may_change:
                raise
        self._become(await self.access.credentials.renew())
        return await self._attempt(request)

    async def call(self, request: Request, attempts: int | None = None) -> bytes:
        """Like `send`, with retries of transient errors; without end if `attempts` is None."""
        backoff = self.backoff()
        while True:
            try:
                return await self.send(request)
            except (ApiError, Unreachable, CredentialsError) as error:
                if isinstance(error, ApiError) and not error.is_transient:
                    raise
                if attempts is not None and backoff.tries + 1 >= attempts:
                    raise
                await asyncio.sleep(backoff.next(getattr(error, "retry_after", None)))

    @asynccontextmanager
    async def watch(self, path: str, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes as they come. Raises Unreachable if none came for `idle` seconds."""
        try:
            if self._wire is not None:
                async with self._stream(self._wire, path, idle) as pieces:
                    yield pieces
            else:
                async with self._stream_by_proxy(path, idle) as pieces:
                    yield pieces
        except Unreachable as error:
            self.reach.failed(error)
            raise

    @asynccontextmanager
    async def _stream(self, wire: Wire, path: str, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._identify()
        head = b"GET %b HTTP/1.1\r\n%b" % (self._prefix + path.encode(), self._head)
        async with wire.stream(head, idle) as stream:
            self.reach.answered()
            if stream.status >= 300:
                raise api_error(stream.status, await stream.body(), stream.retry_after)
            yield stream.pieces()

    @asynccontextmanager
    async def _stream_by_proxy(self, path: str, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle)
        try:
            async with await self._open(Request("GET", path), timeout) as response:
                self.reach.answered()
                if response.status >= 400:
                    raise await _error(response)
                try:
                    yield _pieces(response, idle)
                finally:
                    _cut(response)
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError) as error:
            raise unreachable(error) from error

    async def _attempt(self, request: Request) -> bytes:
        start = asyncio.get_running_loop().time()
        outcome = "<error>"
        try:
            answer = await (self._exchange if self._wire is not None else self._fetch)(request)
            outcome = str(answer.status)
        except Unreachable as error:
            self.reach.failed(error)
            raise
        finally:
            if self._observe is not None:
                spent = asyncio.get_running_loop().time() - start
                self._observe(request.method, outcome, spent)
        self.reach.answered()
        if answer.status >= 300:
            raise api_error(answer.status, answer.body, answer.retry_after)
        return answer.body

    async def _exchange(self, request: Request) -> Answer:
        assert self._wire is not None
        await self._identify()
        return await self._wire.request(lambda: self._prepare(request), request.body)

    def _prepare(self, request: Request) -> tuple[bytes, float]:
        """The head of a request that is sent now, and how long its answer is waited for."""
        limits = request.guard()
        headers = self._head
        if request.accept != JSON:
            headers = headers.replace(_accept(JSON), _accept(request.accept), 1)
        head = b"%b %b%b HTTP/1.1\r\n%bContent-Type: %b\r\nContent-Length: " % (
            request.method.encode(),
            self._prefix,
            f"{request.path}{limits.query}".encode(),
            headers,
            request.content_type.encode(),
        )
        return head, min(request.timeout, limits.timeout)

    async def _fetch(self, request: Request) -> Answer:
        try:
            async with await self._open(request) as response:
                body = await response.read()
                return Answer(response.status, body, response.headers.get("Retry-After"))
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError) as error:
            raise unreachable(error) from error

    async def _identify(self) -> None:
        identity = self.access.credentials.current()
        if identity is None:
            identity = await self.access.credentials.renew()
        if identity is not self._identity:
            self._become(identity)

    async def _open(
        self, request: Request, timeout: ClientTimeout | None = None
    ) -> aiohttp.ClientResponse:
        assert self._session is not None, "the client is not open"
        await self._identify()
        limits = request.guard()
        if timeout is None:
            # Of a request that is limited the connection is there soon, or it is not sent.
            connect = ON_THE_WAY if limits.timeout < math.inf else None
            total = min(request.timeout, limits.timeout)
            timeout = ClientTimeout(total=total, connect=connect, sock_connect=CONNECT_TIMEOUT)
        headers = self._headers
        if request.body:
            headers = headers.copy()
            headers["Content-Type"] = request.content_type
        if request.accept != JSON:
            headers = headers.copy()
            headers["Accept"] = request.accept
        options: dict[str, Any] = {}
        if self.access.tls.server_name:
            options["server_hostname"] = self.access.tls.server_name
        return await self._session.request(
            request.method,
            URL(self.access.server + request.path + limits.query, encoded=True),
            data=request.body or None,
            headers=headers,
            timeout=timeout,
            ssl=self._tls,
            proxy=self.access.proxy,
            allow_redirects=False,
            **options,
        )

    def _become(self, identity: ClientIdentity) -> None:
        """Requests of one TLS context share connections, so a new certificate means new ones."""
        before = self._identity
        certified = (identity.certificate, identity.key)
        if self.access.server.startswith("https:") and (
            before is None or certified != (before.certificate, before.key)
        ):
            self._tls = make_context(self.access.tls, identity)
            if self._wire is not None:
                self._wire.secure(self._tls, self.access.tls.server_name or self._url.host)
        self._identity = identity
        # No compression: the servers worth their speed are near, and unpacking is not free.
        headers = CIMultiDict(self.access.headers)
        headers["Accept"] = JSON
        headers["Accept-Encoding"] = "identity"
        headers["User-Agent"] = f"holdfast/{__version__}"
        if identity.authorization:
            headers["Authorization"] = identity.authorization
        self._headers = headers
        host = self._url.raw_authority.rpartition("@")[2]
        lines = [("Host", host), *headers.items()]
        for name, value in lines:
            if not value.isprintable():
                raise CredentialsError(f"{name}: the value has characters that a header cannot have")
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1")


def _accept(content_type: str) -> bytes:
    return f"Accept: {content_type}\r\n".encode()


async def _pieces(response: aiohttp.ClientResponse, idle: float) -> AsyncIterator[bytes]:
    """The chunks of a response. aiohttp's own timeout is lost when a connection delivers bytes that
    are not HTTP.
    """
    while True:
        async with asyncio.timeout(idle):
            piece = await response.content.readany()
        if not piece:
            return
        yield piece


def _cut(response: aiohttp.ClientResponse) -> None:
    """Aborts a stream in the middle. A graceful close would wait for the peer."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _error(response: aiohttp.ClientResponse) -> ApiError:
    body = await response.read()
    return api_error(response.status, body, response.headers.get("Retry-After"))


def api_error(code: int, body: bytes, retry_header: str | None = None) -> ApiError:
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, RecursionError):
        status = Status(message=body[:200].decode(errors="replace").strip())
    retry_after: float | None = None
    if retry_header is not None and retry_header.strip().isdigit():
        retry_after = float(retry_header)
    elif status.details is not None and status.details.retry_after_seconds:
        retry_after = float(status.details.retry_after_seconds)
    causes = status.details.causes if status.details is not None else None
    told = tuple(each.message for each in causes or ())
    return ApiError(code, status.reason, status.message, retry_after, told)
