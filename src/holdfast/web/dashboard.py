"""The HTTP interface of the dashboard. Read-only: GET and HEAD.

    /                                   the page
    /assets/NAME                        its modules and style sheet
    /api/snapshot                       the whole view
    /api/stream?stream=S&after=N        changes after it, as server-sent events
    /api/node?name=N                    one object in full
    /api/pod?namespace=NS&name=N
    /api/reservation?name=N
    /api/explain?kind=K&namespace=NS&name=N

below a base path. Every answer forbids scripts, styles and connections from elsewhere.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from contextlib import aclosing
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from holdfast.explanation.explained_kinds import EXPLAINED
from holdfast.serving.listener import Bounds, Listener
from holdfast.web.access import DashboardAccess, new_token
from holdfast.web.explainer import Explainer, Question
from holdfast.web.live_view import LiveView, TooManyViewers, WatchedScheduler
from holdfast.web.object_details import node_details, pod_details, reservation_details

HOST = "127.0.0.1"
_PACK_FROM = 1024
"""Answers from this many bytes on are compressed."""
_LAST_ANSWERS = 1.0
_LOGIN_NOTE = b"<p hidden></p>"
_WRONG_TOKEN = b'<p role="alert">The token is wrong. It changes with every start.</p>'
_BOUNDS = Bounds(strangers=64, members=0)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Dashboard:
    """Serves a dashboard below `base`, which starts and ends with a slash."""

    def __init__(
        self,
        watched: WatchedScheduler,
        explainer: Explainer | None = None,
        base: str = "/",
        token: str | None = None,
    ) -> None:
        self._watched = watched
        self._view = LiveView(watched)
        self._explainer = explainer
        self._base = base
        self.access = DashboardAccess(token)

    async def close(self) -> None:
        """Ends the streams, so that nothing waits for them."""
        await self._view.close()
        if self._explainer is not None:
            await self._explainer.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._answer(request)
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return _text(405, "the dashboard is read-only", {"Allow": "GET, HEAD"})
        if not self.access.host_is_local(request):
            return _text(403, "only served under the names localhost and 127.0.0.1")
        if self.access.is_from_elsewhere(request):
            return _text(403, "not served to pages of other sites")
        path = request.path
        if path == self._base.rstrip("/"):
            return web.Response(status=308, headers={"Location": self._base})
        if not path.startswith(self._base):
            return _text(404, "404 page not found")
        path = path[len(self._base) :]
        if path == "" and (response := self.access.redeem(request)) is not None:
            return response
        if not self.access.is_allowed(request):
            return self._refusal(request, path)
        if path == "":
            return _file(request, "index.html")
        if path.startswith("assets/"):
            return _file(request, path.removeprefix("assets/"))
        match path:
            case "api/snapshot":
                return await self._snapshot(request)
            case "api/stream":
                return await self._stream(request)
            case "api/explain":
                return await self._explain(request)
            case "api/node" | "api/pod" | "api/reservation":
                return self._details(request, path.removeprefix("api/"))
        return _text(404, "404 page not found")

    def _refusal(self, request: web.BaseRequest, path: str) -> web.Response:
        """The page that takes a token, with what it needs to look right, and an error for the rest."""
        if path == "":
            page = assets()["login.html"].body
            if request.query.get("token"):
                page = page.replace(_LOGIN_NOTE, _WRONG_TOKEN)
            return web.Response(status=403, body=page, content_type="text/html", charset="utf-8")
        if path in ("assets/login.css", "assets/icon.svg"):
            return _file(request, path.removeprefix("assets/"))
        return _text(401, "open the address that `holdfast up` printed, with its token")

    async def _snapshot(self, request: web.BaseRequest) -> web.Response:
        body = await self._view.snapshot()
        if not body:
            return _text(503, "the scheduler is starting", {"Retry-After": "1"})
        return await _packed(request, body)

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        stream = request.query.get("stream", "")
        last = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        if not last.isdecimal() or len(last) > 15:
            return _text(400, "after: expected the sequence number of a snapshot")
        if request.method == "HEAD":
            return web.Response(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"}
        )
        try:
            async with aclosing(self._view.follow(stream, int(last))) as changes:
                async for sequence, text in changes:
                    if not response.prepared:
                        await response.prepare(request)
                    if text:
                        await response.write(b"id: %d\ndata: %b\n\n" % (sequence, text))
                    else:
                        await response.write(b": alive\n\n")
            await response.write(b"event: resync\ndata: {}\n\n")
        except TooManyViewers:
            return _text(503, "too many browsers follow this dashboard", {"Retry-After": "10"})
        except ConnectionError:
            pass  # the browser is gone
        return response

    async def _explain(self, request: web.BaseRequest) -> web.Response:
        query = request.query
        question = Question(query.get("kind", ""), query.get("namespace", ""), query.get("name", ""))
        if not question.is_valid():
            return _text(
                400, f"kind, namespace, name: expected a name, and one of {', '.join(EXPLAINED)}"
            )
        if self._explainer is None:
            return _json({"error": f"not available here; run `{question.command}`"}, 501)
        answer = await self._explainer.explain(question)
        return await _packed(request, msgspec.json.encode(answer.body), answer.status)

    def _details(self, request: web.BaseRequest, kind: str) -> web.Response:
        scheduler = self._watched.scheduler
        if scheduler is None:
            return _text(503, "the scheduler is starting", {"Retry-After": "1"})
        name, namespace = request.query.get("name", ""), request.query.get("namespace", "")
        if kind == "node":
            found = node_details(scheduler, name)
        elif kind == "pod":
            found = pod_details(scheduler, namespace, name)
        else:
            found = reservation_details(scheduler, name)
        if found is None:
            return _json({"error": f"no {kind} {name!r}"}, 404)
        return _json(found)


class ServedDashboard:
    """A dashboard on a port of its own, on this machine only."""

    def __init__(self, dashboard: Dashboard, listener: Listener, address: str) -> None:
        self._dashboard = dashboard
        self._listener = listener
        self.address = address
        """With the token."""

    async def close(self) -> None:
        await self._dashboard.close()
        await self._listener.close(_LAST_ANSWERS)


async def serve_dashboard(
    watched: WatchedScheduler, explainer: Explainer | None, port: int
) -> ServedDashboard:
    """Serves on a port, or on a free one if it is 0. Raises OSError."""
    token = new_token()
    dashboard = Dashboard(watched, explainer, token=token)
    listener = Listener(dashboard.handle, bounds=_BOUNDS)
    await listener.start(HOST, port)
    bound = listener.addresses[0][1]
    dashboard.access.port = bound
    return ServedDashboard(dashboard, listener, f"http://{HOST}:{bound}/?token={token}")


def _text(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)


async def _packed(request: web.BaseRequest, body: bytes, status: int = 200) -> web.Response:
    """JSON, compressed outside the event loop if it is large."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if len(body) >= _PACK_FROM and _takes_gzip(request):
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(None, lambda: gzip.compress(body, 3, mtime=0))
        headers["Content-Encoding"] = "gzip"
    return web.Response(status=status, body=body, headers=headers)


# The files of the page

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    body: bytes
    packed: bytes
    """Compressed."""
    type: str
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """All files by name, read once, with the tag by which browsers keep them. Requests are answered
    from these, so no path can lead anywhere else. The colours are those of reports."""
    found = {}
    colors = resources.files("holdfast.sim.report").joinpath("static", "colors.css")
    for file in (*resources.files("holdfast.web").joinpath("static").iterdir(), colors):
        suffix = file.name.rpartition(".")[2]
        if suffix in _TYPES:
            body = file.read_bytes()
            tag = '"' + hashlib.sha256(body).hexdigest()[:20] + '"'
            found[file.name] = Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[suffix], tag)
    return found


def _file(request: web.BaseRequest, name: str) -> web.Response:
    asset = assets().get(name)
    if asset is None:
        return _text(404, "404 page not found")
    headers = {"Content-Type": asset.type, "ETag": asset.tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == asset.tag:
        return web.Response(status=304, headers=headers)
    body = asset.body
    if len(body) >= _PACK_FROM and _takes_gzip(request):
        body = asset.packed
        headers["Content-Encoding"] = "gzip"
        headers["Vary"] = "Accept-Encoding"
    return web.Response(body=body, headers=headers)


def _takes_gzip(request: web.BaseRequest) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "")
