"""A Runner at work on a server in the same process."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.fake_api import FakeApi, Raw
from harness.fake_client import FakeClient
from harness.virtual_time import LoopClock, until
from holdfast.kube.cache_comparer import Difference, compare
from holdfast.kube.decoding import WATCHED, Watched, read_by_plugins
from holdfast.kube.leader_election import Fence
from holdfast.kube.runner import Log, Runner, no_log
from holdfast.metrics import SchedulingMetrics
from holdfast.scheduler.assembly import controllers, declared_kinds
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.plugins import registry
from holdfast.scheduler.scheduler import Scheduler

MINE = "holdfast-scheduler"


class Cluster:
    def __init__(self, api: FakeApi, runner: Runner, client: FakeClient) -> None:
        self.api = api
        self.runner = runner
        self.client = client
        self.scheduler = runner.scheduler

    async def quiet(self) -> None:
        await until(lambda: self.runner.has_synced and self.runner.is_quiet)
        await asyncio.sleep(1)
        await until(lambda: self.runner.is_quiet)

    async def difference(self) -> Difference:
        return await compare(self.client, self.scheduler)


def new_scheduler(*plugins: type[Plugin]) -> tuple[Scheduler, tuple[Watched, ...]]:
    """With plugins beside those there are; and what is watched for them."""
    known = registry()
    mapping: Raw = {"apiVersion": API_VERSION, "kind": KIND}
    for plugin in plugins:
        known.add(plugin)
    enabled = [{"name": plugin.name} for plugin in plugins]
    mapping["profiles"] = [{"plugins": {"multiPoint": {"enabled": enabled}}}]
    configuration = load(mapping, known.implements())
    watched = read_by_plugins(declared_kinds(configuration, known))
    return Scheduler(configuration, known, controllers=controllers(configuration)), watched


@asynccontextmanager
async def running(
    api: FakeApi, leads: bool = True, plugins: tuple[type[Plugin], ...] = (), log: Log = no_log
) -> AsyncIterator[Cluster]:
    clock = LoopClock()
    fence = Fence(clock.elapsed)
    if leads:
        fence.open_until(math.inf)
    client = FakeClient(api)
    scheduler, watched = new_scheduler(*plugins)
    runner = Runner(
        scheduler,
        client,
        fence,
        clock,
        metrics=SchedulingMetrics(scheduler),
        log=log,
        watched=(*WATCHED, *watched),
        stream=False,
        rng=random.Random(3),
    )
    task = asyncio.create_task(runner.run())
    try:
        yield Cluster(api, runner, client)
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.close()
