"""Assembles `holdfast run`: client, scheduler, runner and service; installs the CRDs on request."""

import asyncio
import gc
import random
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from holdfast.api.crds import definitions
from holdfast.api.names import RUNNING_CONFIGURATION
from holdfast.kube.cache_comparer import Difference, compare
from holdfast.kube.client import APPLY, Client, Request, get
from holdfast.kube.client_settings import Access
from holdfast.kube.decoding import WATCHED, Watched, read_by_plugins
from holdfast.kube.errors import KubernetesError
from holdfast.kube.flow_control import Clock, RateLimit
from holdfast.kube.runner import Runner
from holdfast.kube.service import HealthAnswers, LeasedService, Log, Requests, RunnerFigures
from holdfast.metrics import SchedulingMetrics
from holdfast.scheduler.assembly import GARBAGE_AFTER, controllers, declared_kinds
from holdfast.scheduler.framework.config import Configuration, VolumeBindingArgs, to_mapping
from holdfast.scheduler.framework.config.plugin_sets import VOLUME_BINDING
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.scheduler.scheduler import Scheduler
from holdfast.serving.health import OPEN_PATHS
from holdfast.serving.listener import Handler
from holdfast.serving.memory import returning_memory

_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE = 30.0
_LOOK_EVERY = 0.25
_OF_PROCESS = (
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "delayCacheUntilActive",
)
"""Parts of a configuration on which no decision depends."""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Definition(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


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
    pages: Mapping[str, Handler] = field(default_factory=dict)
    """Served beside the health endpoints: handlers of paths that start with this."""
    runner_changed: Callable[[Runner | None], None] = field(default=lambda _: None)
    """Called with each new runner, and with None when the previous one is to be forgotten."""
    log: Log = field(default=lambda *_, **__: None)
    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=random.Random)
    watched: Sequence[Watched] = WATCHED
    collect: Callable[[], object] = gc.collect
    """Called when a runner is done for, which is full of cycles and as large as the cluster."""


async def run(settings: RunSettings) -> None:
    """Runs until SIGTERM or SIGINT. Raises KubernetesError."""
    running = Running(settings)
    async with running.client, returning_memory():
        await running.run()


class Running:
    """A scheduler process. `runner` is the current one; each lost lease starts a new one."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        configuration, self._log = settings.configuration, settings.log
        self._requests = Requests(urlsplit(settings.access.server).netloc)
        self.client = Client(
            settings.access, observe=self._requests, report=self._report_reach, rng=settings.rng
        )
        self._service = LeasedService(
            self.client,
            configuration.leader_election,
            settings.elect,
            self._log,
            settings.clock,
            published_configuration(configuration),
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
        answers = HealthAnswers(
            settings.health,
            lambda: self._metrics.text() if self._metrics is not None else b"",
            lambda: to_mapping(settings.configuration),
            {"/debug/compare": self._compare},
            settings.open_paths,
            settings.pages,
        )
        await service.run(self._new_runner, answers)

    def _new_runner(self) -> Runner:
        configuration = self._settings.configuration
        if self.runner is not None:
            self._settings.runner_changed(None)
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
        self._settings.runner_changed(self.runner)
        return self.runner

    def _report_reach(self, what: str, detail: str) -> None:
        level = "warning" if what == "unreachable" else "info"
        particulars = {"detail": detail} if detail else {}
        self._log(f"server {what}", level=level, server=self._settings.access.server, **particulars)

    async def _compare(self) -> Difference:
        assert self.runner is not None, "the cluster is compared only while there is a runner"
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


def published_configuration(configuration: Configuration) -> dict[str, str]:
    """The annotation of the lease by which commands learn what decisions depend on. What is about this
    process only, such as the path of its kubeconfig, is left out; so are arguments of plugins that are
    not Holdfast's own, which may be secret."""
    found = {key: value for key, value in to_mapping(configuration).items() if key not in _OF_PROCESS}
    own, left_out = {plugin.name for plugin in IN_TREE}, set[str]()
    for profile in found["profiles"]:
        given = profile.get("pluginConfig") or []
        left_out |= {each["name"] for each in given} - own
        profile["pluginConfig"] = [each for each in given if each["name"] in own]
    published = {"configuration": found, "argumentsLeftOut": sorted(left_out)}
    return {RUNNING_CONFIGURATION: msgspec.json.encode(published).decode()}


def _claim_timeout(configuration: Configuration) -> float:
    for profile in configuration.profiles:
        args = profile.args.get(VOLUME_BINDING)
        if isinstance(args, VolumeBindingArgs):
            return float(args.bind_timeout_seconds)
    return float(VolumeBindingArgs().bind_timeout_seconds)


async def install_crds(client: Client) -> list[str]:
    """Applies the CRDs server-side; returns their names once the server has established all of them.

    Overrides fields that other managers set. Raises KubernetesError.
    """
    names = []
    for definition in definitions():
        name = definition["metadata"]["name"]
        path = f"{_COLLECTION}/{name}?fieldManager=holdfast&force=true"
        await client.call(Request("PATCH", path, msgspec.json.encode(definition), APPLY), attempts=5)
        names.append(name)
    for name in names:
        await _established(client, name)
    return names


async def _established(client: Client, name: str) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                answer = await client.call(get(f"{_COLLECTION}/{name}"), attempts=5)
                status = msgspec.json.decode(answer, type=_Definition).status
                if any(c.type == "Established" and c.status == "True" for c in status.conditions or ()):
                    return
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError:
        raise KubernetesError(f"{name}: not established after {_PATIENCE:g} s") from None
