"""Every example comes out on a real kube-apiserver as it does in a simulation, with what `deploy/` lets
the scheduler do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.real_driver import RealStage
from drivers.scenarios import Simulated, every_example
from holdfast.api.names import WORKLOAD_API
from holdfast.sim.scenario_actions import Create
from realserver.accounts import as_the_account, documents, ensure
from realserver.client import RefusedError
from realserver.definitions import installed_definitions
from realserver.server import RealServer


@pytest.fixture(scope="module")
def server(real_server: RealServer) -> Iterator[RealServer]:
    real_server.empty()
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml")):
        ensure(real_server, obj)
    with installed_definitions(real_server):
        yield real_server


def uses_pod_groups(simulated: Simulated) -> bool:
    created = (each.action for each in simulated.scenario.actions)
    return any(isinstance(each, Create) and each.raw["apiVersion"] == WORKLOAD_API for each in created)


def serves(server: RealServer, api_version: str) -> bool:
    try:
        server.client.request("GET", f"/apis/{api_version}")
    except RefusedError:
        return False
    return True


def _serves_by_classes(server: RealServer) -> bool:
    """Whether its device classes serve extended resources: by default since Kubernetes 1.36."""
    version = server.client.request("GET", "/version")
    return (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 36)


@every_example
def test_example(server: RealServer, tmp_path: Path, file: Path) -> None:
    if file.name == "extended-resources.yaml" and not _serves_by_classes(server):
        pytest.skip("this API server drops extendedResourceName of device classes")
    simulated = Simulated.of(file)
    if uses_pod_groups(simulated) and not serves(server, WORKLOAD_API):
        pytest.skip(f"the API server does not serve {WORKLOAD_API}")

    async def play() -> RealStage:
        stage = RealStage(server, as_the_account(server, tmp_path), simulated)
        async with stage.opened():
            assert await simulated.play(stage) == []
        return stage

    assert asyncio.run(play()).placed == simulated.placed
