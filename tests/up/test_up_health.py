"""Health and metrics of `holdfast up`, in this process."""

import asyncio
import ssl
from pathlib import Path

import aiohttp

from holdfast.backends.embedded.setup import Setup
from holdfast.server.up import Up, UpSettings
from up.running import PODS, pod


def test_health_metrics_and_configuration_are_served_beside_the_api(tmp_path: Path) -> None:
    async def look() -> dict[str, str]:
        up = Up(UpSettings(Setup.of(), tmp_path / "kubeconfig", nodes=1))
        await up.start()
        answers = {}
        tls = ssl.create_default_context(cadata=up.credentials.authority.decode())
        headers = {"Authorization": f"Bearer {up.credentials.token}"}
        async with aiohttp.ClientSession(up.address) as session:
            async with session.post(PODS, json=pod("p"), headers=headers, ssl=tls) as made:
                assert made.status == 201
            await up.cluster.quiet()
            for path in (
                "/healthz",
                "/livez",
                "/readyz?verbose",
                "/readyz/store",
                "/metrics",
                "/configz",
            ):
                async with session.get(path, ssl=tls) as response:
                    assert response.status == 200, path
                    answers[path] = await response.text()
        await up.close()
        return answers

    answers = asyncio.run(look())
    assert answers["/healthz"] == answers["/livez"] == answers["/readyz/store"] == "ok"
    assert "[+]store ok" in answers["/readyz?verbose"]
    attempts = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1'
    assert attempts in answers["/metrics"]
    assert "KubeSchedulerConfiguration" in answers["/configz"]
