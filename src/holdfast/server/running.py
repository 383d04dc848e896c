"""All that `holdfast run` is made of, put together: client, scheduler, runner, service."""

import asyncio
import gc
import random
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.actions.scheduler import Scheduler
from holdfast.backends.assembly import GARBAGE_AFTER, controllers, declared_kinds
from holdfast.backends.kubernetes.access import Access
from holdfast.backends.kubernetes.clock import Clock
from holdfast.backends.kubernetes.comparing import Difference, compare
from holdfast.backends.kubernetes.errors import KubernetesError
from holdfast.backends.kubernetes.http.client import Client
from holdfast.backends.kubernetes.http.rate import RateLimit
from holdfast.backends.kubernetes.installing import install_crds
from holdfast.backends.kubernetes.reading.watched import WATCHED, Watched, read_by_plugins
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
    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=random.Random)
    watched: Sequence[Watched] = WATCHED
    collect: Callable[[], object] = gc.collect
    """Called when a runner is done for, which is full of cycles and as large as the cluster."""


async def run(settings: RunSettings) -> None:
    """Until SIGTERM or SIGINT. Raises KubernetesError."""
    running = Running(settings)
    async with running.client:
        await running.run()


class Running:
    """A scheduler process. `runner` is the one at work; there is another after each lost lease."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        configuration, self._log = settings.configuration, settings.log
        self._requests = Requests(urlsplit(settings.access.server).netloc)
        self.client = Client(
            settings.access, observe=self._requests, report=self._report_reach, rng=settings.rng
        )
        self._service = Service(
            self.client, configuration.leader_election, settings.elect, self._log, settings.clock
        )
        kinds = declared_kinds(configuration, settings.registry)
        self._read_by_plugins = read_by_plugins(kinds)
        self._metrics: SchedulingMetrics | None = None
        self.runner: Runner | None = None

    async def run(self) -> None:
        settings, service = self._settings, self._service
        service.heed_signals()
        self._compare_on_signal()
        if settings.install_crds:
            self._log("CRDs installed", names=await install_crds(self.client))
        gc.set_threshold(*GARBAGE_AFTER)
        answers = Answers(
            settings.health,
            lambda: self._metrics.text() if self._metrics is not None else b"",
            lambda: to_mapping(settings.configuration),
            {"/debug/compare": self._compare},
            settings.open_paths,
        )
        await service.run(self._new_runner, answers)

    def _new_runner(self) -> Runner:
        configuration = self._settings.configuration
        if self.runner is not None:
            self.runner = self._metrics = None
            self._settings.collect()
        scheduler = Scheduler(
            configuration, self._settings.registry, controllers=controllers(configuration)
        )
        name = configuration.leader_election.resource_name
        figures = RunnerFigures(lambda: self.runner, name, lambda: self._service.leaderships_lost)
        self._metrics = SchedulingMetrics(scheduler, [self._requests, figures])
        connection = configuration.client_connection
        self.runner = Runner(
            scheduler,
            self.client,
            self._service.fence,
            self._service.clock,
            metrics=self._metrics,
            log=self._log,
            limit=RateLimit(connection.qps, connection.burst),
            watched=(*self._settings.watched, *self._read_by_plugins),
            claim_timeout=_claim_timeout(configuration),
        )
        return self.runner

    def _report_reach(self, what: str, detail: str) -> None:
        level = "warning" if what == "unreachable" else "info"
        particulars = {"detail": detail} if detail else {}
        self._log(f"server {what}", level=level, server=self._settings.access.server, **particulars)

    async def _compare(self) -> Difference:
        assert self.runner is not None, "served only once there is one"
        return await compare(self.client, self.runner.scheduler)

    async def _log_difference(self) -> None:
        try:
            difference = await self._compare()
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
