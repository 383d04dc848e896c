"""A scenario on the embedded cluster: `holdfast up`, but for its clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from drivers.player import JSON, Deletions
from holdfast.api.crds import definitions
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.crd_registry import CrdRegistry
from holdfast.local.apiserver.server import ApiServer
from holdfast.local.apiserver.system_objects import bootstrap, ensure_definition
from holdfast.local.clock import VirtualClock
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Raw, Store
from holdfast.local.timeline import Timeline, TimelineEntry
from holdfast.sim.clock import START


class EmbeddedStage:
    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.timeline = Timeline(self.clock)
        self._store = Store()
        # A scenario deletes a namespace at a moment, as in a simulation.
        self._cluster = EmbeddedCluster(
            SchedulerFactory.of(), self._store, self.clock, self.timeline.record, namespace_grace=0.0
        )
        self.world = self._cluster.world

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._store.observe(Deletions(self.timeline, self.clock).changed)
        api = ApiState(self._store, self.clock, identity=self._cluster.identity)
        bootstrap(api)
        registry = CrdRegistry(api)
        for definition in definitions():
            ensure_definition(api, definition)
        registry.stop()
        client: TestClient[web.BaseRequest, None] = TestClient(RawTestServer(ApiServer(api).handle))
        async with client as self._client:
            await self.quiet()
            self.timeline.entries.clear()
            yield
        self._store.close()

    @property
    def happened(self) -> list[TimelineEntry]:
        return self.timeline.entries

    async def request(
        self, method: str, path: str, body: Raw | None = None, content_type: str = JSON
    ) -> tuple[int, Raw]:
        headers = {"Content-Type": content_type}
        async with self._client.request(method, path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def quiet(self) -> None:
        await self._cluster.quiet()

    async def restart_scheduler(self) -> None:
        self.world.restart_scheduler()
