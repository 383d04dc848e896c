"""Advice of `explain` on a simulated cluster, and what comes of it once a user has followed it.

situation = Situation(node("n1", 4), pod("p", 8), at=60)
(only,) = situation.report("Pod", "p").advice
assert situation.followed(only)["p"] == "n1"
"""

from __future__ import annotations

import copy

from harness.objects import Raw
from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Advice, Report
from holdfast.kube.decoding import WATCHED
from holdfast.local.component import key_of
from holdfast.local.setup import SchedulerFactory
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import Create, Delete, Patch, Target
from holdfast.sim.simulation import Simulation
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot
from holdfast.snapshot.reader import SNAPSHOT_KINDS

_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "generation")
_LATER = 120.0
_BETWEEN = 20.0
"""How many seconds a user takes for a change; back-offs are over by then."""


class Situation:
    def __init__(self, *objects: Raw, at: float = 60.0, config: Raw | None = None) -> None:
        self._objects, self._at = objects, at
        self._factory = SchedulerFactory.of(config)

    def report(self, kind: str, name: str) -> Report:
        simulation = self._simulated()
        known = [copy.deepcopy(raw) for raw in simulation.world.objects.all()]
        snapshot = ClusterSnapshot(self._factory.scheduler(), simulation.world.clock.epoch())
        for watched in WATCHED:
            of_kind = (watched.info.api_version, watched.info.kind)
            read = [raw for raw in known if (raw["apiVersion"], raw["kind"]) == of_kind]
            snapshot.add(watched, [raw for raw in read if _has_ended(raw) == watched.ended])
        watched_kinds = {(each.info.api_version, each.info.kind) for each in WATCHED}
        listed = {(each.info.api_version, each.info.kind) for each in SNAPSHOT_KINDS} - watched_kinds
        snapshot.unwatched = [raw for raw in known if (raw["apiVersion"], raw["kind"]) in listed]
        (raw,) = [raw for raw in known if (raw["kind"], raw["metadata"]["name"]) == (kind, name)]
        return explain(snapshot, raw)

    def names(self, kind: str) -> list[str]:
        """The objects of that kind that there are then."""
        known = self._simulated().world.objects.all()
        return [raw["metadata"]["name"] for raw in known if raw["kind"] == kind]

    def followed(self, advice: Advice | None, later: float = _LATER) -> dict[str, str]:
        """The nodes of the pods that have not ended, by name, a while after the change was made; empty
        for those that are pending."""
        simulation = self._simulated()
        at = self._at
        for each in advice.change["objects"] if advice is not None else ():
            _make(simulation, each)
            simulation.settle()
            at += _BETWEEN
            simulation.play(at)
        simulation.play(at + later)
        pods = [raw for raw in simulation.world.objects.scan("", "Pod") if not _has_ended(raw)]
        return {raw["metadata"]["name"]: str(raw["spec"].get("nodeName") or "") for raw in pods}

    def _simulated(self) -> Simulation:
        made = [Document("test", at, at, copy.deepcopy(raw)) for at, raw in enumerate(self._objects, 1)]
        simulation = Simulation(read_scenario(made), self._factory)
        simulation.begin()
        simulation.play(self._at)
        return simulation


def _has_ended(raw: Raw) -> bool:
    return raw["kind"] == "Pod" and raw["status"].get("phase") in ("Succeeded", "Failed")


def _make(simulation: Simulation, change: Raw) -> None:
    """Makes one change as a user does: what the API server does not let change is deleted and created
    again. What is waited for ends by itself."""
    if change["operation"] == "end":
        return
    if change["operation"] == "create":
        simulation.take(Create(copy.deepcopy(change["object"])))
        return
    metadata = {"name": change["name"], "namespace": change["namespace"]}
    key = key_of({"apiVersion": change["apiVersion"], "kind": change["kind"], "metadata": metadata})
    target = Target(change["kind"], change["namespace"], change["name"], groups=(key.group,))
    if change["operation"] == "delete":
        simulation.take(Delete(target))
        return
    try:
        simulation.take(Patch(target, copy.deepcopy(change["patch"])))
    except InvalidObject:
        known = simulation.world.objects.get(key)
        assert known is not None, key
        made = merge_patch(copy.deepcopy(known), change["patch"])
        for field in _SERVER_SIDE:
            made["metadata"].pop(field, None)
        made.pop("status", None)
        simulation.take(Delete(target))
        simulation.settle()
        simulation.take(Create(made))
