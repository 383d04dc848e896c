"""`/healthz` and its kin."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from holdfast.kube.errors import KubernetesError
from holdfast.serving.health import (
    OPEN_PATHS,
    Endpoints,
    Health,
    HealthCheck,
    closed_paths,
    is_open,
    ping,
    start_health,
)


def ask(problems: dict[str, str], *paths: str) -> list[tuple[int, str]]:
    async def go() -> list[tuple[int, str]]:
        async def difference() -> Any:
            return {"missing_pods": ["Pod/default/p"]}

        async def unreachable() -> Any:
            raise KubernetesError("https://c:1: connection refused")

        endpoints = Endpoints(
            checks=[
                ping(),
                HealthCheck("leaderElection", lambda: problems.get("leaderElection", "")),
                HealthCheck("informer-sync", lambda: problems.get("informer-sync", ""), live=False),
            ],
            metrics=lambda: b"scheduler_pending_pods 1\n",
            configz=lambda: {"parallelism": 16},
            more={"/debug/compare": difference, "/debug/unreachable": unreachable},
        )
        listener, port = await start_health(endpoints, "127.0.0.1", 0)
        answers = []
        try:
            async with aiohttp.ClientSession() as session:
                for path in paths:
                    async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                        answers.append((response.status, await response.text()))
        finally:
            await listener.close(1.0)
        return answers

    return asyncio.run(go())


def test_all_is_well() -> None:
    assert ask({}, "/healthz", "/livez", "/readyz", "/readyz/ping") == [(200, "ok")] * 4


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ({"informer-sync": "pods: not listed yet"}, (200, 200, 500)),
        ({"leaderElection": "not renewed"}, (500, 500, 500)),
    ],
)
def test_not_ready_is_not_dead(problems: dict[str, str], expected: tuple[int, ...]) -> None:
    answers = ask(problems, "/healthz", "/livez", "/readyz")
    assert tuple(status for status, _ in answers) == expected


def test_what_is_wrong_is_named_and_can_be_left_out() -> None:
    problems = {"informer-sync": "pods: not listed yet"}
    failed, excluded, alone, unknown = ask(
        problems,
        "/readyz",
        "/readyz?verbose&exclude=informer-sync",
        "/readyz/informer-sync",
        "/readyz/what",
    )
    assert failed == (
        500,
        "[+]ping ok\n[+]leaderElection ok\n"
        "[-]informer-sync failed: pods: not listed yet\nreadyz check failed\n",
    )
    assert excluded[0] == 200 and "[+]informer-sync excluded: ok" in excluded[1]
    assert (alone[0], unknown[0]) == (500, 404)


def test_metrics_configuration_and_comparison() -> None:
    metrics, configz, version, compared = ask({}, "/metrics", "/configz", "/version", "/debug/compare")
    assert metrics == (200, "scheduler_pending_pods 1\n")
    assert '"parallelism": 16' in configz[1]
    assert "version" in version[1]
    assert "Pod/default/p" in compared[1]


def test_an_unreachable_server_is_a_bad_gateway() -> None:
    assert ask({}, "/debug/unreachable") == [(502, "https://c:1: connection refused\n")]


@pytest.mark.parametrize(
    ("path", "open_paths", "expected"),
    [
        ("/healthz", ("/healthz",), True),
        ("/healthz/", ("/healthz",), True),
        ("/healthz/ping", ("/healthz",), True),
        ("/healthz/ping/more", ("/healthz",), False),
        ("/healthzz", ("/healthz",), False),
        ("/metrics", ("/healthz",), False),
        ("/metrics", ("/healthz", "/metrics"), True),
        ("/metrics/cadvisor", ("/metrics",), False),
        ("/metrics/cadvisor", ("/metrics*",), True),
        ("/api/v1/pods", ("/healthz", "/metrics"), False),
        ("//healthz", ("/healthz",), False),
    ],
)
def test_which_paths_are_open(path: str, open_paths: tuple[str, ...], expected: bool) -> None:
    assert is_open(path, open_paths) is expected


def test_what_leads_to_objects_is_never_open() -> None:
    given = ("/healthz", "/api", "/api/*", "/apis/apps", "/openapi/v2", "/*", "*", "metrics")
    assert closed_paths(given) == list(given[1:])


@pytest.mark.parametrize(
    ("path", "code"), [("/healthz", 200), ("/metrics", 403), ("/debug/compare", 403), ("/version", 200)]
)
def test_other_machines_see_what_is_open(path: str, code: int) -> None:
    async def never() -> Any:
        raise AssertionError

    async def asked() -> int:
        health = Health(Endpoints(metrics=lambda: b"", more={"/debug/compare": never}))
        request = make_mocked_request("GET", path).clone(remote="192.0.2.7")
        return (await health.respond(request, OPEN_PATHS)).status

    assert asyncio.run(asked()) == code


def test_pages_are_served_to_clients_on_this_machine_only() -> None:
    async def page(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=f"page of {request.path}")

    health = Health(Endpoints(pages={"/dashboard": page}))

    async def status(remote: str, path: str, open_paths: tuple[str, ...] = ()) -> int:
        request = make_mocked_request("GET", path)
        request = request.clone(remote=remote)
        return (await health.respond(request, open_paths)).status

    async def go() -> None:
        assert await status("127.0.0.1", "/dashboard/api/snapshot") == 200
        assert await status("::1", "/dashboard") == 200
        assert await status("10.0.0.1", "/dashboard/") == 403
        assert await status("10.0.0.1", "/dashboard/", ("/dashboard*",)) == 403
        assert await status("127.0.0.1", "/board") == 404

    asyncio.run(go())
