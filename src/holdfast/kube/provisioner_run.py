"""Assembles `holdfast provisioner`: client, runner and service."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.kube.access import Access
from holdfast.kube.client_metrics import Requests
from holdfast.kube.http.client import Client
from holdfast.kube.provisioner_runner import ProvisionerRunner
from holdfast.kube.service import HealthAnswers, LeasedService, Log
from holdfast.scheduler.controllers.provisioner import Provisioner
from holdfast.scheduler.framework.config import LeaderElection
from holdfast.serving.health import OPEN_PATHS

HEALTH_PORT = 10261
LEASE = "holdfast-provisioner"


@dataclass(frozen=True, slots=True)
class ProvisionerSettings:
    access: Access
    elect: bool = True
    lease_namespace: str = "kube-system"
    health: tuple[str, int] | None = ("0.0.0.0", HEALTH_PORT)
    log: Log = field(default=lambda *_, **__: None)
    open_paths: Collection[str] = OPEN_PATHS


async def run(settings: ProvisionerSettings) -> None:
    """Runs until SIGTERM or SIGINT. Raises KubernetesError."""
    requests = Requests(urlsplit(settings.access.server).netloc)
    lease = LeaderElection(
        leader_elect=settings.elect, resource_name=LEASE, resource_namespace=settings.lease_namespace
    )
    async with Client(settings.access, observe=requests) as client:
        service = LeasedService(client, lease, settings.elect, settings.log)
        service.heed_signals()
        figures = _Figures()
        registry = CollectorRegistry()
        for collector in (requests, figures):
            registry.register(collector)
        ProcessCollector(registry=registry)
        answers = HealthAnswers(
            settings.health,
            lambda: generate_latest(registry),
            lambda: {"leaderElection": msgspec.to_builtins(lease)},
            open_paths=settings.open_paths,
        )

        def new_runner() -> ProvisionerRunner:
            runner = ProvisionerRunner(client, service.fence, service.clock, log=settings.log)
            figures.provisioner = runner.provisioner
            return runner

        await service.run(new_runner, answers)


class _Figures:
    provisioner: Provisioner | None = None

    def collect(self) -> Iterator[Metric]:
        if self.provisioner is None:
            return
        for name, about, total in (
            ("created", "Reservations requested.", self.provisioner.created),
            ("failures", "Reservations that could not be created.", self.provisioner.failures),
        ):
            yield CounterMetricFamily(f"holdfast_provisioner_{name}_total", about, total)
