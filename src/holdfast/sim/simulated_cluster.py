"""The simulated cluster: a local cluster on a virtual clock, with a timeline, node usage, the audit,
and invariants that are checked after every step.
"""

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import Any

from holdfast.api.annotations import ReservationAllocated
from holdfast.api.decode import decode_json
from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLD_LABEL, RESERVATION_ALLOCATED, RESERVATION_API, STARVATION
from holdfast.api.node import Device, Node
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import ObjectKind
from holdfast.api.reservation import Reservation
from holdfast.local.clock import VirtualClock
from holdfast.local.cluster_parts import ClusterParts
from holdfast.local.component import ENDED
from holdfast.local.kubelet import BareReports
from holdfast.local.namespace_controller import Namespaces
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Identity, Key, SeededNames, StoreChange
from holdfast.local.store.store import Store
from holdfast.local.timeline import Timeline
from holdfast.scheduler.cluster.decisions import Bind, Emit
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import validate_state
from holdfast.sim.audit import Audit
from holdfast.sim.clock import START
from holdfast.sim.node_usage import NodeUsage
from holdfast.sim.run_history import RunHistory
from holdfast.sim.summary import RunFigures
from holdfast.snapshot.dump_workloads import ScenarioWorkloads

_KNOWN = frozenset((info.group, info.kind) for info in KINDS.values())


class InvariantBroken(HoldfastError):
    """`problems` are the violations; `stories` the history of the objects they name."""

    def __init__(self, t: float, problems: Iterable[str], stories: Iterable[str] = ()) -> None:
        self.t = t
        self.problems = list(problems)
        self.stories = list(stories)
        super().__init__("\n".join([*self.problems, *self.stories]))


class SimulatedCluster(ClusterParts):
    clock: VirtualClock

    def __init__(
        self,
        setup: SchedulerFactory,
        seed: int,
        start: float = START,
        *,
        audit: bool = False,
        history: bool = False,
        kinds: Iterable[ObjectKind] = (),
    ) -> None:
        clock = VirtualClock(start)
        self.audit = (
            Audit(
                setup.plugins,
                setup.checks,
                setup.restricts,
                setup.obstacles,
                setup.bounds_limits,
            )
            if audit
            else None
        )
        identity = Identity(SeededNames(seed), clock.stamp)
        self.timeline = Timeline(clock)
        self.node_usage = NodeUsage()
        self.figures = RunFigures(start)
        self.history = RunHistory(self.node_usage) if history else None
        self.views: dict[Key, Any] = {}
        """Objects as the scheduler last received them."""
        self._checked: dict[tuple[str, str], bool] = {}
        self.stores_events = True
        """Whether Events become objects."""
        super().__init__(
            setup,
            Store(keep=0),
            identity,
            clock,
            BareReports(),
            self.timeline.record,
            all_budgets=False,
            kinds=kinds,
        )
        self.workloads = ScenarioWorkloads(
            self.objects, clock, self.timers, self.kubelets, self.recorder
        )
        self.components += [
            self.workloads,
            Namespaces(self.objects, clock, self.timers, self.kubelets, self.timeline.record),
        ]

    def binding(self, key: Key, decision: Bind) -> None:
        view = self.views[key]
        assert isinstance(view, Pod)
        scheduler = view.spec.scheduler_name
        by_claim = self.scheduler.cluster.claims.extended
        problems = self.node_usage.does_not_fit(
            view,
            decision.node,
            lambda resource: resource not in by_claim and self._checks(scheduler, resource),
        )
        if problems:
            raise self.broken(problems)
        self.figures.pod_bound(decision.pod.uid, self.clock.t)
        allocated = decision.annotations.get(RESERVATION_ALLOCATED)
        if allocated is not None:
            with suppress(InvalidObject):  # a Bind plugin from outside may write anything
                uid = decode_json(allocated, ReservationAllocated).uid
                self.node_usage.reservations.pod_bound(uid)

    def emit(self, decision: Emit) -> None:
        if self.stores_events:
            super().emit(decision)

    def _checks(self, scheduler_name: str, resource: str) -> bool:
        """As configured."""
        asked = (scheduler_name, resource)
        if asked not in self._checked:
            self._checked[asked] = self.setup.checks(*asked)
        return self._checked[asked]

    def broken(self, problems: list[str]) -> InvariantBroken:
        lines = stories(self.scheduler.cluster, self.clock, problems)
        return InvariantBroken(self.clock.t, problems, lines)

    def viewed(self, key: Key, view: Any) -> None:
        self.views[key] = view

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] not in _KNOWN:
            super().changed(change)  # nothing but plugins knows what it is
            return
        if self.audit is not None:
            self.audit.changed(key.kind, key.namespace, key.name, before, after)
        super().changed(change)
        if after is None:
            self.views.pop(key, None)
        view, t = self.views.get(key), self.clock.t
        if isinstance(view, Pod):
            self.node_usage.put_pod(view, t)
            if self.history is not None:
                self.history.put_pod(view)
            if before is None:
                self.figures.pod_created(view, t)
        elif isinstance(view, Node):
            self.node_usage.put_node(view, t)
        elif isinstance(view, Reservation):
            self.node_usage.put_reservation(view, t)
        elif isinstance(view, Device):
            self.node_usage.put_device(view, t)
        elif key.kind == "Device":
            self.node_usage.drop_device(key.name, t)
        elif key.kind == "Pod" and before is not None:
            uid = before["metadata"]["uid"]
            self.node_usage.drop_pod(uid, t)
            if self.history is not None:
                self.history.drop_pod(uid)
        elif key.kind == "Node" and before is not None:
            self.node_usage.drop_node(key.name, t)
        elif key.kind == "Reservation" and before is not None:
            self.node_usage.drop_reservation(before["metadata"]["uid"], t)


# Invariants, checked after every step


RESERVATION_GROUP = RESERVATION_API.partition("/")[0]
_STORY_LINES = 20


def broken(scheduler: Scheduler, store: Store, serves: Callable[[str], bool]) -> list[str]:
    """All inconsistencies within the scheduler's state, and between it and the objects."""
    return [
        *validate_state(scheduler.cluster),
        *_differences(scheduler, store, serves),
        *_held_for_none(scheduler.cluster, store, scheduler.binding.waiting),
    ]


def _differences(scheduler: Scheduler, store: Store, serves: Callable[[str], bool]) -> Iterable[str]:
    cluster, queue = scheduler.cluster, scheduler.queue
    known = dict(cluster.pods)
    for raw in store.scan("", "Pod"):
        if raw["status"].get("phase") in ENDED:
            continue
        metadata = raw["metadata"]
        name = f"Pod/{metadata['namespace']}/{metadata['name']}"
        pod = known.pop(metadata["uid"], None)
        node = raw["spec"].get("nodeName") or ""
        if pod is None:
            if node:
                yield f"{name}: is on {node}, but the scheduler does not know it"
            continue
        seen = cluster.nodes.name(pod.row) if pod.row >= 0 else ""
        if seen != node and pod.uid not in scheduler.binding.waiting:
            yield f"{name}: is on {node or 'no node'}, the scheduler has it on {seen or 'none'}"
        waits = pod.phase is Phase.PENDING and serves(pod.scheduler)
        if waits and queue.place(pod.uid) is None:
            yield f"{name}: waits for a node, but is in no queue"
    for pod in known.values():
        yield f"{pod.ref}: the scheduler has it, but it no longer exists"


def _held_for_none(cluster: Cluster, store: Store, waiting: Container[str]) -> Iterable[str]:
    """A starvation hold must be for a pending pod of a job that exists; it may wait in Permit."""
    if not cluster.reservations.starvation_holds:
        return
    for raw in store.scan(RESERVATION_GROUP, "Reservation"):
        metadata = raw["metadata"]
        live = raw.get("status", {}).get("phase", "Pending") not in ("Succeeded", "Failed")
        if not live or (metadata.get("labels") or {}).get(HOLD_LABEL) != STARVATION:
            continue
        name = f"Reservation/{metadata['name']}"
        pod = cluster.pods.get(raw["spec"]["owners"][0]["object"]["uid"])
        if pod is None:
            yield f"{name}: its capacity is for a pod that no longer exists"
        elif pod.row >= 0 and pod.uid not in waiting:
            yield f"{name}: its capacity is for {pod.ref}, which is placed"
        elif (job := cluster.jobs.of(pod)) is not None and not job.is_known:
            yield f"{name}: its capacity is for {job.name}, which does not exist"


def stories(cluster: Cluster, clock: VirtualClock, problems: Iterable[str]) -> list[str]:
    """The history of the objects that problems name."""
    names = dict.fromkeys(
        word.rstrip(":,")
        for problem in problems
        for word in problem.split()
        if word.startswith(("Pod/", "Node/", "Reservation/"))
    )
    shown = []
    for name in list(names)[:10]:
        lines = cluster.story(name)[-_STORY_LINES:]
        shown.append(f"story of {name}:")
        shown.extend(f"  {line._replace(time=clock.since_start(line.time))}" for line in lines)
    return shown
