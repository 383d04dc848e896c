"""The process around a runner: leader election, health endpoints, shutdown, and its metrics.

    start ─► follow (reflectors stay in sync) ─► lead ─► stop: finish writes, release the lease
               ▲                                   │
               └──── lease lost: all state is discarded

A process that has lost its lease becomes a candidate again with a new runner, whose reflectors have
read nothing yet, and under a new identity. So assumptions about writes with unknown outcome are gone,
and the lease, even if no other process competes for it, is acquired only after it expired, when no
earlier write can arrive.
"""

import asyncio
import math
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.kube.client import Client
from holdfast.kube.flow_control import Clock
from holdfast.kube.leader_election import Election, Fence, announce
from holdfast.kube.runner import Runner
from holdfast.kube.writer.write_queue import Lane
from holdfast.metrics.cluster_metrics import Counter, Histogram
from holdfast.scheduler.framework.config import LeaderElection
from holdfast.serving.health import OPEN_PATHS, Endpoints, HealthCheck, ping, start_health
from holdfast.serving.listener import Handler

_STALE_AFTER = 20.0
"""Seconds beyond the lease duration without renewal after which the process is unhealthy."""
_LAST_WRITES = 5.0
"""How long writes that were decided are waited for when we stop, in seconds; and then, as long again,
the answers to those that have been sent. With the time it may take to release the lease all three fit
into the 30 seconds a pod has to stop."""
_LAST_ANSWERS = 2.0
"""Seconds to wait for health requests in progress when the process stops."""
_LEVELS = {"failed": "warning", "lost": "warning", "not released": "warning"}

Log = Callable[..., None]


class ServiceRunner(Protocol):
    async def run(self) -> None:
        """Runs until cancelled."""

    async def stop(self, patience: float) -> bool:
        """Decides nothing more; waits for what was decided to be written. False if it took too long."""

    async def finish(self, patience: float) -> bool:
        """Sends nothing more; waits for the answers that are due. False if that took too long."""

    async def close(self) -> None: ...

    def follow(self) -> None:
        """Makes no decisions before `lead` is called."""

    async def lead(self, resync: bool) -> None:
        """Decides from now on; with `resync`, once it has read what another leader may have written."""

    def unsynced(self) -> list[str]:
        """The kinds that have not been read yet, each with the problem."""


class HealthAnswers(NamedTuple):
    """What the health port serves besides the checks."""

    where: tuple[str, int] | None
    metrics: Callable[[], bytes]
    configz: Callable[[], Mapping[str, Any]]
    more: Mapping[str, Callable[[], Awaitable[Any]]] = {}
    open_paths: Collection[str] = OPEN_PATHS
    """Paths served to clients on other machines."""
    pages: Mapping[str, Handler] = {}
    """Handlers of paths that start with this; see `Endpoints`."""


class LeasedService:
    """Runs a runner under a lease. The runners use its `fence` and `clock`."""

    def __init__(
        self,
        client: Client,
        lease: LeaderElection,
        elect: bool,
        log: Log,
        clock: Clock | None = None,
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """The `annotations` are written to the lease by the leader."""
        self.clock = clock or Clock()
        self._annotations = annotations
        self.fence = Fence(self.clock.elapsed)
        self.leaderships_lost = 0
        self._client = client
        self._lease = lease
        self._elect = elect
        self._log = log
        self._stop = asyncio.Event()
        self._runner: ServiceRunner | None = None
        self._election = self._new_election()
        self._announcements: set[asyncio.Task[None]] = set()

    def heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    async def run(self, new_runner: Callable[[], ServiceRunner], answers: HealthAnswers) -> None:
        """Runs until a signal. A runner serves until the lease it works under is lost. Raises
        KubernetesError."""
        self._runner = new_runner()
        close_health = await self._start_health(answers)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await self._serve(self._runner, stopping)
            while not self._stop.is_set():
                self._election = self._new_election()
                # Nothing may refer to the old runner when there is a new one: each is as large as the
                # cluster. The step in which its tasks ended does.
                self._runner = None
                await asyncio.sleep(0)
                self._runner = new_runner()
                await self._serve(self._runner, stopping)
        finally:
            for task in (stopping, *self._announcements):
                task.cancel()
            await asyncio.gather(stopping, *self._announcements, return_exceptions=True)
            await close_health()
            self._log("stopped")

    async def _serve(self, runner: ServiceRunner, stopping: "asyncio.Task[Any]") -> None:
        """Runs until a signal arrives or leadership is lost."""
        running = asyncio.create_task(runner.run())
        leading = asyncio.create_task(self._lead(runner))
        finished = False
        try:
            done, _ = await asyncio.wait(
                (stopping, running, leading), return_when=asyncio.FIRST_COMPLETED
            )
            if stopping in done:
                self._log("stopping")
                if not await runner.stop(_LAST_WRITES):
                    self._log("some writes did not finish", level="warning")
                finished = await runner.finish(_LAST_WRITES)
            for task in done:
                task.result()
        finally:
            running.cancel()
            leading.cancel()
            await asyncio.gather(running, leading, return_exceptions=True)
            self.fence.close()
            await runner.close()
            if self._elect and finished:
                await self._election.release()
            elif self._elect and self._stop.is_set():
                # Sent writes may still arrive: the next leader must not start before that.
                self._log("lease not released: writes are still in flight", level="warning")

    async def _lead(self, runner: ServiceRunner) -> None:
        """Returns when leadership is lost."""
        if not self._elect:
            self.fence.open_until(math.inf)
            await runner.lead(resync=False)
            await asyncio.Event().wait()
        election = self._election
        runner.follow()
        await election.acquire()
        self._log("leading", identity=election.identity)
        self._announce(f"{election.identity} became leader")
        starting = asyncio.create_task(runner.lead(resync=not election.is_first))
        try:
            await election.hold()
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        self.leaderships_lost += 1
        self._log("leadership lost: state discarded, now a candidate again", level="warning")
        self._announce(f"{election.identity} stopped leading")

    def _announce(self, message: str) -> None:
        """Emits an Event about the lease, as client-go does."""
        task = asyncio.create_task(announce(self._client, self._lease, message, self.clock.wall()))
        self._announcements.add(task)
        task.add_done_callback(self._announcements.discard)

    def _new_election(self) -> Election:
        name = uuid.UUID(int=self._client.rng.getrandbits(128), version=4)
        return Election(
            self._client,
            self._lease,
            f"{socket.gethostname()}_{name}",
            self.fence,
            self.clock,
            lambda what, detail: self._log(
                f"election {what}", level=_LEVELS.get(what, "info"), detail=detail
            ),
            annotations=self._annotations,
        )

    async def _start_health(self, answers: HealthAnswers) -> Callable[[], Awaitable[None]]:
        if answers.where is None:
            return _nothing
        checks = [
            ping(),
            HealthCheck("leaderElection", self._stale_lease),
            HealthCheck("informer-sync", self._unsynced, live=False),
            HealthCheck("shutdown", lambda: "stopping" if self._stop.is_set() else "", live=False),
        ]
        endpoints = Endpoints(checks, answers.metrics, answers.configz, answers.more, answers.pages)
        host, port = answers.where
        listener, port = await start_health(endpoints, host, port, answers.open_paths)
        self._log("serving", host=host, port=port)

        async def close() -> None:
            await listener.close(_LAST_ANSWERS)

        return close

    def _unsynced(self) -> str:
        return "; ".join(self._runner.unsynced()) if self._runner is not None else "not started yet"

    def _stale_lease(self) -> str:
        if self._elect and self._election.is_stale(_STALE_AFTER):
            return "failed election to renew leadership on lease"
        return ""


async def _nothing() -> None:
    pass


# Metrics of API requests, reflectors and leader election (client-go's names where it has them)


_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Requests:
    """Request counts and latencies; a client calls it as its observer."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._total = Counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            _SECONDS,
            ("verb", "host"),
        )

    def __call__(self, method: str, code: str, seconds: float) -> None:
        self._total.add((code, method, self._host))
        self._seconds.observe(seconds, (method, self._host))

    def collect(self) -> Iterator[Metric]:
        yield self._total.family()
        yield self._seconds.family()


class RunnerFigures:
    """Collects the metrics of a runner's parts at scrape time."""

    def __init__(
        self,
        runner: Callable[[], Runner | None],
        lease_name: str,
        leaderships_lost: Callable[[], int] = int,
    ) -> None:
        self._runner = runner
        self._lease_name = lease_name
        self._leaderships_lost = leaderships_lost

    def collect(self) -> Iterator[Metric]:
        runner = self._runner()
        if runner is None:
            return
        kinds = [reflector.watched.name for reflector in runner.reflectors]
        yield _gauge(
            "holdfast_reflector_objects",
            "Objects of each kind in the cache.",
            zip(kinds, map(len, runner.reflectors), strict=True),
        )
        yield _gauge(
            "holdfast_reflector_in_step",
            "Whether the cache of a kind is in sync with the server.",
            ((kind, not r.problem) for kind, r in zip(kinds, runner.reflectors, strict=True)),
        )
        lists = Counter("holdfast_reflector_lists_total", "How often a kind was listed.", ("resource",))
        for kind, reflector in zip(kinds, runner.reflectors, strict=True):
            lists.add((kind,), reflector.lists)
        yield lists.family()
        waiting = GaugeMetricFamily(
            "holdfast_writes_waiting", "Writes waiting in the queue.", labels=["lane"]
        )
        for lane in Lane:
            waiting.add_metric([lane.name.lower()], runner.writer.queue.length(lane))
        yield waiting
        lost = Counter("holdfast_events_lost_total", "Events dropped because too many were waiting.")
        lost.add(amount=runner.writer.events_lost)
        yield lost.family()
        master = GaugeMetricFamily(
            "leader_election_master_status",
            "Whether this process leads: 1 if it does, 0 if not.",
            labels=["name"],
        )
        master.add_metric([self._lease_name], float(runner.fence.is_open))
        yield master
        leaderships = Counter(
            "holdfast_leadership_lost_total", "How often a lease was not renewed in time."
        )
        leaderships.add(amount=self._leaderships_lost())
        yield leaderships.family()


def _gauge(
    name: str, about: str, values: "Sequence[tuple[str, float]] | Iterator[tuple[str, float]]"
) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["resource"])
    for label, value in values:
        family.add_metric([label], float(value))
    return family
