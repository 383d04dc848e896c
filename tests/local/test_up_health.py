"""Health and metrics of `holdfast up`, in this process."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from harness.objects import pod
from harness.up_process import PODS
from holdfast.local.setup import SchedulerFactory
from holdfast.local.up import Up, UpSettings, _brought_up
from holdfast.serving.health import OPEN_PATHS

_HEALTH = ("/healthz", "/livez", "/readyz?verbose", "/readyz/store")
_FIGURES = ("/metrics", "/configz")


def answers(
    folder: Path, paths: Sequence[str], token: bool, open_paths: Sequence[str] = OPEN_PATHS
) -> dict[str, tuple[int, str]]:
    async def look() -> dict[str, tuple[int, str]]:
        up = Up(
            UpSettings(SchedulerFactory.of(), folder / "kubeconfig", nodes=1, open_paths=open_paths)
        )
        await up.start()
        found = {}
        tls = ssl.create_default_context(cadata=up.credentials.authority.decode())
        headers = {"Authorization": f"Bearer {up.credentials.token}"}
        async with aiohttp.ClientSession(up.address) as session:
            async with session.post(PODS, json=pod("p"), headers=headers, ssl=tls) as made:
                assert made.status == 201
            await up.cluster.quiet()
            for path in paths:
                async with session.get(path, headers=headers if token else {}, ssl=tls) as response:
                    found[path] = response.status, await response.text()
        await up.close()
        return found

    return asyncio.run(look())


def test_health_is_for_everyone(tmp_path: Path) -> None:
    found = answers(tmp_path, _HEALTH, token=False)
    assert [found[path] for path in ("/healthz", "/livez", "/readyz/store")] == [(200, "ok")] * 3
    assert "[+]store ok" in found["/readyz?verbose"][1]


def test_metrics_and_configuration_are_for_those_with_the_token(tmp_path: Path) -> None:
    refused = answers(tmp_path, _FIGURES, token=False)
    assert [code for code, _ in refused.values()] == [401, 401]
    assert not any("scheduler" in text for _, text in refused.values())
    found = answers(tmp_path, _FIGURES, token=True)
    attempts = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1'
    assert attempts in found["/metrics"][1]
    assert "KubeSchedulerConfiguration" in found["/configz"][1]


def test_metrics_are_open_to_everyone_if_configured(tmp_path: Path) -> None:
    paths = ("/metrics", "/configz", PODS)
    found = answers(tmp_path, paths, token=False, open_paths=("/metrics",))
    assert [found[path][0] for path in paths] == [200, 401, 401]


def test_what_is_there_from_the_start_is_not_searched_for_cycles_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it serves: no request waits for the one collection there is."""
    frozen: list[bool] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append((tmp_path / "kubeconfig").exists()))

    async def story() -> None:
        up = await _brought_up(UpSettings(SchedulerFactory.of(), tmp_path / "kubeconfig"))
        await up.close()

    asyncio.run(story())
    assert frozen == [False]
