"""Our decisions beside those of a real kube-scheduler, pod by pod, on random clusters.

kube-scheduler runs against a real API server and has all default plugins in which we agree with its
version. There are no controllers and no kubelets. A pod is created
and what becomes of it is compared: bound to one of the nodes we score best; or unschedulable with the
same message; or nominated to a node, by deleting the same victims. Then the next one follows.

`HOLDFAST_REAL_PODS` is the number of pods in each cluster, `HOLDFAST_REAL_CLUSTERS` how many
clusters (seeds from 0, or from `HOLDFAST_REAL_SEED`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from harness import choices
from harness.choices import Chooser
from harness.driver import Driver
from harness.strategies import NAMESPACES
from holdfast.api.decode import decode
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import Bind, Decision, Nominate, Preempt, SetPodScheduled
from realserver import crowds, tight
from realserver.assets import SCHEDULER, missing
from realserver.client import Json, RefusedError
from realserver.server import RealServer
from realserver.versions import comparison

PODS = int(os.environ.get("HOLDFAST_REAL_PODS", "25"))
CLUSTERS = int(os.environ.get("HOLDFAST_REAL_CLUSTERS", "4"))
SEED = int(os.environ.get("HOLDFAST_REAL_SEED", "0"))
READ = (
    ("v1", "namespaces"),
    ("v1", "nodes"),
    ("v1", "services"),
    ("v1", "persistentvolumes"),
    ("v1", "persistentvolumeclaims"),
    ("storage.k8s.io/v1", "storageclasses"),
    ("storage.k8s.io/v1", "csinodes"),
    ("apps/v1", "replicasets"),
    ("apps/v1", "statefulsets"),
    ("policy/v1", "poddisruptionbudgets"),
)
_WITHIN, _SOON = 15.0, 6.0

Goes = Callable[[Json], bool]


class Side:
    """A real cluster with its kube-scheduler, and our scheduler that is fed what the server shows."""

    def __init__(self, server: RealServer, choose: Chooser, crowd: ModuleType = crowds) -> None:
        self._crowd = crowd
        self._server = server
        self._client = server.client
        self._choose = choose
        self._compared = comparison(server)
        self._ours = Driver(config=self._compared.ours)
        self._made = 0
        self.outcomes: Counter[str] = Counter()

    @contextmanager
    def started(self) -> Iterator[None]:
        """kube-scheduler starts when everything but pods is there, so that it knows all of it."""
        self._server.empty()
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._ensure(namespace)
            labels = crowds.namespace_labels(self._choose)
            self._client.patch(namespace, {"metadata": {"labels": labels}})
        for raw in crowds.priority_classes():
            self._ensure(raw)
        for make in (self._crowd.nodes, crowds.storage, crowds.others):
            for raw in make(self._choose):
                self._client.create(raw)
        for api_version, plural in READ:
            self._ours.add(*map(decode, self._client.list(api_version, plural)))
        with self._server.kube_scheduler(self._compared.kube):
            yield

    def next_pod(self) -> None:
        self._made += 1
        wanted = self._crowd.random_pod(self._choose, f"p{self._made}").raw()
        try:
            raw = self._client.create(wanted)
        except RefusedError:
            self.outcomes["not a pod"] += 1
            return
        pod = self._decoded(raw)
        self._ours.add(pod)
        best = self._best(pod)
        decisions = self._ours.round(self._ours.now + 60)
        seen = self._wait(raw, lambda r: bool(node_of(r) or message_of(r)))
        own = [d for d in decisions if getattr(d, "pod", None) == self._ours.record(pod).ref]
        bound = next((d.node for d in own if isinstance(d, Bind)), "")
        message = self._message(own)
        nominated = next((d.node for d in own if isinstance(d, Nominate) and d.node), "")
        about = (
            wanted,
            {"ours": (bound or message, nominated), "kube": (node_of(seen), message_of(seen))},
        )
        if node_of(seen):
            assert node_of(seen) in best and bound in best, (best, about)
            self._ours.refuse(pod)
            self._settle(seen)
            self.outcomes["bound"] += 1
            return
        assert message_of(seen) == message, about
        assert seen["status"].get("nominatedNodeName", "") == nominated, about
        if not nominated:
            self.outcomes["unschedulable"] += 1
            self._delete(seen)
            return
        victims = {d.pod.uid for d in decisions if isinstance(d, Preempt)}
        self._preempt(seen, nominated, victims)

    def _message(self, decisions: list[Decision]) -> str:
        message = next((d.message for d in decisions if isinstance(d, SetPodScheduled)), "")
        return self._compared.same(message)

    def _preempt(self, raw: Json, node: str, victims: set[str]) -> None:
        """The victims are deleted, leave, and the pod is bound where they were."""
        for victim in self._pods():
            if victim["metadata"]["uid"] in victims:
                gone = self._wait(victim, lambda r: bool(r["metadata"].get("deletionTimestamp")))
                self._delete(gone)
        try:
            bound = self._wait(raw, lambda r: bool(node_of(r)), _SOON)
        except TimeoutError:
            # It is woken only by a pod that all its anti-affinity terms select, not by one of several,
            # nor by one that wanted to be alone.
            seen = self._client.get(raw)
            assert "anti-affinity rules" in message_of(seen), seen
            self._delete(seen)
            self.outcomes["overlooked"] += 1
            return
        assert node_of(bound) == node, (node, bound)
        left = [r for r in self._pods() if r["metadata"].get("deletionTimestamp")]
        assert not left, ("more victims than ours", left)
        self._settle(bound)
        self.outcomes["preempts"] += 1

    def _settle(self, raw: Json) -> None:
        """The pod runs, as a kubelet would report. No two pods start at the same time, so that no two
        nodes are equally good to be cleared."""
        second = self._choose(range(40)) * 60 + self._made % 60
        started = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
        status = {"phase": "Running", "startTime": started}
        running = self._client.patch(raw, {"status": status}, "status")
        self._ours.update(self._decoded(running))

    def _delete(self, raw: Json) -> None:
        self._client.delete(raw)
        self._ours.delete(self._decoded(raw))

    def _best(self, pod: Pod) -> set[str]:
        totals = self._ours.answer(pod).totals
        named = self._ours.record(pod).pinned_node
        if named is not None:
            return {named} & totals.keys()
        return {name for name, total in totals.items() if total == max(totals.values())}

    def _pods(self) -> list[Json]:
        return self._client.list("v1", "pods")

    def _decoded(self, raw: Json) -> Pod:
        pod = decode(raw)
        assert isinstance(pod, Pod)
        return pod

    def _wait(self, raw: Json, done: Goes, within: float = _WITHIN) -> Json:
        """The pod once something holds of it."""
        meta = raw["metadata"]
        now = self._client.get(raw)
        if done(now):
            return now
        version = now["metadata"]["resourceVersion"]
        query = f"resourceVersion={version}&fieldSelector=metadata.name={meta['name']}"
        for event in self._client.watch("v1", "pods", query, within):
            seen: Json = event["object"]
            if seen["metadata"]["uid"] == meta["uid"] and done(seen):
                return seen
        raise AssertionError(f"nothing became of {raw}")

    def _ensure(self, raw: Json) -> None:
        try:
            self._client.create(raw)
        except RefusedError as error:
            if error.status != 409:
                raise


def node_of(raw: Json) -> str:
    return str(raw["spec"].get("nodeName") or "")


def message_of(raw: Json) -> str:
    conditions: list[Any] = raw["status"].get("conditions") or []
    message = [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
    return str(message[0].get("message", "")) if message else ""


def play_all(server: RealServer, make: Callable[[int], Side]) -> Counter[str]:
    """Every cluster, one pod after the other; how often what came of them."""
    outcomes: Counter[str] = Counter()
    for seed in range(SEED, SEED + CLUSTERS):
        side = make(seed)
        with side.started():
            for number in range(PODS):
                try:
                    side.next_pod()
                except Exception as error:
                    raise AssertionError(f"seed {seed}, pod {number + 1}") from error
        outcomes.update(side.outcomes)
    server.empty()
    return outcomes


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_kube_scheduler_decides_the_same(real_server: RealServer) -> None:
    outcomes = play_all(
        real_server, lambda seed: Side(real_server, choices.seeded(seed), (crowds, tight)[seed % 2])
    )
    assert outcomes["bound"] > PODS * CLUSTERS // 8, outcomes
    print(dict(outcomes))
