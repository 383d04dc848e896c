"""All that `holdfast run` is made of, put together: client, election, runner, health.

    start ─► follow (reflectors are kept warm) ─► lead ─► stop: finish writes, let go of the lease
                                                    └──► the lease was lost: end at once, with an error

A scheduler that has lost its lease ends like kube-scheduler does, and is started anew by whoever
started it: what it believed about writes it was not allowed to make is best forgotten.
"""

import asyncio
import gc
import math
import signal
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from holdfast.actions.scheduler import GARBAGE_AFTER, Scheduler
from holdfast.backends.assembly import controllers
from holdfast.backends.kubernetes.access import Access
from holdfast.backends.kubernetes.clock import Clock
from holdfast.backends.kubernetes.comparing import compare
from holdfast.backends.kubernetes.election import Election
from holdfast.backends.kubernetes.errors import KubernetesError
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.client import Client
from holdfast.backends.kubernetes.http.rate import RateLimit
from holdfast.backends.kubernetes.installing import install_crds
from holdfast.backends.kubernetes.runner import Runner
from holdfast.backends.kubernetes.traffic import Requests, RunnerFigures
from holdfast.backends.metrics import SchedulingMetrics
from holdfast.framework.config import Configuration, VolumeBindingArgs, to_mapping
from holdfast.framework.registry import Registry
from holdfast.server.health import Check, Endpoints, health_app, ping, start_health

HEALTH_PORT = 10259
"""kube-scheduler's."""
_STALE_AFTER = 20.0
"""How much longer than its duration a lease may go without renewal before we are called dead."""
_LAST_WRITES = 20.0
"""How long writes on their way are waited for when we stop, in seconds."""
_ELECTION_LEVELS = {"failed": "warning", "lost": "warning", "not released": "warning"}

Log = Callable[..., None]


class LeaseLost(KubernetesError):  # noqa: N818
    """Somebody else may lead by now."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    access: Access
    configuration: Configuration
    registry: Registry
    elect: bool
    install_crds: bool = False
    health: tuple[str, int] | None = ("0.0.0.0", HEALTH_PORT)
    log: Log = field(default=lambda *_, **__: None)


async def run(settings: RunSettings) -> None:
    """Until SIGTERM or SIGINT. Raises KubernetesError, LeaseLost among them."""
    service = _Service(settings)
    async with service.client:
        await service.run()


class _Service:
    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        configuration, self._log = settings.configuration, settings.log
        self._scheduler = Scheduler(
            configuration, settings.registry, controllers=controllers(configuration)
        )
        self._clock = Clock()
        self._fence = Fence(self._clock.elapsed)
        requests = Requests(urlsplit(settings.access.server).netloc)
        self.client = Client(settings.access, observe=requests, report=self._report_reach)
        election = configuration.leader_election
        figures = RunnerFigures(lambda: self._runner, election.resource_name)
        self._metrics = SchedulingMetrics(self._scheduler, [requests, figures])
        self._runner: Runner | None = None
        self._election = Election(
            self.client,
            election,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            self._fence,
            self._clock,
            lambda what, detail: self._log(
                f"election {what}", level=_ELECTION_LEVELS.get(what, "info"), detail=detail
            ),
        )

    async def run(self) -> None:
        settings = self._settings
        stop = asyncio.Event()
        self._heed_signals(stop)
        if settings.install_crds:
            self._log("CRDs installed", names=await install_crds(self.client))
        connection = settings.configuration.client_connection
        runner = self._runner = Runner(
            self._scheduler,
            self.client,
            self._fence,
            self._clock,
            metrics=self._metrics,
            log=self._log,
            limit=RateLimit(connection.qps, connection.burst),
            claim_timeout=_claim_timeout(settings.configuration),
        )
        gc.set_threshold(GARBAGE_AFTER)
        health = await self._start_health(stop)
        running = asyncio.create_task(runner.run())
        leading = asyncio.create_task(self._lead(runner))
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait(
                (running, leading, stopping), return_when=asyncio.FIRST_COMPLETED
            )
            if stopping in done:
                self._log("stopping")
                if not await runner.stop(_LAST_WRITES):
                    self._log("some writes were not finished", level="warning")
            for task in done:
                task.result()
        finally:
            for task in (running, leading, stopping):
                task.cancel()
            await asyncio.gather(running, leading, stopping, return_exceptions=True)
            await runner.close()
            if settings.elect:
                await self._election.release()
            if health is not None:
                await health()
            self._log("stopped")

    async def _lead(self, runner: Runner) -> None:
        if not self._settings.elect:
            self._fence.open_until(math.inf)
            runner.wake()
            await asyncio.Event().wait()
        await self._election.acquire()
        self._log("leading", identity=self._election.identity)
        runner.wake()
        await self._election.hold()
        raise LeaseLost("the lease was lost; another may lead by now")

    # What others see

    async def _start_health(self, stop: asyncio.Event) -> Any:
        if self._settings.health is None:
            return None
        endpoints = Endpoints(
            checks=[
                ping(),
                Check("leaderElection", self._stale_lease),
                Check("informer-sync", self._unsynced, live=False),
                Check("shutdown", lambda: "stopping" if stop.is_set() else "", live=False),
            ],
            metrics=self._metrics.text,
            configz=lambda: to_mapping(self._settings.configuration),
            more={"/debug/compare": self._compare},
        )
        host, port = self._settings.health
        runner, port = await start_health(health_app(endpoints), host, port)
        self._log("serving", host=host, port=port)
        return runner.cleanup

    def _report_reach(self, what: str, detail: str) -> None:
        level = "warning" if what == "unreachable" else "info"
        particulars = {"detail": detail} if detail else {}
        self._log(f"server {what}", level=level, server=self._settings.access.server, **particulars)

    def _stale_lease(self) -> str:
        if self._settings.elect and self._election.is_stale(_STALE_AFTER):
            return "failed election to renew leadership on lease"
        return ""

    def _unsynced(self) -> str:
        if self._runner is None:
            return "not started yet"
        return "; ".join(self._runner.unsynced())

    async def _compare(self) -> Any:
        return await compare(self.client, self._scheduler)

    async def _log_difference(self) -> None:
        try:
            difference = await compare(self.client, self._scheduler)
        except KubernetesError as error:
            self._log("compare failed", error=str(error))
            return
        found = {name: getattr(difference, name) for name in difference.__struct_fields__}
        self._log("compared", agrees=difference.is_empty, **{k: v for k, v in found.items() if v})

    def _heed_signals(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        comparisons: set[asyncio.Task[None]] = set()

        def start_comparison() -> None:
            task = loop.create_task(self._log_difference())
            comparisons.add(task)
            task.add_done_callback(comparisons.discard)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if hasattr(signal, "SIGUSR2"):
            loop.add_signal_handler(signal.SIGUSR2, start_comparison)


def _claim_timeout(configuration: Configuration) -> float:
    for profile in configuration.profiles:
        args = profile.args.get("VolumeBinding")
        if isinstance(args, VolumeBindingArgs):
            return float(args.bind_timeout_seconds)
    return float(VolumeBindingArgs().bind_timeout_seconds)
