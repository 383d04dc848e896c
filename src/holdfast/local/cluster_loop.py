"""A running local cluster: its components on a real clock, and the event loop that drives them.

A step lets every component settle, runs a scheduling round if the scheduler got events or a timer is
due, and carries out the decisions. Between steps the loop sleeps until the store changes or the next
timer is due. It yields to other tasks every few milliseconds.
"""

import asyncio
import sys
import time
from collections.abc import Iterable

from holdfast.local.clock import LocalClock, RealClock
from holdfast.local.cluster_parts import ClusterParts
from holdfast.local.component import Component, Work
from holdfast.local.endpoints import EndpointsController
from holdfast.local.executor import DecisionExecutor
from holdfast.local.kubelet import FullReports
from holdfast.local.namespace_controller import GRACE, Namespaces
from holdfast.local.node_lifecycle import NodeRegistration, PodGC, address_of
from holdfast.local.node_objects import DEFAULT_SHAPE, NodeShape, device_of, new_node
from holdfast.local.pod_resize import PodResizes
from holdfast.local.resource_slices import device_class, slices_of
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Identity, Key, RandomNames, Raw, StoreChange, node_key
from holdfast.local.store.store import Store
from holdfast.local.stored_events import EventExpiry
from holdfast.local.timeline import TimelineRecorder, no_timeline
from holdfast.local.workloads.component import WorkloadControllers
from holdfast.metrics import SchedulingMetrics
from holdfast.scheduler.cluster.decisions import Bind

_SLICE = 0.005
"""Seconds of work before other tasks run."""
_SWITCH_INTERVAL = 0.001
"""Seconds a thread computes before another may."""
_EPSILON = 0.001
_STORY = 20
"""Lines of an object's story that are logged."""


class _MeasuredWorld(ClusterParts):
    metrics: SchedulingMetrics

    def binding(self, key: Key, decision: Bind) -> None:
        self.metrics.pod_bound(decision.pod.uid, self.clock.epoch())


def served_components(
    world: ClusterParts, *, heartbeats: bool = True, namespace_grace: float = 0.0
) -> list[Component]:
    """The components of a served cluster in addition to those of every cluster."""
    objects, clock, timers, kubelets = world.objects, world.clock, world.timers, world.kubelets
    return [
        NodeRegistration(objects, clock, timers, heartbeats),
        PodGC(objects, clock, timers, kubelets),
        PodResizes(objects, clock, world.recorder),
        Namespaces(objects, clock, timers, kubelets, world.record, namespace_grace),
        WorkloadControllers(objects, clock, timers, kubelets, world.recorder),
        EndpointsController(objects, clock, timers),
    ]


class EmbeddedCluster:
    def __init__(
        self,
        setup: SchedulerFactory,
        store: Store,
        clock: LocalClock | None = None,
        record: TimelineRecorder = no_timeline,
        jobs_run_for: float | None = None,
        namespace_grace: float = GRACE,
    ) -> None:
        """Pods of Jobs succeed after `jobs_run_for` seconds if it is given. The objects of a deleted
        namespace stay for `namespace_grace` seconds."""
        clock = clock if clock is not None else RealClock()
        self.store = store
        self.clock = clock
        self.identity = Identity(RandomNames(), clock.stamp)
        self.world = _MeasuredWorld(
            setup,
            store,
            self.identity,
            clock,
            FullReports(address_of),
            record,
            all_budgets=True,
        )
        world = self.world
        world.kubelets.jobs_run_for = jobs_run_for
        world.kubelets.runs_from_start_time = True
        self.metrics = world.metrics = SchedulingMetrics(world.scheduler)
        world.components += served_components(world, namespace_grace=namespace_grace)
        world.components.append(EventExpiry(world.objects, clock, world.timers))
        self._executor = DecisionExecutor(world)
        self._changed = asyncio.Event()
        self._stopping = False
        self._adopt()
        store.observe(self._wake)

    def add_nodes(self, count: int, shape: NodeShape = DEFAULT_SHAPE) -> int:
        """Nodes 1 to that many, of those that are not there yet; how many were there."""
        return sum(not self.add_node(new_node(number, shape)) for number in range(1, count + 1))

    def add_node(self, raw: Raw) -> bool:
        """The node, and what describes its GPUs: the Device, slices and their class. What exists is
        kept; False if the node is among it."""
        objects = self.world.objects
        if node_key(raw["metadata"]["name"]) in self.store:
            return False
        node = objects.create(raw)
        device, slices = device_of(node), slices_of(node)
        for each in (*([device] if device is not None else ()), *slices):
            key = objects.key_of(each)
            before = self.store.get(key)
            if before is not None and before["metadata"].get("ownerReferences"):
                objects.delete(key)  # of an earlier node of this name
                before = None
            if before is None:
                objects.create(each)
        if slices and objects.key_of(device_class()) not in self.store:
            objects.submit(device_class())
        return True

    async def run(self) -> None:
        """Runs until `stop` is called. Raises the error of a component, if there is one."""
        while not self._stopping:
            self._changed.clear()
            if await self._step():
                await asyncio.sleep(0)
            else:
                await self._sleep()

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()

    async def quiet(self) -> None:
        """Returns when there is nothing to do at this moment. For where `run` is not running."""
        while await self._step():
            await asyncio.sleep(0)

    async def _step(self) -> bool:
        """Whether it led to anything."""
        world, clock = self.world, self.clock
        await self._in_slices(world.steps())
        timer = world.scheduler.next_timer()
        if not world.fed and (timer is None or timer > clock.epoch()):
            return False
        world.fed = False
        start = time.perf_counter()
        decisions = world.scheduler.round(
            clock.epoch(), enough=lambda: time.perf_counter() > start + _SLICE
        )
        world.fed = world.scheduler.unfinished
        self.metrics.round_done(time.perf_counter() - start, decisions)
        self._log_reports()
        await self._in_slices(map(self._executor.carry_out, decisions))
        return True

    async def _in_slices(self, steps: Iterable[Work | None]) -> None:
        """Gives way to others whenever the steps have taken long enough."""
        until = time.perf_counter() + _SLICE
        for work in steps:
            if work is not None:
                sys.setswitchinterval(_SWITCH_INTERVAL)
                await asyncio.get_running_loop().run_in_executor(None, work)
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _SLICE

    def _log_reports(self) -> None:
        reports = self.world.scheduler.guard.take_reports()
        failures = self.world.scheduler.cluster.plugin_errors.take_reports()
        if not reports and not failures:
            return
        import structlog  # seldom needed, and slow to import

        for report in reports:
            story = self.world.scheduler.cluster.story(str(report.about))[-_STORY:]
            structlog.get_logger().warning(
                "not converging",
                object=str(report.about),
                message=report.message,
                story=[str(line) for line in story],
            )
        for failed in failures:
            structlog.get_logger().error(
                "plugin failed",
                plugin=failed.plugin,
                extension_point=failed.point,
                message=failed.message,
                traceback=failed.trace,
            )

    async def _sleep(self) -> None:
        """Sleeps until the store changes or a timer is due."""
        world = self.world
        dues = [
            due for due in (world.timers.next_time(), world.scheduler.next_timer()) if due is not None
        ]
        if not dues:
            await self._changed.wait()
            return
        wait = max(min(dues) - self.clock.epoch(), 0.0) + _EPSILON
        try:
            async with asyncio.timeout(wait):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _wake(self, change: StoreChange) -> None:
        if not self._changed.is_set():
            self._changed.set()

    def _adopt(self) -> None:
        """Takes over what the store had before."""
        world = self.world
        for kind in self.store.kinds():
            for raw in self.store.scan(*kind):
                metadata = raw["metadata"]
                key = Key(*kind, metadata.get("namespace", ""), metadata["name"])
                world.adopt(key, raw)
