"""A scenario on a real API server: `holdfast run`, but for its clock.

    users ──► kube-apiserver ◄──► the Kubernetes backend's Runner
                    ▲
                    └──► the embedded cluster's kubelets, volumes, budgets, taints, …

There are no controllers and no kubelets beside a bare API server, so those of the embedded cluster do
their work there, over watches and requests. The Runner makes one round at a time, each when all that
was written before is known everywhere; so what happens at one moment of the scenario is decided
together, as in a simulation.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from drivers.naming import as_written, made
from drivers.player import JSON, MERGE, Deletions
from drivers.real_client import Requests, SeenClient
from drivers.scenarios import Placed, Simulated
from drivers.served_store import KINDS_KEPT, ServedStore
from drivers.stepped_runner import SteppedRunner
from drivers.watches import PATIENCE, Times
from holdfast.api.kinds import KindInfo
from holdfast.kube.client import get, path_of
from holdfast.kube.client_settings import Access
from holdfast.kube.errors import ApiError
from holdfast.kube.kubeconfig import find_access
from holdfast.local.clock import LocalClock, VirtualClock
from holdfast.local.cluster_loop import served_components
from holdfast.local.cluster_parts import ClusterParts
from holdfast.local.endpoints import EndpointsController
from holdfast.local.executor import DecisionExecutor, reservation_of
from holdfast.local.kubelet import FullReports
from holdfast.local.node_lifecycle import address_of
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import POD, Identity, Key, RandomNames, Raw, StoreChange
from holdfast.local.store.store import Store
from holdfast.local.timeline import CREATED, Timeline, TimelineEntry, TimelineRecorder, no_timeline
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.events import Event
from holdfast.sim.clock import START
from realserver.server import RealServer

_IDLE = 120.0
_FORBIDDEN = 403
_NOT_KNOWN_YET = "no PriorityClass with name"
"""A server admits pods by the classes its own watch has shown it, which may be a moment late."""
_RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


class Surroundings(ClusterParts):
    """All of a cluster but its scheduler, which is elsewhere."""

    def __init__(
        self, setup: SchedulerFactory, store: Store, clock: LocalClock, record: TimelineRecorder
    ) -> None:
        identity = Identity(RandomNames(), clock.stamp)
        reports = FullReports(address_of)
        super().__init__(
            setup,
            store,
            identity,
            clock,
            reports,
            record,
            all_budgets=True,
        )

    def feed(self, event: Event) -> None:
        pass


class RealStage:
    """The scheduler has the kubeconfig given; everyone else may do anything."""

    def __init__(self, server: RealServer, schedulers: Path, simulated: Simulated) -> None:
        self._simulated = simulated
        self._schedulers = find_access(str(schedulers))
        self.clock = VirtualClock(START)
        self.timeline = Timeline(self.clock)
        self.placed: Placed = set()
        """Which pod was bound when, where and through what, by what the server showed."""
        self._times = Times(self.clock)
        self._requests = Requests(server.client, self._times)
        self._watches = self._requests.watches
        self._store = ServedStore(self._requests)
        self._setup = SchedulerFactory.of()
        self.world = Surroundings(self._setup, self._store, self.clock, self.timeline.record)
        self.world.components += [
            each
            for each in served_components(self.world, heartbeats=False)
            if not isinstance(each, EndpointsController)  # no scheduler reads what it writes
        ]
        self._store.observe(self._changed)
        self._store.observe(Deletions(self.timeline, self.clock).changed)
        self._client = self._new_client(find_access(str(server.kubeconfig())))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._client:
            read = [asyncio.Event() for _ in KINDS_KEPT]
            following = [
                asyncio.create_task(self._follow(info, done))
                for info, done in zip(KINDS_KEPT.values(), read, strict=True)
            ]
            try:
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*(done.wait() for done in read))
                for task in following:
                    if task.done():
                        task.result()
                there = {key for kind in self._store.kinds() for key in _keys(self._store, *kind)}
                await self._start_runner()
                self.timeline.entries.clear()
                try:
                    yield
                finally:
                    await self._runner.stop()
                    self._clear_away(there)
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)

    @property
    def happened(self) -> list[TimelineEntry]:
        return self._simulated.arranged(self.timeline.entries)

    async def request(
        self, method: str, path: str, body: Raw | None = None, content_type: str = JSON
    ) -> tuple[int, Raw]:
        if body is not None and body.get("kind") == "Pod":
            body = self._with_runtime_class(body)
        status, answer = self._requests.make(method, path, body, content_type)
        end = time.monotonic() + PATIENCE
        while status == _FORBIDDEN and _NOT_KNOWN_YET in answer["message"] and time.monotonic() < end:
            status, answer = self._requests.make(method, path, body, content_type)
        return status, answer

    def _with_runtime_class(self, pod: Raw) -> Raw:
        """A real server takes a pod's overhead from its RuntimeClass alone."""
        spec = pod.get("spec") or {}
        overhead = spec.get("overhead")
        if not overhead or spec.get("runtimeClassName"):
            return pod
        parts = (f"{name}-{amount}" for name, amount in sorted(overhead.items()))
        name = "-".join(("scenario", *parts)).lower().replace("/", "-")
        made = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": "scenario",
            "overhead": {"podFixed": overhead},
        }
        status, answer = self._requests.make("POST", _RUNTIME_CLASSES, made)
        assert status in (200, 409), answer
        return {**pod, "spec": {**spec, "runtimeClassName": name}}

    async def quiet(self) -> None:
        while await self._play_round():
            pass

    async def restart_scheduler(self) -> None:
        await self._runner.stop()
        await self._start_runner()

    def _new_client(self, access: Access) -> SeenClient:
        return SeenClient(access, self._watches, self._times)

    async def _start_runner(self) -> None:
        self._runner = SteppedRunner(self._new_client(self._schedulers), self.clock, self._heard)
        self.world.scheduler = self._runner.scheduler
        await self._runner.start()

    async def _play_round(self) -> bool:
        """Whether it led to anything."""
        await self._all_known()
        before = self._store.revision
        self.world.settle()
        await self._all_known()
        decided = await self._runner.round()
        await self._all_known()
        return decided or self._store.revision != before

    async def _all_known(self) -> None:
        """Returns when everyone knows all that was written, and no one is writing."""
        while True:
            await self._watches.caught_up()
            await self._runner.still()
            if not self._watches.behind:
                return

    async def _follow(self, info: KindInfo, read: asyncio.Event) -> None:
        try:
            await self._watch(info, read)
        except ApiError as error:
            if error.status != 404:  # a kind that is not defined there
                raise
        finally:
            read.set()

    async def _watch(self, info: KindInfo, read: asyncio.Event) -> None:
        path = path_of(info)
        listed = json.loads(await self._client.send(get(path)))
        for raw in listed["items"] or ():
            self._store.saw("ADDED", info, raw)
        query = f"watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
        async with self._client.watch(f"{path}?{query}", _IDLE) as lines:
            read.set()
            async for line in lines:
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                self._store.saw(event["type"], info, event["object"])

    def _heard(self, decisions: list[Decision]) -> None:
        """Records decisions as the embedded cluster does, without carrying them out."""
        if not decisions:
            return
        copy = Store(keep=0)
        for kind in self._store.kinds():
            for key in _keys(self._store, *kind):
                raw = self._store.get(key)
                assert raw is not None
                copy.create(key, raw)
        rehearsal = Surroundings(self._setup, copy, self.clock, no_timeline)
        rehearsal.record = self._record_decision
        executor = DecisionExecutor(rehearsal)
        for decision in decisions:
            executor.carry_out(decision)

    def _record_decision(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None:
        if event != CREATED:  # recorded when the server shows it
            self.timeline.record(key, event, node=node, reservation=reservation, message=message)

    def _changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD and before is not None and after is not None:
            node = after["spec"].get("nodeName")
            if node and not before["spec"].get("nodeName"):
                pod = as_written(str(key))
                self.placed.add((self.clock.t, pod, node, made(reservation_of(after))))

    def _clear_away(self, there: set[Key]) -> None:
        """Deletes what the scenario has left."""
        make = self._requests.make
        for kind, info in KINDS_KEPT.items():
            for key in _keys(self._store, *kind):
                if key in there:
                    continue
                path = path_of(info, key.namespace, key.name)
                raw = self._store.get(key)
                if raw is not None and raw["metadata"].get("finalizers"):
                    make("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
                make("DELETE", path, {"gracePeriodSeconds": 0})
                if key.kind == "Namespace":
                    self._store.delete(key)


def _keys(store: Store, group: str, kind: str) -> list[Key]:
    metas = [raw["metadata"] for raw in store.scan(group, kind)]
    return [Key(group, kind, meta.get("namespace", ""), meta["name"]) for meta in metas]
