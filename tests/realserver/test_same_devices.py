"""The devices that we allocate beside those that a real kube-scheduler allocates, on random clusters.

kube-scheduler runs against a real API server; there are no controllers, kubelets and drivers, so claims
of templates are made here. Many clusters live at once, each with nodes, drivers and classes of its own.
Their pods come one after the other. A pod is bound to one of the nodes that we score best, and if it
is the one that we chose, its claims get the same allocation; or it gets the same message.

`HOLDFAST_REAL_DEVICE_CLUSTERS` is the number of clusters (seeds from 0, or from `HOLDFAST_REAL_SEED`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from harness import choices
from harness.builders import make_node
from harness.driver import Driver
from holdfast.api.decode import decode
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import (
    Bind,
    CreateClaim,
    Decision,
    ReserveClaim,
    SetPodScheduled,
)
from realserver.assets import SCHEDULER, missing
from realserver.client import Json, RefusedError
from realserver.device_clusters import (
    ADMIN_LABEL,
    API,
    CLUSTER,
    HOST,
    NAMESPACE,
    DeviceCluster,
    PodOfCluster,
    claim,
    generated,
    random_cluster,
)
from realserver.server import RealServer
from realserver.test_same_decisions import SEED, message_of, node_of
from realserver.versions import comparison

CLUSTERS = int(os.environ.get("HOLDFAST_REAL_DEVICE_CLUSTERS", "60"))
_OLDEST = 37
_TOGETHER = 20
_READ = (
    ("v1", "namespaces"),
    ("v1", "nodes"),
    (API, "resourceslices"),
    (API, "deviceclasses"),
    (API, "resourceclaims"),
)
_NOT_YET = ("not created yet", "could not find ResourceClaim")
_ERROR = 'running "DynamicResources" filter plugin: '
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"


class Fate(NamedTuple):
    """What becomes of a pod."""

    node: str
    message: str
    allocations: dict[str, Json]
    """By claim; that for extended resources, whose name is generated, has none."""


class Batch:
    """Clusters that live at the same time."""

    def __init__(self, server: RealServer, clusters: list[DeviceCluster]) -> None:
        self._server = server
        self._client = server.client
        self._clusters = clusters
        self._ours = Driver(config=comparison(server).ours)
        self._allocated: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.differences: list[str] = []

    def play(self) -> None:
        self._server.empty()
        for cluster in self._clusters:
            for raw in cluster.objects:
                self._create(raw)
        self._wait_until_seen()
        for api_version, plural in _READ:
            self._ours.add(*map(decode, self._client.list(api_version, plural)))
        for step in range(max(len(cluster.pods) for cluster in self._clusters)):
            self._step([each.pods[step] for each in self._clusters if step < len(each.pods)])

    def _create(self, raw: Json) -> Json | None:
        try:
            return self._client.create(raw)
        except RefusedError as error:
            self.outcomes["refused by the server"] += 1
            print(error)
            return None

    def _wait_until_seen(self) -> None:
        """kube-scheduler sees the objects of each kind in order: when it has bound a pod that needs the
        last object of each, it knows all of them."""
        *objects, last = last_objects(f"last-{self._clusters[0].prefix}")
        for raw in objects:
            self._client.create(raw)
        pod = self._client.create(last)
        self._server.wait_until(lambda: bool(node_of(self._client.get(pod))))
        self._client.delete(pod)

    def _step(self, pods: list[PodOfCluster]) -> None:
        """The next pod of each cluster."""
        started = {raw["metadata"]["name"]: raw for raw in map(self._start, pods) if raw is not None}
        best = {name: self._best(raw) for name, raw in started.items()}
        decisions = self._ours.round(self._ours.now + 60)
        settled = self._settled(set(started))
        claims = self._client.list(API, "resourceclaims")
        for name, raw in settled.items():
            ours, theirs = decided(name, decisions), self._fate(raw, claims)
            is_pinned = HOST in raw["spec"]["nodeSelector"]
            if differs := self._compare(ours, theirs, best[name], is_pinned):
                self.differences.append(f"{name}: {differs}")
            if ours.node:
                self._ours.refuse(_decoded(started[name]))
        self._ours.update(*map(decode, claims))
        for raw in claims:
            if (raw.get("status") or {}).get("allocation"):
                self._allocated.add(raw["metadata"]["name"])
        for raw in settled.values():
            self._follow(raw, claims)

    def _start(self, each: PodOfCluster) -> Json | None:
        """The pod on the server, with the claims that are generated for it."""
        raw = self._create(each.raw)
        if raw is None:
            return None
        statuses = []
        for entry, spec in each.templates.items():
            made = self._create(generated(raw, entry, spec))
            if made is None:
                self._client.delete(raw)
                return None
            self._ours.add(decode(made))
            statuses.append({"name": entry, "resourceClaimName": made["metadata"]["name"]})
        if statuses:
            self._client.patch(raw, {"status": {"resourceClaimStatuses": statuses}}, "status")
            raw["status"]["resourceClaimStatuses"] = statuses
        self._ours.add(_decoded(raw))
        return raw

    def _best(self, raw: Json) -> set[str]:
        totals = self._ours.answer(_decoded(raw)).totals
        return {name for name, total in totals.items() if total == max(totals.values())}

    def _settled(self, names: set[str]) -> dict[str, Json]:
        """The pods, once each is bound or unschedulable."""
        found: dict[str, Json] = {}

        def all_are() -> bool:
            for raw in self._client.list("v1", "pods"):
                message = message_of(raw)
                done = node_of(raw) or (message and not any(each in message for each in _NOT_YET))
                if raw["metadata"]["name"] in names and done:
                    found.setdefault(raw["metadata"]["name"], raw)
            return len(found) == len(names)

        self._server.wait_until(all_are)
        return found

    def _fate(self, pod: Json, claims: list[Json]) -> Fate:
        found = {}
        for raw in claims:
            meta, status = raw["metadata"], raw.get("status") or {}
            reserved = {each["uid"] for each in status.get("reservedFor") or ()}
            if pod["metadata"]["uid"] not in reserved or meta["name"] in self._allocated:
                continue
            is_extended = _EXTENDED in meta.get("annotations", {})
            found["" if is_extended else meta["name"]] = shown(status["allocation"])
        return Fate(node_of(pod), "" if node_of(pod) else message_of(pod), found)

    def _compare(self, ours: Fate, theirs: Fate, best: set[str], is_pinned: bool) -> str:
        """How they differ; empty if they agree."""
        kind = "bound" if theirs.node else "unschedulable"
        if ours.node and theirs.node and ours.node != theirs.node:
            kind = "bound to another node"
            agree = {ours.node, theirs.node} <= best
        elif not is_pinned and theirs.message.startswith(_ERROR):
            # It names the node that it happened to filter first, and gives the others up. We bind the
            # pod to another node if one is feasible.
            kind = "error on some node"
            agree = bool(ours.node) or ours.message.startswith(_ERROR)
        else:
            agree = ours == theirs
        if theirs.allocations:
            self.outcomes["with devices"] += 1
        self.outcomes[kind] += 1
        return "" if agree else f"\n  Holdfast       {ours}\n  kube-scheduler {theirs}\n  best {best}"

    def _follow(self, raw: Json, claims: list[Json]) -> None:
        """A bound pod runs, as a kubelet would report; others go, with their claims."""
        if node_of(raw):
            running = self._client.patch(raw, {"status": {"phase": "Running"}}, "status")
            self._ours.update(_decoded(running))
            return
        self._client.delete(raw)
        self._ours.delete(_decoded(raw))
        for each in claims:
            owners = each["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == raw["metadata"]["uid"] for owner in owners):
                self._client.delete(each)
                self._ours.delete(decode(each))


def last_objects(name: str) -> list[Json]:
    """A node with a device, and a pod that gets it."""
    device: Json = {"devices": [{"name": "d"}], "nodeName": name, "driver": f"{name}.example.com"}
    device["pool"] = {"name": name, "generation": 1, "resourceSliceCount": 1}
    selector = {"cel": {"expression": f"device.driver == '{name}.example.com'"}}
    request = {"name": "r", "exactly": {"deviceClassName": name}}
    meta = {"name": name}
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
        "nodeSelector": {CLUSTER: name},
    }
    pod_meta = {"name": name, "namespace": NAMESPACE}
    return [
        make_node(name).allocatable(cpu="1", memory="1Gi", pods=1).label(CLUSTER, name).raw(),
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": meta, "spec": device},
        {"apiVersion": API, "kind": "DeviceClass", "metadata": meta, "spec": {"selectors": [selector]}},
        claim(name, {"devices": {"requests": [request]}}),
        {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": spec},
    ]


def decided(name: str, decisions: list[Decision]) -> Fate:
    """What we decided about a pod."""
    node = message = ""
    allocations = {}
    for each in decisions:
        if isinstance(each, Bind) and each.pod.name == name:
            node = each.node
        elif isinstance(each, SetPodScheduled) and each.pod.name == name:
            message = each.message
        elif isinstance(each, ReserveClaim) and each.pod.name == name and each.allocation is not None:
            allocations[each.claim.name] = shown(msgspec.to_builtins(each.allocation))
        elif isinstance(each, CreateClaim) and each.pod is not None and each.pod.name == name:
            allocations[""] = shown(msgspec.to_builtins(each.allocation))
    return Fate(node, message, allocations)


def shown(allocation: Json) -> Json:
    """An allocation without the time and without identifiers that are random."""
    allocation = json.loads(json.dumps(allocation))
    devices = allocation["devices"]
    found = {key: devices[key] for key in ("results", "config") if devices.get(key)}
    found["results"] = [{k: v for k, v in each.items() if k != "shareID"} for each in found["results"]]
    return {"devices": found, "nodeSelector": allocation.get("nodeSelector")}


def _decoded(raw: Json) -> Pod:
    pod = decode(raw)
    assert isinstance(pod, Pod)
    return pod


def batches(clusters: list[DeviceCluster]) -> Iterator[list[DeviceCluster]]:
    yield from ([each] for each in clusters if each.alone)
    others = [each for each in clusters if not each.alone]
    for start in range(0, len(others), _TOGETHER):
        yield others[start : start + _TOGETHER]


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_kube_scheduler_allocates_the_same_devices(real_server: RealServer) -> None:
    compared = comparison(real_server)
    if compared.minor < _OLDEST:
        pytest.skip(f"the server is 1.{compared.minor}; devices are allocated as in 1.{_OLDEST}")
    meta = {"name": NAMESPACE, "labels": {ADMIN_LABEL: "true"}}
    try:
        real_server.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    except RefusedError as error:
        assert error.status == 409, error
    seeds = range(SEED, SEED + CLUSTERS)
    clusters = [random_cluster(choices.seeded(seed), f"s{seed}") for seed in seeds]
    outcomes: Counter[str] = Counter()
    differences: list[str] = []
    with real_server.kube_scheduler({"percentageOfNodesToScore": 100}):
        for together in batches(clusters):
            batch = Batch(real_server, together)
            batch.play()
            outcomes += batch.outcomes
            differences += batch.differences
    real_server.empty()
    print(dict(outcomes))
    assert not differences, "\n".join([str(dict(outcomes)), *differences])
    assert outcomes["with devices"] > CLUSTERS // 4, outcomes
