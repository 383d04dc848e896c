"""`/healthz` and its kin."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from holdfast.backends.kubernetes.errors import KubernetesError
from holdfast.server.health import Check, Endpoints, health_app, ping, start_health


def ask(problems: dict[str, str], *paths: str) -> list[tuple[int, str]]:
    async def go() -> list[tuple[int, str]]:
        async def difference() -> Any:
            return {"missing_pods": ["Pod/default/p"]}

        async def unreachable() -> Any:
            raise KubernetesError("https://c:1: connection refused")

        endpoints = Endpoints(
            checks=[
                ping(),
                Check("leaderElection", lambda: problems.get("leaderElection", "")),
                Check("informer-sync", lambda: problems.get("informer-sync", ""), live=False),
            ],
            metrics=lambda: b"scheduler_pending_pods 1\n",
            configz=lambda: {"parallelism": 16},
            more={"/debug/compare": difference, "/debug/unreachable": unreachable},
        )
        runner, port = await start_health(health_app(endpoints), "127.0.0.1", 0)
        answers = []
        try:
            async with aiohttp.ClientSession() as session:
                for path in paths:
                    async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                        answers.append((response.status, await response.text()))
        finally:
            await runner.cleanup()
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


def test_a_question_the_server_does_not_answer_says_why() -> None:
    assert ask({}, "/debug/unreachable") == [(502, "https://c:1: connection refused\n")]
