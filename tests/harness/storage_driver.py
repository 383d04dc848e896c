"""A scheduler with the default plugins, and an API server of few words that does what it decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from harness.builders import NodeBuilder, make_node
from holdfast.api.meta import Object, ObjectReference
from holdfast.api.names import SELECTED_NODE_ANNOTATION
from holdfast.scheduler.cluster.decisions import Bind, BindVolume, Decision, SelectNode, SetPodScheduled
from holdfast.scheduler.cluster.events import Added, BindConfirmed, BindRefused, Deleted, Updated
from holdfast.scheduler.framework.config import load
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.recount import validate_state

_CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def without(*plugins: str) -> dict[str, Any]:
    """A profile that lacks some plugins."""
    disabled = [{"name": name} for name in plugins]
    return {"profiles": [{"plugins": {"multiPoint": {"disabled": disabled}}}]}


class Driver:
    def __init__(self, *objects: Object, config: dict[str, Any] | None = None) -> None:
        registry = Registry(IN_TREE)
        loaded = load(_CONFIG | (config or {}), registry.implements(), "default-scheduler")
        self.scheduler = Scheduler(loaded, registry)
        self.now = 0.0
        self.messages: dict[str, str] = {}
        self.add(*objects)

    @property
    def cluster(self) -> Any:
        return self.scheduler.cluster

    def add(self, *objects: Object) -> Driver:
        for obj in objects:
            self.scheduler.feed(Added(obj), self.now)
        return self

    def update(self, *objects: Object) -> Driver:
        for obj in objects:
            self.scheduler.feed(Updated(obj), self.now)
        return self

    def delete(self, *objects: Object) -> Driver:
        for obj in objects:
            self.scheduler.feed(Deleted(obj), self.now)
        return self

    def round(self) -> list[Decision]:
        """A round half a minute later, so that no back-off is in the way."""
        self.now += 30
        decisions = self.scheduler.round(self.now)
        for decision in decisions:
            if isinstance(decision, SetPodScheduled):
                self.messages[decision.pod.name] = decision.message
        assert validate_state(self.cluster) == []
        return decisions

    def place(self, *pods: Object) -> dict[str, str]:
        """The node each pod is bound to in a round."""
        self.add(*pods)
        return binds(self.round())

    def why(self, pod: Object) -> str:
        """What a pod that finds no node is told, less the preemption part."""
        placed = self.place(pod)
        assert not placed, placed
        return self.message(pod.metadata.name)

    def message(self, pod: str) -> str:
        return self.messages[pod].partition(" preemption:")[0]

    def refuse(self, uid: str, message: str = "no") -> Driver:
        self.scheduler.feed(BindRefused(uid, message), self.now)
        return self

    def confirm(self, uid: str) -> Driver:
        self.scheduler.feed(BindConfirmed(uid), self.now)
        return self

    def carry_out(self, decisions: Iterable[Decision]) -> Driver:
        """Writes what was decided about claims and volumes to the objects."""
        for decision in decisions:
            if isinstance(decision, BindVolume):
                volume = self.cluster.volumes.volume(decision.volume.name)
                claim = decision.claim
                ref = ObjectReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
                spec = msgspec.structs.replace(volume.spec, claim_ref=ref)
                self.update(msgspec.structs.replace(volume, spec=spec))
            elif isinstance(decision, SelectNode):
                claims = self.cluster.objects["PersistentVolumeClaim"]
                claim = claims[decision.claim.namespace, decision.claim.name]
                annotations = claim.metadata.annotations | {SELECTED_NODE_ANNOTATION: decision.node}
                meta = msgspec.structs.replace(claim.metadata, annotations=annotations)
                self.update(msgspec.structs.replace(claim, metadata=meta))
        return self


def binds(decisions: Iterable[Decision]) -> dict[str, str]:
    return {d.pod.name: d.node for d in decisions if isinstance(d, Bind)}


def promised(decisions: Iterable[Decision]) -> dict[str, str]:
    """Claims and the volumes they are bound to, or `node/…` where one is to be made."""
    found = {d.claim.name: d.volume.name for d in decisions if isinstance(d, BindVolume)}
    return found | {d.claim.name: f"node/{d.node}" for d in decisions if isinstance(d, SelectNode)}


def big_node(name: str) -> NodeBuilder:
    node = make_node(name).allocatable(cpu="8", memory="32Gi", pods=110)
    return node.label("kubernetes.io/hostname", name)
