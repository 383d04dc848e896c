"""`holdfast provisioner`: creates the reservations that pods request, as a separate process.

reflectors ─► inbox ─► provisioner ─► writes ─► server ─► reflectors …
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESERVATION_API
from holdfast.kube.client import Client
from holdfast.kube.client_settings import Access
from holdfast.kube.decoding import Watched
from holdfast.kube.flow_control import Clock
from holdfast.kube.leader_election import Fence
from holdfast.kube.reflector import Reflector
from holdfast.kube.runner import Log, no_log
from holdfast.kube.service import HealthAnswers, LeasedService, Requests
from holdfast.kube.writer.pod_writes import annotation_write
from holdfast.kube.writer.reservation_writes import ReservationWriter
from holdfast.kube.writer.write_queue import ApiWriter, Lane, WriteQueue
from holdfast.scheduler.cluster.decisions import AnnotatePod, CreateReservation
from holdfast.scheduler.cluster.events import Event
from holdfast.scheduler.controllers.provisioner import Provisioner
from holdfast.scheduler.framework.config import LeaderElection
from holdfast.scheduler.reservations.provisioning_requests import Requirements
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


WATCHED = (
    # Pods with a node request no reservation.
    Watched(KINDS["v1", "Pod"], "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"),
    Watched(KINDS[RESERVATION_API, "Reservation"]),
)


class ProvisionerRunner:
    """`fence` knows whether this process may write; see `Election`."""

    def __init__(
        self,
        client: Client,
        fence: Fence,
        clock: Clock,
        *,
        log: Log = no_log,
        stream: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        self.provisioner = Provisioner(Requirements())
        self._fence = fence
        self._clock = clock
        self._log = log
        self._inbox: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self.reflectors = [
            Reflector(client, each, self._put, self._reporter(each), stream, rng) for each in WATCHED
        ]
        self._api = ApiWriter(client, fence)
        self.queue = WriteQueue(self._write_failed)
        self._reservations = ReservationWriter(self._api, self.queue, self._put)

    async def run(self) -> None:
        """Runs until cancelled."""
        endless = [asyncio.create_task(reflector.run()) for reflector in self.reflectors]
        endless.append(asyncio.create_task(self._loop()))
        try:
            done, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # it cannot have ended but by an error
        finally:
            for task in endless:
                task.cancel()
            await asyncio.gather(*endless, return_exceptions=True)

    def follow(self) -> None:
        """Does nothing: while another process leads, the fence is closed and nothing is decided."""

    async def lead(self, resync: bool) -> None:
        """Starts at once: a reservation that another leader created too has the same name."""
        self._wake.set()

    async def stop(self, patience: float) -> bool:
        """Decides nothing more; waits for what was decided to be written. False if it took too long."""
        self._stopping = True
        return await self.queue.drain(patience)

    async def finish(self, patience: float) -> bool:
        """Sends nothing more; waits for the answers that are due. False if that took too long."""
        return await self.queue.finish(patience)

    async def close(self) -> None:
        await self.queue.close()

    def unsynced(self) -> list[str]:
        """The kinds that have not been read yet, each with the problem."""
        return [
            f"{r.watched.name}: {r.problem or 'not listed yet'}"
            for r in self.reflectors
            if not r.synced.is_set()
        ]

    async def _loop(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()  # one that is not known yet would be made a second time
        self._log("synced", objects=sum(len(reflector) for reflector in self.reflectors))
        while True:
            while self._inbox:
                self.provisioner.feed(self._inbox.popleft())
            if self._fence.is_open and not self._stopping:
                self._decide()
            self._wake.clear()
            if self._inbox:
                continue
            await self._wake.wait()

    def _decide(self) -> None:
        for decision in self.provisioner.run(self._clock.now()):
            if isinstance(decision, CreateReservation):
                self._log("creating", reservation=decision.reservation.metadata.name)
                self._reservations.create(decision)
            elif isinstance(decision, AnnotatePod):
                self._log("refused", level="warning", pod=str(decision.pod), **_why(decision))
                write = annotation_write(self._api, decision, self._put)
                self.queue.submit(Lane.STATUS, decision.pod.uid, write)

    def _put(self, event: Event) -> None:
        self._inbox.append(event)
        self._wake.set()

    def _write_failed(self, error: BaseException) -> None:
        self._log("write failed", level="warning", error=str(error) or type(error).__name__)

    def _reporter(self, watched: Watched) -> Callable[[str, str], None]:
        def report(what: str, particulars: str) -> None:
            level = "warning" if what == "failed" else "debug"
            self._log(f"reflector {what}", level=level, resource=watched.name, detail=particulars)

        return report


def _why(decision: AnnotatePod) -> dict[str, str]:
    return {"error": ", ".join(text for text in decision.annotations.values() if text)}
