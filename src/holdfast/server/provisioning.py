"""All that `holdfast provisioner` is made of, put together: client, election, runner, health."""

import asyncio
import math
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.backends.kubernetes.access import Access
from holdfast.backends.kubernetes.clock import Clock
from holdfast.backends.kubernetes.election import Election
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.client import Client
from holdfast.backends.kubernetes.provisioning import ProvisionerRunner
from holdfast.backends.kubernetes.traffic import Requests
from holdfast.framework.config import LeaderElection
from holdfast.server.health import Check, Endpoints, health_app, ping, start_health
from holdfast.server.running import LeaseLost

HEALTH_PORT = 10261
LEASE = "holdfast-provisioner"
_STALE_AFTER = 20.0
_LAST_WRITES = 10.0

Log = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ProvisionerSettings:
    access: Access
    elect: bool = True
    lease_namespace: str = "kube-system"
    health: tuple[str, int] | None = ("0.0.0.0", HEALTH_PORT)
    log: Log = field(default=lambda *_, **__: None)


async def run(settings: ProvisionerSettings) -> None:
    """Until SIGTERM or SIGINT. Raises KubernetesError, LeaseLost among them."""
    requests = Requests(urlsplit(settings.access.server).netloc)
    async with Client(settings.access, observe=requests) as client:
        await _Service(settings, client, requests).run()


class _Service:
    def __init__(self, settings: ProvisionerSettings, client: Client, requests: Requests) -> None:
        self._settings = settings
        self._log = settings.log
        self._clock = Clock()
        self._fence = Fence(self._clock.elapsed)
        self._lease = LeaderElection(
            leader_elect=settings.elect,
            resource_name=LEASE,
            resource_namespace=settings.lease_namespace,
        )
        self._election = Election(
            client,
            self._lease,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            self._fence,
            self._clock,
            lambda what, detail: self._log(f"election {what}", detail=detail),
        )
        self._runner = ProvisionerRunner(client, self._fence, self._clock, log=self._log)
        self._registry = CollectorRegistry()
        for collector in (requests, _Figures(self._runner)):
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    async def run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        health = await self._start_health(stop)
        tasks = [
            asyncio.create_task(work)
            for work in (stop.wait(), self._runner.run(), self._lead(self._runner))
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] in done:
                self._log("stopping")
                await self._runner.stop(_LAST_WRITES)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._runner.close()
            if self._settings.elect:
                await self._election.release()
            if health is not None:
                await health()
            self._log("stopped")

    async def _lead(self, runner: ProvisionerRunner) -> None:
        if not self._settings.elect:
            self._fence.open_until(math.inf)
            runner.wake()
            await asyncio.Event().wait()
        await self._election.acquire()
        self._log("leading", identity=self._election.identity)
        runner.wake()
        await self._election.hold()
        raise LeaseLost("the lease was lost; another may lead by now")

    async def _start_health(self, stop: asyncio.Event) -> Any:
        if self._settings.health is None:
            return None
        endpoints = Endpoints(
            checks=[
                ping(),
                Check("leaderElection", self._stale_lease),
                Check("informer-sync", lambda: "; ".join(self._runner.unsynced()), live=False),
                Check("shutdown", lambda: "stopping" if stop.is_set() else "", live=False),
            ],
            metrics=lambda: generate_latest(self._registry),
            configz=lambda: {"leaderElection": msgspec.to_builtins(self._lease)},
        )
        host, port = self._settings.health
        runner, port = await start_health(health_app(endpoints), host, port)
        self._log("serving", host=host, port=port)
        return runner.cleanup

    def _stale_lease(self) -> str:
        if self._settings.elect and self._election.is_stale(_STALE_AFTER):
            return "failed election to renew leadership on lease"
        return ""


class _Figures:
    def __init__(self, runner: ProvisionerRunner) -> None:
        self._provisioner = runner.provisioner

    def collect(self) -> Iterator[Metric]:
        for name, about, total in (
            ("created", "Reservations that were to be created.", self._provisioner.created),
            ("failures", "Reservations that could not be created.", self._provisioner.failures),
        ):
            yield CounterMetricFamily(f"holdfast_provisioner_{name}_total", about, total)
