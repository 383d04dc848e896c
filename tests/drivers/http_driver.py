"""A scenario on the embedded cluster: `holdfast up`, but for its clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from drivers.player import JSON, Deletions
from holdfast.api.crds import definitions
from holdfast.backends.embedded.cluster import EmbeddedCluster
from holdfast.backends.embedded.setup import Setup
from holdfast.server.api.bootstrap import bootstrap, ensure_definition
from holdfast.server.api.cluster import Cluster
from holdfast.server.api.definitions import DefinitionKeeper
from holdfast.server.api.server import ApiServer
from holdfast.sim.clock import VirtualClock
from holdfast.sim.timeline import Entry, Timeline
from holdfast.store import Raw, Store


class EmbeddedStage:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timeline = Timeline(self.clock)
        self._store = Store()
        self._cluster = EmbeddedCluster(Setup.of(), self._store, self.clock, self.timeline.tell)
        self.world = self._cluster.world

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._store.observe(Deletions(self.timeline, self.clock).changed)
        api = Cluster(self._store, self.clock, identity=self._cluster.identity)
        bootstrap(api)
        keeper = DefinitionKeeper(api)
        for definition in definitions():
            ensure_definition(api, definition)
        keeper.stop()
        client: TestClient[web.BaseRequest, None] = TestClient(RawTestServer(ApiServer(api).handle))
        async with client as self._client:
            await self.quiet()
            self.timeline.entries.clear()
            yield
        self._store.close()

    @property
    def happened(self) -> list[Entry]:
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
