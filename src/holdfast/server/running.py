"""All that `holdfast run` is made of, put together: client, scheduler, runner, service."""

import asyncio
import gc
import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from holdfast.actions.scheduler import Scheduler
from holdfast.backends.assembly import GARBAGE_AFTER, controllers
from holdfast.backends.kubernetes.access import Access
from holdfast.backends.kubernetes.comparing import compare
from holdfast.backends.kubernetes.errors import KubernetesError
from holdfast.backends.kubernetes.http.client import Client
from holdfast.backends.kubernetes.http.rate import RateLimit
from holdfast.backends.kubernetes.installing import install_crds
from holdfast.backends.kubernetes.runner import Runner
from holdfast.backends.kubernetes.traffic import Requests, RunnerFigures
from holdfast.backends.metrics import SchedulingMetrics
from holdfast.framework.config import Configuration, VolumeBindingArgs, to_mapping
from holdfast.framework.registry import Registry
from holdfast.server.health import OPEN_PATHS
from holdfast.server.service import Answers, Log, Service

HEALTH_PORT = 10259
"""kube-scheduler's."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    access: Access
    configuration: Configuration
    registry: Registry
    elect: bool
    install_crds: bool = False
    health: tuple[str, int] | None = ("0.0.0.0", HEALTH_PORT)
    open_paths: Collection[str] = OPEN_PATHS
    log: Log = field(default=lambda *_, **__: None)


async def run(settings: RunSettings) -> None:
    """Until SIGTERM or SIGINT. Raises KubernetesError, LeaseLost among them."""
    running = _Running(settings)
    async with running.client:
        await running.run()


class _Running:
    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        configuration, self._log = settings.configuration, settings.log
        self._scheduler = Scheduler(
            configuration, settings.registry, controllers=controllers(configuration)
        )
        requests = Requests(urlsplit(settings.access.server).netloc)
        self.client = Client(settings.access, observe=requests, report=self._report_reach)
        election = configuration.leader_election
        figures = RunnerFigures(lambda: self._runner, election.resource_name)
        self._metrics = SchedulingMetrics(self._scheduler, [requests, figures])
        self._runner: Runner | None = None
        self._service = Service(self.client, election, settings.elect, self._log)

    async def run(self) -> None:
        settings, service = self._settings, self._service
        service.heed_signals()
        self._compare_on_signal()
        if settings.install_crds:
            self._log("CRDs installed", names=await install_crds(self.client))
        connection = settings.configuration.client_connection
        runner = self._runner = Runner(
            self._scheduler,
            self.client,
            service.fence,
            service.clock,
            metrics=self._metrics,
            log=self._log,
            limit=RateLimit(connection.qps, connection.burst),
            claim_timeout=_claim_timeout(settings.configuration),
        )
        gc.set_threshold(GARBAGE_AFTER)
        answers = Answers(
            settings.health,
            self._metrics.text,
            lambda: to_mapping(settings.configuration),
            {"/debug/compare": self._compare},
            settings.open_paths,
        )
        await service.run(runner, answers)

    def _report_reach(self, what: str, detail: str) -> None:
        level = "warning" if what == "unreachable" else "info"
        particulars = {"detail": detail} if detail else {}
        self._log(f"server {what}", level=level, server=self._settings.access.server, **particulars)

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

    def _compare_on_signal(self) -> None:
        if not hasattr(signal, "SIGUSR2"):
            return
        loop = asyncio.get_running_loop()
        comparisons: set[asyncio.Task[None]] = set()

        def start_comparison() -> None:
            task = loop.create_task(self._log_difference())
            comparisons.add(task)
            task.add_done_callback(comparisons.discard)

        loop.add_signal_handler(signal.SIGUSR2, start_comparison)


def _claim_timeout(configuration: Configuration) -> float:
    for profile in configuration.profiles:
        args = profile.args.get("VolumeBinding")
        if isinstance(args, VolumeBindingArgs):
            return float(args.bind_timeout_seconds)
    return float(VolumeBindingArgs().bind_timeout_seconds)
