"""The Kubernetes backend's Runner in the scenario's time, a round at a time."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

from drivers.watches import PATIENCE
from holdfast.kube.client import Client
from holdfast.kube.flow_control import Clock
from holdfast.kube.leader_election import Fence
from holdfast.kube.runner import Runner
from holdfast.local.clock import VirtualClock
from holdfast.local.setup import SchedulerFactory
from holdfast.metrics import SchedulingMetrics
from holdfast.scheduler.cluster.decisions import Decision

Heard = Callable[[list[Decision]], None]
"""Called with the decisions of a round, before any of them is carried out."""
_STEPS = 5
"""Turns of the event loop in which what was just fed leads to a write."""


class RoundFence(Fence):
    """Open while a round may run; writes are never fenced."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)

    def check(self) -> None:
        pass


class StandingClock(Clock):
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def elapsed(self) -> float:
        return self._clock.epoch()

    def now(self) -> float:
        return self._clock.epoch()

    def wall(self) -> float:
        return self._clock.epoch()


class SteppedRunner:
    def __init__(self, client: Client, clock: VirtualClock, heard: Heard) -> None:
        self.scheduler = SchedulerFactory.of().scheduler()
        self._fence = RoundFence()
        self._heard = heard
        self._decided = 0
        self._round_made = asyncio.Event()
        self._synced = asyncio.Event()
        self._problems: list[str] = []
        self._runner = Runner(
            self.scheduler,
            client,
            self._fence,
            StandingClock(clock),
            metrics=_Rounds(self),
            log=self._log,
            rng=random.Random(0),
        )
        self._client = client

    async def start(self) -> None:
        """Returns when it has read everything."""
        await self._client.__aenter__()
        self._running = asyncio.create_task(self._runner.run())
        await self._happens(self._synced, "everything is read")

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._runner.close()
        await self._client.close()

    async def round(self) -> bool:
        """Whether anything was decided."""
        self._decided = 0
        self._round_made.clear()
        self._fence.open_until(math.inf)
        self._runner.wake()
        await self._happens(self._round_made, "a round is made")
        return self._decided > 0

    async def still(self) -> None:
        """Returns when all that came was fed, and no write goes on by itself."""
        for _ in range(_STEPS):
            await self._runner.writer.queue.still()
            await asyncio.sleep(0)
        assert not self._problems, self._problems

    def round_done(self, decisions: list[Decision]) -> None:
        self._decided += len(decisions)
        self._heard(decisions)
        if not self.scheduler.unfinished:
            self._fence.close()
            self._round_made.set()

    async def _happens(self, event: asyncio.Event, what: str) -> None:
        happened = asyncio.create_task(event.wait())
        done, _ = await asyncio.wait(
            (happened, self._running), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        if self._running in done:
            self._running.result()
        if not done:
            happened.cancel()
            raise AssertionError(f"not after {PATIENCE:g} s: {what}; {self._runner.unsynced()}")

    def _log(self, event: str, **particulars: object) -> None:
        if event == "synced":
            self._synced.set()
        elif particulars.get("level") == "warning":
            self._problems.append(f"{event}: {particulars}")


class _Rounds(SchedulingMetrics):
    def __init__(self, runner: SteppedRunner) -> None:
        super().__init__(runner.scheduler)
        self._runner = runner

    def round_done(self, seconds: float, decisions: list[Decision]) -> None:
        super().round_done(seconds, decisions)
        self._runner.round_done(decisions)
