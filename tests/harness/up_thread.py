"""`holdfast up` in a thread of this process, on a clock that a test can move.

    with UpThread(folder, "--nodes", "3") as up:
        up.create(pod("p"))
        up.settle()
        up.pass_time(10)

The command itself runs, from its options to the addresses it prints. Only signals are left out, which
a thread does not get: `close` stops it.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness.up_process import Client
from holdfast.api.kinds import kind_info
from holdfast.cli.app import load_command
from holdfast.kube.client import path_of
from holdfast.local import cluster_loop
from holdfast.local import up as local_up
from holdfast.local.clock import RealClock
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Store
from holdfast.local.up import Up, UpSettings

Raw = dict[str, Any]
_PATIENCE = 60.0


class MovableClock(RealClock):
    """The machine's clock and what a test adds to it, from ten minutes ago: clients would find objects
    of the future odd."""

    def __init__(self) -> None:
        super().__init__()
        self.added = -600.0

    def epoch(self) -> float:
        return super().epoch() + self.added


class _ObservedCluster(cluster_loop.EmbeddedCluster):
    """A cluster of which it is known whether it has something to do."""

    def __init__(self, setup: SchedulerFactory, store: Store, jobs_run_for: float | None) -> None:
        self.moved = MovableClock()
        super().__init__(setup, store, self.moved, jobs_run_for=jobs_run_for)
        self._asleep = False

    async def _sleep(self) -> None:
        self._asleep = True
        await super()._sleep()
        self._asleep = False

    async def settled(self) -> None:
        while self._changed.is_set() or not self._asleep:
            await asyncio.sleep(0.001)

    async def move(self, seconds: float) -> None:
        self.moved.added += seconds
        self._changed.set()
        await self.settled()


class UpThread:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self.kubeconfig = folder / "holdfast.kubeconfig"
        self._arguments = arguments
        self._up: Up | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.printed = ""

    def __enter__(self) -> UpThread:
        out = io.StringIO()
        with (
            redirect_stdout(out),
            patch.object(local_up, "serve", self._serve),
            patch.object(local_up, "EmbeddedCluster", _ObservedCluster),
        ):
            self._thread.start()
            assert self._ready.wait(_PATIENCE), "it did not start"
        if self._failure is not None:
            raise self._failure
        self.printed = out.getvalue()
        self.client = Client(self.kubeconfig)
        self.settle()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        words = [*self._arguments, "--kubeconfig-out", str(self.kubeconfig)]
        try:
            load_command("up").main(words, standalone_mode=False)
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(
        self, settings: UpSettings, started: Callable[[Up], Awaitable[None] | None]
    ) -> None:
        """As `holdfast.local.up.serve`, without signals."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._up = up = Up(settings)
        try:
            await up.start()
            shown = started(up)
            if shown is not None:
                await shown
            self._ready.set()
            await self._stop.wait()
        finally:
            await up.close()

    def create(self, *objects: Raw) -> None:
        for raw in objects:
            info = kind_info(raw["apiVersion"], raw["kind"])
            namespace = raw["metadata"].get("namespace", "default") if info.namespaced else ""
            self.client.create(path_of(info, namespace), raw)
        self.settle()

    def settle(self) -> None:
        """Returns when nothing is to be done at this moment."""
        asyncio.run_coroutine_threadsafe(self._cluster.settled(), self._running).result(_PATIENCE)

    def pass_time(self, seconds: float) -> None:
        asyncio.run_coroutine_threadsafe(self._cluster.move(seconds), self._running).result(_PATIENCE)

    @property
    def _running(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    @property
    def _cluster(self) -> _ObservedCluster:
        assert self._up is not None
        assert isinstance(self._up.cluster, _ObservedCluster)
        return self._up.cluster
