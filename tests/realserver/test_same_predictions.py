"""`what-if` beside a real kube-scheduler: the node predicted for a new pod is among the best ones.

Before kube-scheduler's decision about a pod is looked at, what-if is asked about the same pod, from the
objects of the real API server. Where kube-scheduler binds the pod, the predicted node is among those
with the highest total score, as its own choice is; where it finds none, none is predicted; where it
preempts, the pod is predicted on the node that is cleared.

`HOLDFAST_REAL_PODS` and `HOLDFAST_REAL_CLUSTERS` are those of `test_same_decisions`.
"""

from __future__ import annotations

import time
from types import ModuleType

import pytest

from harness import choices
from harness.choices import Chooser
from holdfast.api.documents import Document
from holdfast.api.pod import Pod
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.what_if.changes import WhatIfChanges
from holdfast.sim.what_if.question import WhatIfQuestion, as_scheduled
from realserver import crowds, tight
from realserver.assets import SCHEDULER, missing
from realserver.client import Json
from realserver.server import RealServer
from realserver.test_same_decisions import CLUSTERS, PODS, READ, Side, play_all

_READ = (*READ, ("v1", "pods"), ("scheduling.k8s.io/v1", "priorityclasses"))
_KEPT = ("name", "namespace", "labels", "annotations", "ownerReferences")


class PredictedSide(Side):
    """Asks what-if about every pod before its outcome is read."""

    def __init__(self, server: RealServer, choose: Chooser, crowd: ModuleType = crowds) -> None:
        super().__init__(server, choose, crowd)
        self._setup = as_scheduled(SchedulerFactory.of(self._compared.ours), [])
        self._best_nodes: set[str] = set()
        self._predicted = ""
        self._why: object = None
        self._uses_claims = False

    def _best(self, pod: Pod) -> set[str]:
        self._best_nodes = super()._best(pod)
        self._predicted = self._predict(pod.metadata.uid)
        return self._best_nodes

    def _predict(self, uid: str) -> str:
        objects: list[Json] = []
        asked: Json = {}
        for api_version, plural in _READ:
            for raw in self._client.list(api_version, plural):
                if raw["metadata"]["uid"] == uid:
                    asked = raw
                else:
                    objects.append(_without_pods(raw))
        metadata = {name: asked["metadata"][name] for name in _KEPT if name in asked["metadata"]}
        spec = {name: value for name, value in asked["spec"].items() if name != "nodeName"}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        question = WhatIfQuestion(self._setup, time.time(), objects)
        document = Document("pod.yaml", 1, 1, manifest)
        answer = question.ask(WhatIfChanges(manifests=[document], namespace=metadata["namespace"]))
        name = f"Pod/{metadata['namespace']}/{metadata['name']}"
        self._uses_claims = any(
            "persistentVolumeClaim" in each or "ephemeral" in each for each in spec.get("volumes") or ()
        )
        self._why = [each.message for each in answer.pending], manifest
        return next((each.node for each in answer.placed if each.object == name), "")

    def next_pod(self) -> None:
        before = self.outcomes.copy()
        super().next_pod()
        [outcome] = self.outcomes - before
        about = (outcome, self._predicted, self._best_nodes, self._why)
        if self._uses_claims:
            return  # claims are bound here, where the volume controller runs, and not there
        self.outcomes["predicted"] += outcome in ("bound", "unschedulable", "preempts")
        match outcome:
            case "bound":
                assert self._predicted in self._best_nodes, about
            case "unschedulable":
                assert not self._predicted, about
            case "preempts":
                assert self._predicted, about


def _without_pods(raw: Json) -> Json:
    """No controllers run on the real server, so workloads without a template neither make nor delete
    pods here."""
    if raw["kind"] not in ("ReplicaSet", "StatefulSet"):
        return raw
    return {**raw, "spec": {"selector": raw["spec"]["selector"]}}


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_the_predicted_node_is_among_the_best(real_server: RealServer) -> None:
    outcomes = play_all(
        real_server,
        lambda seed: PredictedSide(real_server, choices.seeded(seed), (crowds, tight)[seed % 2]),
    )
    assert outcomes["predicted"] > PODS * CLUSTERS // 2, outcomes
    print(dict(outcomes))
