"""The scheduler driven by hand: typed objects and events in, the decisions of each round out.

    driver = Driver().add(make_node("n1").allocatable(cpu="4").obj(), pod)
    assert driver.binds() == {"p": "n1"}

Nothing is carried out unless a test does so; `harness.world` carries out everything. Profiles are those
of the reference scheduler unless a configuration is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from harness.builders import NodeBuilder, make_node
from holdfast.api.decode import decode
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.scheduler.cluster.decisions import (
    Bind,
    BindVolume,
    Decision,
    SelectNode,
    SetPodScheduled,
    metadata_patch,
    volume_patch,
)
from holdfast.scheduler.cluster.events import Added, BindConfirmed, BindRefused, Deleted, Event, Updated
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config import Configuration, load
from holdfast.scheduler.framework.diagnosis import NO_NODES
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.recount import validate_state
from reference.setup import PLUGINS, Setup, document

Config = dict[str, Any]

_loaded: dict[str, Configuration] = {}


class Answer(NamedTuple):
    """The result of the columnar scheduler for a pod, in terms of names."""

    node: str
    totals: dict[str, int]
    message: str


def make_scheduler(
    setups: Sequence[Setup] = (Setup(),),
    *plugins: type[Plugin],
    config: Config | None = None,
    **more: Any,
) -> Scheduler:
    """With profiles the reference knows, or with a configuration file of its own."""
    registry = Registry([*IN_TREE, *plugins])
    mapping = config if config is not None else document(setups, **more)
    key = repr((mapping, plugins))
    if key not in _loaded:
        _loaded[key] = load(mapping, registry.implements(), "default-scheduler")
    return Scheduler(_loaded[key], registry)


class Driver:
    """A scheduler, the time, and everything it has decided so far."""

    def __init__(
        self,
        setups: Sequence[Setup] = (Setup(),),
        *plugins: type[Plugin],
        config: Config | None = None,
        **more: Any,
    ) -> None:
        self.scheduler = make_scheduler(setups, *plugins, config=config, **more)
        self.now = 0.0
        self.decisions: list[Decision] = []

    @property
    def queue(self) -> Any:
        return self.scheduler.queue

    @property
    def cluster(self) -> Any:
        return self.scheduler.cluster

    def at(self, now: float) -> Driver:
        self.now = now
        return self

    def feed(self, *events: Event) -> Driver:
        for event in events:
            self.scheduler.feed(event, self.now)
        return self

    def add(self, *objects: Object) -> Driver:
        return self.feed(*(Added(obj) for obj in objects))

    def update(self, *objects: Object) -> Driver:
        return self.feed(*(Updated(obj) for obj in objects))

    def delete(self, *objects: Object) -> Driver:
        return self.feed(*(Deleted(obj) for obj in objects))

    def confirm(self, *pods: Pod) -> Driver:
        return self.feed(*(BindConfirmed(pod.metadata.uid) for pod in pods))

    def refuse(self, *pods: Pod, message: str = "refused", transient: bool = False) -> Driver:
        return self.feed(*(BindRefused(pod.metadata.uid, message, transient) for pod in pods))

    def write_volumes(self, decisions: Iterable[Decision]) -> Driver:
        """Writes what was decided about claims and volumes to the objects."""
        for decision in decisions:
            if isinstance(decision, BindVolume):
                volume = self.cluster.volumes.volume(decision.volume.name)
                patch = volume_patch(decision, is_referenced=volume.spec.claim_ref is not None)
                self.update(_patched(volume, patch))
            elif isinstance(decision, SelectNode):
                claims = self.cluster.objects["PersistentVolumeClaim"]
                claim = claims[decision.claim.namespace, decision.claim.name]
                self.update(_patched(claim, {"metadata": metadata_patch(decision)}))
        return self

    def round(self, now: float | None = None) -> list[Decision]:
        self.now = self.now if now is None else now
        decisions = self.scheduler.round(self.now)
        self.decisions += decisions
        problems = validate_state(self.scheduler.cluster)
        assert not problems, "\n".join(problems)
        return decisions

    def later(self, seconds: float = 30.0) -> list[Decision]:
        """A round some time later, by default after any back-off."""
        return self.round(self.now + seconds)

    def binds(self, now: float | None = None) -> dict[str, str]:
        """A round, and the nodes it found for pods."""
        return binds(self.round(now))

    def schedule(self, *pods: Object) -> dict[str, str]:
        """Adds pods, and the nodes a later round found for them."""
        return binds(self.add(*pods).later())

    def why_not(self, pod: Object) -> str:
        """The message of a pod that is unschedulable in a later round, without preemption's part."""
        placed = self.schedule(pod)
        assert not placed, placed
        return self.message(pod.metadata.name)

    def message(self, name: str) -> str:
        """The latest message of an unschedulable pod, without the part about preemption."""
        conditions = (d for d in reversed(self.decisions) if isinstance(d, SetPodScheduled))
        return next(d.message for d in conditions if d.pod.name == name).partition(" preemption:")[0]

    def messages(self, now: float | None = None) -> dict[str, str]:
        """A round, and the messages of the pods that it finds unschedulable."""
        return {d.pod.name: d.message for d in self.round(now) if isinstance(d, SetPodScheduled)}

    def queued_in(self, pod: Pod) -> str | None:
        """The part of the scheduling queue a pod is in."""
        return self.scheduler.queue.place(pod.metadata.uid)

    def record(self, pod: Pod) -> PodRecord:
        return self.scheduler.cluster.pods[pod.metadata.uid]

    def story(self, pod: Pod) -> list[str]:
        name = f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"
        return [line.what for line in self.scheduler.cluster.story(name)]

    def answer(self, pod: Pod, profile: str = "default-scheduler") -> Answer:
        """What a known, pending pod would get now."""
        return answer(self.scheduler, self.record(pod), profile)


def _patched(obj: Object, patch: dict[str, Any]) -> Object:
    return decode(merge_patch(msgspec.to_builtins(obj), patch))


def default_driver(*objects: Object, config: Config | None = None) -> Driver:
    """With kube-scheduler's default configuration, or parts of it replaced."""
    api = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return Driver(config=api | (config or {})).add(*objects)


def without(*plugins: str) -> Config:
    """The part of a configuration with a profile that lacks some plugins."""
    disabled = [{"name": name} for name in plugins]
    return {"profiles": [{"plugins": {"multiPoint": {"disabled": disabled}}}]}


def big_node(name: str) -> NodeBuilder:
    return make_node(name).allocatable(cpu="8", memory="32Gi", pods=110)


def binds(decisions: Iterable[Decision]) -> dict[str, str]:
    return {d.pod.name: d.node for d in decisions if isinstance(d, Bind)}


def assumed_volumes(decisions: Iterable[Decision]) -> dict[str, str]:
    """Claims and the volumes they are bound to, or `node/…` where one is to be provisioned."""
    found = {d.claim.name: d.volume.name for d in decisions if isinstance(d, BindVolume)}
    return found | {d.claim.name: f"node/{d.node}" for d in decisions if isinstance(d, SelectNode)}


def profile_of(scheduler: Scheduler, name: str) -> Profile:
    return scheduler._profiles[name]


def answer(scheduler: Scheduler, pod: PodRecord, profile_name: str = "default-scheduler") -> Answer:
    nodes = scheduler.cluster.nodes
    if not nodes.count:
        return Answer("", {}, NO_NODES)
    profile = profile_of(scheduler, profile_name)
    column = scheduler.columns.column(profile, pod.cls)
    row = scheduler.search.find_row(profile, pod, column)
    message = ""
    if row < 0:
        message = scheduler.failures.verdict(profile, pod, column).message(nodes.count, "")
    return Answer(nodes.name(row) if row >= 0 else "", totals(scheduler, column), message)


def totals(scheduler: Scheduler, column: ClassColumn) -> dict[str, int]:
    """The score of every node that fits the pod's class."""
    if column.rejected is not None:
        return {}
    nodes = scheduler.cluster.nodes
    found = column.totals()
    return {
        name: int(found[row]) + column.constant
        for name, row in nodes.names()
        if nodes.alive[row] and found[row] > INFEASIBLE // 2
    }


def cluster_of(*nodes: Node, pods: Sequence[Pod] = (), setup: Setup | None = None) -> Driver:
    """Nodes with pods already on them."""
    driver = Driver((setup or Setup(),))
    return driver.add(*nodes, *pods)


def why_not(pod: Pod, *nodes: Node, pods: Sequence[Pod] = (), setup: Setup | None = None) -> str:
    """The message of an unschedulable pod."""
    return cluster_of(*nodes, pods=pods, setup=setup).add(pod).messages().get(pod.metadata.name, "")


def only(plugin: str, **more: Any) -> Setup:
    """A profile with nothing but this plugin, its scores as they are."""
    without = tuple(name for name in PLUGINS if name != plugin)
    return Setup(without=without, weights={plugin: 1}, **more)


def scores(
    pod: Pod, *nodes: Node, pods: Sequence[Pod] = (), setup: Setup | None = None
) -> dict[str, int]:
    """The score of every node the pod fits on."""
    return cluster_of(*nodes, pods=pods, setup=setup).add(pod).answer(pod).totals
