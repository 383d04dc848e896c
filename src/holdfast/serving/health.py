"""Health and metrics endpoints: `/healthz /livez /readyz /metrics /configz /version`.

Checks are named like kube-scheduler's: `/readyz?verbose` lists them, `?exclude=name` leaves one out,
`/readyz/name` runs only that one. `open_paths` are served without authentication.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import msgspec
from aiohttp import web

from holdfast import __version__
from holdfast.api.errors import HoldfastError
from holdfast.serving.listener import Bounds, Handler, Listener

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
"""Default paths that need no authorization: how it is, and which version it is."""
_HEALTH = ("healthz", "livez", "readyz")
_PLACES = Bounds(strangers=64, members=0)
"""Connections to a port that serves nothing else."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    name: str
    problem: Callable[[], str]
    """Returns the problem; "" if there is none."""
    live: bool = True
    """Whether a problem is a reason to be restarted, not only to be taken out of service."""


def ping() -> HealthCheck:
    return HealthCheck("ping", lambda: "")


@dataclass(frozen=True, slots=True)
class Endpoints:
    checks: Sequence[HealthCheck] = (ping(),)
    metrics: Callable[[], bytes] | None = None
    configz: Callable[[], Mapping[str, Any]] | None = None
    more: Mapping[str, Callable[[], Awaitable[Any]]] = field(default_factory=dict)
    """Further paths that answer with JSON."""
    pages: Mapping[str, Handler] = field(default_factory=dict)
    """Handlers of paths that start with this. Only for clients on this machine, even if the path is
    open."""


def is_open(path: str, open_paths: Collection[str]) -> bool:
    """Whether a path is one of these, a check below one, or matches a prefix that ends in `*`."""
    if path in open_paths or path.rstrip("/") in open_paths:
        return True
    if any(each.endswith("*") and path.startswith(each[:-1]) for each in open_paths):
        return True
    root, _, check = path[1:].partition("/")
    return root in _HEALTH and f"/{root}" in open_paths and "/" not in check


def closed_paths(open_paths: Iterable[str]) -> list[str]:
    """The given paths that cannot be open to everyone, since they are invalid or lead to objects."""
    return [
        path
        for path in open_paths
        if not path.startswith("/") or path == "/*" or path.startswith(("/api", "/openapi"))
    ]


class Health:
    """Serves the endpoints."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        live = [check for check in endpoints.checks if check.live]
        self._checks = {"healthz": live, "livez": live, "readyz": endpoints.checks}

    async def answer(self, request: web.BaseRequest) -> web.Response | None:
        """None for any other path."""
        root, _, rest = request.path[1:].partition("/")
        answer: web.Response | None
        if root in self._checks:
            answer = self._of_checks(request, root, rest)
        elif rest or root not in ("metrics", "configz"):
            return None
        else:
            answer = self._of_program(root)
        if answer is not None and request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="405 method not allowed\n")
        return answer

    def _page(self, path: str) -> Handler | None:
        found = (page for prefix, page in self._endpoints.pages.items() if path.startswith(prefix))
        return next(found, None)

    def _of_program(self, root: str) -> web.Response | None:
        endpoints = self._endpoints
        if root == "metrics" and endpoints.metrics is not None:
            headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
            return web.Response(body=endpoints.metrics(), headers=headers)
        if root == "configz" and endpoints.configz is not None:
            return _json({"kubescheduler.config.k8s.io": endpoints.configz()})
        return None

    def _of_checks(self, request: web.BaseRequest, root: str, name: str) -> web.Response:
        checks = self._checks[root]
        return _one_of(checks, name) if name else _all_of(root, checks, request)

    async def respond(
        self, request: web.BaseRequest, open_paths: Collection[str]
    ) -> web.StreamResponse:
        """As `answer`, where nothing else is served. Other paths than `open_paths` are only for clients
        on this machine."""
        if not is_open(request.path, open_paths) and not _is_local(request.remote):
            return web.Response(status=403, text="only served to clients on this machine\n")
        answer = await self.answer(request)
        if answer is not None:
            return answer
        if request.path == "/version":
            return _json({"version": __version__})
        more = self._endpoints.more.get(request.path)
        page = self._page(request.path)
        if more is None and page is None:
            return web.Response(status=404, text="404 page not found\n")
        # These name objects of all namespaces, and clients are not authenticated.
        if not _is_local(request.remote):
            return web.Response(status=403, text="only served to clients on this machine\n")
        if page is not None:
            return await page(request)
        assert more is not None
        try:
            return _json(await more())
        except HoldfastError as error:
            return web.Response(status=502, text=f"{error}\n")


async def start_health(
    endpoints: Endpoints, host: str, port: int, open_paths: Collection[str] = OPEN_PATHS
) -> tuple[Listener, int]:
    """Starts the server; returns what to close, and the port. Raises OSError."""
    health = Health(endpoints)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await health.respond(request, open_paths)

    listener = Listener(handle, bounds=_PLACES)
    await listener.start(host, port)
    return listener, listener.addresses[0][1]


def _is_local(remote: str | None) -> bool:
    try:
        return remote is not None and ip_address(remote).is_loopback
    except ValueError:
        return False


def _all_of(path: str, checks: Sequence[HealthCheck], request: web.BaseRequest) -> web.Response:
    excluded = set(request.query.getall("exclude", []))
    lines, failed = [], False
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        problem = check.problem()
        failed = failed or bool(problem)
        lines.append(f"[-]{check.name} failed: {problem}" if problem else f"[+]{check.name} ok")
    if failed:
        return web.Response(status=500, text="\n".join([*lines, f"{path} check failed", ""]))
    if "verbose" in request.query:
        return web.Response(text="\n".join([*lines, f"{path} check passed", ""]))
    return web.Response(text="ok")


def _one_of(checks: Sequence[HealthCheck], name: str) -> web.Response:
    check = next((check for check in checks if check.name == name), None)
    if check is None:
        return web.Response(status=404, text="404 page not found\n")
    problem = check.problem()
    if problem:
        return web.Response(status=500, text=f"internal server error: {problem}\n")
    return web.Response(text="ok")


def _json(value: Any) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    return web.Response(body=body, content_type="application/json")
