"""Clusters with devices, played on a real server with kube-scheduler and on our scheduler at once.

There are no controllers, kubelets and drivers: claims of templates are made here, and what a pod that
ends leaves is cleared away here. Many clusters live at once, each with nodes, drivers and classes of
its own. Their pods come one after the other; what kube-scheduler did with a pod is then fed to ours.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from harness.builders import make_node
from harness.driver import Driver
from holdfast.api.decode import decode
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import (
    Bind,
    CreateClaim,
    DeallocateClaim,
    Decision,
    ReserveClaim,
    SetPodScheduled,
)
from holdfast.scheduler.cluster.events import BindRefused
from realserver.client import Json, RefusedError
from realserver.device_clusters import (
    HOST,
    NAMESPACE,
    ClusterChange,
    DeviceCluster,
    PodOfCluster,
    claim,
    generated,
)
from realserver.device_pools import API, TAINTS
from realserver.server import RealServer
from realserver.test_same_decisions import message_of, node_of
from realserver.versions import comparison

_READ = (
    ("v1", "namespaces"),
    ("v1", "nodes"),
    (API, "resourceslices"),
    (API, "deviceclasses"),
    (API, "devicetaintrules"),
    (API, "resourceclaims"),
)
_NOT_YET = ("not created yet", "could not find ResourceClaim")
_ERROR = 'running "DynamicResources" filter plugin: '
_DEALLOCATED = "deallocation of ResourceClaim completed"
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"
_WITHIN, _AGAIN_WITHIN = 240.0, 20.0
_TRIES = 20


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
        self._claims: dict[str, Json] = {}
        """As they were before the pods of this step came."""
        self._bound: dict[str, Json] = {}
        self._sentinels = 0
        self.outcomes: Counter[str] = Counter()
        self.differences: list[str] = []

    def play(self) -> None:
        self._server.empty()
        self._client.create(_sentinel_node(self._prefix))
        for cluster in self._clusters:
            for raw in cluster.objects:
                self._create(raw)
        self._wait_until_seen()
        for api_version, plural in _READ:
            self._ours.add(*map(decode, self._client.list(api_version, plural)))
        self._read_claims()
        for step in range(max(len(cluster.pods) for cluster in self._clusters)):
            self._step([each.pods[step] for each in self._clusters if step < len(each.pods)])

    @property
    def _prefix(self) -> str:
        return f"last-{self._clusters[0].prefix}"

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
        for _ in range(_TRIES):
            self._sentinels += 1
            name, node = f"{self._prefix}-{self._sentinels}", _sentinel_node(self._prefix)
            self._client.patch(node, {"metadata": {"labels": {"seen": name}}})
            *objects, last = _sentinel(name, self._prefix)
            for raw in objects:
                self._client.create(raw)
            pod = self._client.create(last)
            self._server.wait_until(partial(self._is_bound, pod))
            self._client.delete(pod)
            allocated = self._client.get(claim(name, {}))["status"]["allocation"]
            if allocated["devices"]["results"][0]["device"] == "untainted":
                return
        raise AssertionError("kube-scheduler does not see DeviceTaintRules")

    def _is_bound(self, pod: Json) -> bool:
        return bool(node_of(self._client.get(pod)))

    # Steps

    def _step(self, pods: list[PodOfCluster]) -> None:
        """The next pod of each cluster, after what changes before it."""
        changes = [change for pod in pods for change in pod.before]
        if changes:
            self._change(changes)
            self._wait_until_seen()
            self._read_claims()
        since = self._client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?limit=1")
        started = {raw["metadata"]["name"]: raw for raw in map(self._start, pods) if raw is not None}
        found = self._attempt(started, since["metadata"]["resourceVersion"], _is_settled, _WITHIN)
        missing = sorted(set(started) - set(found))
        assert not missing, f"kube-scheduler does nothing about {missing}"
        again = {name: started[name] for name, raw in found.items() if _DEALLOCATED in message_of(raw)}
        if again:
            found |= self._attempt_again(again, found)
        self._read_claims()
        for raw in found.values():
            self._follow(raw)

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

    def _attempt(
        self, pods: dict[str, Json], since: str, done: Callable[[Json], bool], within: float
    ) -> dict[str, Json]:
        """Both schedulers try the pods; those that kube-scheduler is done with, after comparing."""
        best = {name: self._best(raw) for name, raw in pods.items()}
        decisions = self._ours.round(self._ours.now + 60)
        settled = self._settled(set(pods), since, done, within)
        claims = {raw["metadata"]["name"]: raw for raw in self._client.list(API, "resourceclaims")}
        for name, raw in settled.items():
            ours, theirs = decided(name, decisions), self._fate(raw, claims)
            is_pinned = HOST in raw["spec"]["nodeSelector"]
            if differs := self._compare(ours, theirs, best[name], is_pinned):
                self.differences.append(f"{name}: {differs}")
        for each in decisions:
            if isinstance(each, Bind):  # of any pod: those of other clusters may be tried again too
                self._ours.feed(BindRefused(each.pod.uid, "refused"))
            elif isinstance(each, DeallocateClaim):
                self._deallocate(each.claim.name)
        return settled

    def _attempt_again(self, pods: dict[str, Json], found: dict[str, Json]) -> dict[str, Json]:
        """A pod with a claim that was deallocated is tried again at once. Which one it is can be chosen
        at random: such a pod is not compared."""
        messages = {name: message_of(found[name]) for name in pods}
        since = min(found[name]["metadata"]["resourceVersion"] for name in pods)

        def is_done(raw: Json) -> bool:
            return _is_settled(raw) and message_of(raw) != messages[raw["metadata"]["name"]]

        sure = {}
        for name, raw in pods.items():
            named = {each.get("resourceClaimName") for each in raw["spec"]["resourceClaims"]}
            if sum(bool(_allocation(self._claims.get(each or ""))) for each in named) == 0:
                sure[name] = raw
        return self._attempt(sure, since, is_done, _AGAIN_WITHIN) if sure else {}

    def _deallocate(self, name: str) -> None:
        """The claim without its allocation, as ours knows it."""
        raw = json.loads(json.dumps(self._claims[name]))
        raw["status"] = {}
        self._claims[name] = raw
        self._ours.update(decode(raw))

    def _best(self, raw: Json) -> set[str]:
        totals = self._ours.answer(_decoded(raw)).totals
        return {name for name, total in totals.items() if total == max(totals.values())}

    def _settled(
        self, names: set[str], since: str, done: Callable[[Json], bool], within: float
    ) -> dict[str, Json]:
        """The pods as they were when each was done, as far as that happens in time."""
        found: dict[str, Json] = {}
        try:
            query = f"resourceVersion={since}"
            for event in self._client.watch("v1", "pods", query, within):
                raw = event["object"]
                name = raw["metadata"]["name"]
                if name in names and event["type"] != "DELETED" and done(raw):
                    found.setdefault(name, raw)
                if len(found) == len(names):
                    break
        except TimeoutError:
            pass
        return found

    def _fate(self, pod: Json, claims: dict[str, Json]) -> Fate:
        if not node_of(pod):  # what its claims have by now is from a later attempt
            return Fate("", message_of(pod), {})
        found = {}
        for name, raw in claims.items():
            consumers = (raw.get("status") or {}).get("reservedFor") or ()
            if pod["metadata"]["uid"] not in {each["uid"] for each in consumers}:
                continue
            if not _allocation(self._claims.get(name)):
                is_extended = _EXTENDED in raw["metadata"].get("annotations", {})
                found["" if is_extended else name] = shown(raw["status"]["allocation"])
        return Fate(node_of(pod), "", found)

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
            self.outcomes["allocations compared"] += len(theirs.allocations)
            self.outcomes["messages compared"] += bool(theirs.message)
        if theirs.allocations:
            self.outcomes["with devices"] += 1
        if _DEALLOCATED in theirs.message:
            self.outcomes["with a deallocated claim"] += 1
        self.outcomes[kind] += 1
        return "" if agree else f"\n  Holdfast       {ours}\n  kube-scheduler {theirs}\n  best {best}"

    # What happens beside the schedulers

    def _read_claims(self) -> None:
        """Has ours know the claims as they are now."""
        claims = self._client.list(API, "resourceclaims")
        self._ours.update(*map(decode, claims))
        self._claims = {raw["metadata"]["name"]: raw for raw in claims}

    def _follow(self, raw: Json) -> None:
        """A bound pod runs, as a kubelet would report; others go, with their claims."""
        if node_of(raw):
            running = self._client.patch(raw, {"status": {"phase": "Running"}}, "status")
            self._bound[raw["metadata"]["name"]] = running
            self._ours.update(_decoded(running))
        else:
            self._end(raw)

    def _end(self, pod: Json) -> None:
        """Deletes a pod, and does what the claim controller would do."""
        uid = pod["metadata"]["uid"]
        self._client.delete(pod)
        self._ours.delete(_decoded(pod))
        for name, raw in [*self._claims.items()]:
            owners = raw["metadata"].get("ownerReferences", ())
            consumers = (raw.get("status") or {}).get("reservedFor") or ()
            if any(owner["uid"] == uid for owner in owners):
                if raw["metadata"].get("finalizers"):
                    self._client.patch(raw, {"metadata": {"finalizers": None}})
                self._client.delete(raw)
                self._ours.delete(decode(raw))
                del self._claims[name]
            elif any(each["uid"] == uid for each in consumers):
                rest = [each for each in consumers if each["uid"] != uid]
                status = {"reservedFor": rest} if rest else {"reservedFor": None, "allocation": None}
                self._claims[name] = self._client.patch(raw, {"status": status}, "status")
                self._ours.update(decode(self._claims[name]))

    def _change(self, changes: Iterable[ClusterChange]) -> None:
        for change in changes:
            raw = change.raw
            if change.verb == "end":
                if (pod := self._bound.pop(raw["metadata"]["name"], None)) is not None:
                    self._end(pod)
                continue
            try:
                if change.verb == "delete":
                    gone = self._client.get(raw)
                    self._client.delete(raw)
                    self._ours.delete(decode(gone))
                else:
                    self._ours.update(decode(self._put(raw)))
            except RefusedError as error:
                self.outcomes["refused by the server"] += 1
                print(error)

    def _put(self, raw: Json) -> Json:
        try:
            self._client.get(raw)
        except RefusedError:
            return self._client.create(raw)
        parts = {key: raw[key] for key in ("spec",) if key in raw}
        return self._client.patch(raw, {"metadata": raw["metadata"], **parts})


def _is_settled(raw: Json) -> bool:
    message = message_of(raw)
    return bool(node_of(raw) or (message and not any(each in message for each in _NOT_YET)))


def _allocation(claim: Json | None) -> Json | None:
    status = (claim or {}).get("status") or {}
    found: Json | None = status.get("allocation")
    return found


def _sentinel_node(name: str) -> Json:
    return make_node(name).allocatable(cpu="1", memory="1Gi", pods=110).raw()


def _sentinel(name: str, node: str) -> list[Json]:
    """Devices of a node, of which one is tainted by a rule; and a pod that gets one."""
    driver = f"{name}.example.com"
    devices = [{"name": "tainted"}, {"name": "untainted"}]
    slice: Json = {"devices": devices, "nodeName": node, "driver": driver}
    slice["pool"] = {"name": name, "generation": 1, "resourceSliceCount": 1}
    taint = {"key": "x", "effect": "NoSchedule"}
    rule = {"deviceSelector": {"driver": driver, "device": "tainted"}, "taint": taint}
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    tolerations = [{"key": key, "operator": "Exists"} for key in TAINTS]
    request = {"name": "r", "exactly": {"deviceClassName": name, "tolerations": tolerations}}
    meta = {"name": name}
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
        "nodeSelector": {"seen": name},
    }
    pod_meta = {"name": name, "namespace": NAMESPACE}
    return [
        {"apiVersion": API, "kind": "DeviceTaintRule", "metadata": meta, "spec": rule},
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": meta, "spec": slice},
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
