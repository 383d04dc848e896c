"""`/healthz /livez /readyz /metrics /configz /version`, for whatever runs a scheduler.

Checks are named, as kube-scheduler's are: `/readyz?verbose` lists them, `?exclude=name` leaves one out,
`/readyz/name` asks one alone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from holdfast import __version__
from holdfast.api.errors import HoldfastError


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    problem: Callable[[], str]
    """What is wrong; "" if nothing is."""
    live: bool = True
    """Whether a problem is a reason to be restarted, not just to be left alone for a while."""


def ping() -> Check:
    return Check("ping", lambda: "")


@dataclass(frozen=True, slots=True)
class Endpoints:
    checks: Sequence[Check]
    metrics: Callable[[], bytes]
    configz: Callable[[], Mapping[str, Any]]
    more: Mapping[str, Callable[[], Awaitable[Any]]] = field(default_factory=dict)
    """Further paths that answer with JSON, to callers on this machine only."""


def health_app(endpoints: Endpoints) -> web.Application:
    app = web.Application()
    live = [check for check in endpoints.checks if check.live]
    for path, checks in (("healthz", live), ("livez", live), ("readyz", endpoints.checks)):
        app.router.add_get(f"/{path}", _all_of(path, checks))
        app.router.add_get(f"/{path}/{{name}}", _one_of(checks))

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=endpoints.metrics(), headers=headers)

    async def configz(_: web.Request) -> web.Response:
        return _json({"kubescheduler.config.k8s.io": endpoints.configz()})

    async def version(_: web.Request) -> web.Response:
        return _json({"version": __version__})

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/configz", configz)
    app.router.add_get("/version", version)
    for path, answer in endpoints.more.items():
        app.router.add_get(path, _local(answer))
    return app


async def start_health(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """What to clean up in the end, and the port it listens on. Raises OSError."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, runner.addresses[0][1]


def _all_of(path: str, checks: Sequence[Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
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

    return answer


def _one_of(checks: Sequence[Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    by_name = {check.name: check for check in checks}

    async def answer(request: web.Request) -> web.Response:
        check = by_name.get(request.match_info["name"])
        if check is None:
            return web.Response(status=404, text="404 page not found\n")
        problem = check.problem()
        if problem:
            return web.Response(status=500, text=f"internal server error: {problem}\n")
        return web.Response(text="ok")

    return answer


def _local(
    answer: Callable[[], Awaitable[Any]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """These name objects of all namespaces, and there is no telling who asks."""

    async def respond(request: web.Request) -> web.Response:
        if request.remote not in ("127.0.0.1", "::1"):
            return web.Response(status=403, text="only from this machine\n")
        try:
            return _json(await answer())
        except HoldfastError as error:
            return web.Response(status=502, text=f"{error}\n")

    return respond


def _json(value: Any) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    return web.Response(body=body, content_type="application/json")
