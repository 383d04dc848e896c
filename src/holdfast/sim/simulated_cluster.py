"""The simulated cluster: a local cluster on a virtual clock with a timeline, node usage and the
audit.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.api.devices import Device
from holdfast.api.kinds import KINDS
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import ObjectKind
from holdfast.local.cluster_parts import ClusterParts as EmbeddedWorld
from holdfast.local.kubelet import BareReports
from holdfast.local.namespace_controller import Namespaces
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Identity, Key, SeededNames, StoreChange
from holdfast.local.store.store import Store
from holdfast.scheduler.cluster.decisions import Bind
from holdfast.sim.audit import Audit
from holdfast.sim.clock import START, VirtualClock
from holdfast.sim.errors import InvariantBroken
from holdfast.sim.invariants import stories
from holdfast.sim.node_usage import NodeUsage
from holdfast.sim.summary import RunFigures
from holdfast.sim.timeline import Timeline
from holdfast.sim.workloads import ScenarioWorkloads

_KNOWN = frozenset((info.group, info.kind) for info in KINDS.values())


class SimulatedCluster(EmbeddedWorld):
    clock: VirtualClock

    def __init__(
        self,
        setup: SchedulerFactory,
        seed: int,
        start: float = START,
        *,
        audit: bool = False,
        kinds: Iterable[ObjectKind] = (),
    ) -> None:
        clock = VirtualClock(start)
        self.audit = (
            Audit(setup.plugins, setup.checks, setup.restricts, setup.obstacles) if audit else None
        )
        identity = Identity(SeededNames(seed), clock.stamp)
        self.timeline = Timeline(clock)
        self.node_usage = NodeUsage()
        self.figures = RunFigures()
        self.views: dict[Key, Any] = {}
        """Objects as the scheduler last received them."""
        self._checked: dict[tuple[str, str], bool] = {}
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
            Namespaces(self.objects, clock, self.kubelets, self.timeline.record),
        ]

    def binding(self, key: Key, decision: Bind) -> None:
        view = self.views[key]
        assert isinstance(view, Pod)
        scheduler = view.spec.scheduler_name
        problems = self.node_usage.does_not_fit(
            view, decision.node, lambda resource: self._checks(scheduler, resource)
        )
        if problems:
            raise self.broken(problems)
        self.figures.pod_bound(decision.pod.uid, self.clock.t)

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
            if before is None:
                self.figures.pod_created(view, t)
        elif isinstance(view, Node):
            self.node_usage.put_node(view, t)
        elif isinstance(view, Device):
            self.node_usage.put_device(view)
        elif key.kind == "Device":
            self.node_usage.drop_device(key.name)
        elif key.kind == "Pod" and before is not None:
            self.node_usage.drop_pod(before["metadata"]["uid"], t)
        elif key.kind == "Node" and before is not None:
            self.node_usage.drop_node(key.name, t)
