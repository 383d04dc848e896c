"""The lifecycle of nodes: registration by simulated kubelets, pod GC, and taint eviction.

Every Node object gets a simulated kubelet. Values in the object are kept; the kubelet fills in
capacity, conditions and addresses. It posts its status and renews its Lease every five minutes, as a
real one does on an idle node.
"""

import zlib
from functools import lru_cache

from holdfast import __version__
from holdfast.api import names
from holdfast.api.affinity import Taint, Toleration
from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.names import NO_EXECUTE
from holdfast.api.raw_objects import with_condition
from holdfast.api.selectors import tolerates
from holdfast.api.times import format_micro_time
from holdfast.local.clock import ComponentTimers, LocalClock, Timer
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.kubelet import Kubelets
from holdfast.local.node_objects import DEFAULT_CAPACITY
from holdfast.local.store.objects import NODE, POD, Key, Raw, StoreChange, node_key
from holdfast.local.stored_events import StoredEvents
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

KUBELET_VERSION = f"v1.37.0+holdfast.{__version__}"
HEARTBEAT = 300.0
_TICK = 10.0
LEASE = ("coordination.k8s.io", "Lease")
LEASE_NAMESPACE = "kube-node-lease"
_LEASES = Key("", "Namespace", "", LEASE_NAMESPACE)
_PODS_PER_NODE = 110
_KUBELET_PORT = 10250
LEASE_SECONDS = 2 * int(HEARTBEAT)

_CONDITIONS = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class NodeRegistration:
    def __init__(
        self, objects: ObjectWriter, clock: LocalClock, timers: ComponentTimers, heartbeats: bool = True
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._new: dict[str, None] = {}
        self._heartbeats: dict[str, None] = {}
        """Nodes whose heartbeats are due."""
        self._without_lease: dict[str, None] = {}
        """Nodes whose leases were deleted."""
        self._turn = 0
        if heartbeats:
            timers.add(clock.t + _TICK, self._tick)

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == NODE and after is not None and before is None:
            self._new[key.name] = None
        elif key[:3] == (*LEASE, LEASE_NAMESPACE) and after is None:
            self._without_lease[key.name] = None
        elif key == _LEASES and before is None:
            nodes = self._objects.scan(*NODE)
            self._without_lease.update(dict.fromkeys(each["metadata"]["name"] for each in nodes))

    def settle(self) -> Steps:
        new, self._new = self._new, {}
        for name in new:
            node = self._objects.get(node_key(name))
            if node is None:
                continue
            registered = self._registered(node)
            if registered != node:
                self._objects.update(node_key(name), registered)
            self._renew_lease(node)
            yield None
        due, self._heartbeats = self._heartbeats, {}
        for name in due:
            node = self._objects.get(node_key(name))
            if node is not None:
                self._objects.update(node_key(name), self._alive(node))
                self._renew_lease(node)
                yield None
        lost, self._without_lease = self._without_lease, {}
        for name in lost:
            node = self._objects.get(node_key(name))
            if node is not None and not node["metadata"].get("deletionTimestamp"):
                self._renew_lease(node)
                yield None

    def _tick(self) -> None:
        """Renews the heartbeats of a few nodes at a time, so that all are renewed once per period."""
        self._timers.add(self._clock.t + _TICK, self._tick)
        turns = int(HEARTBEAT / _TICK)
        self._turn = (self._turn + 1) % turns
        for node in self._objects.scan("", "Node"):
            name = node["metadata"]["name"]
            if zlib.crc32(name.encode()) % turns == self._turn:
                self._heartbeats[name] = None

    def _registered(self, node: Raw) -> Raw:
        metadata, status = node["metadata"], dict(node.get("status") or {})
        name, now = metadata["name"], self._clock.stamp()
        labels = {
            names.HOSTNAME_LABEL: name,
            names.ARCH_LABEL: "amd64",
            names.OS_LABEL: "linux",
            **(metadata.get("labels") or {}),
        }
        given = {**(status.get("allocatable") or {}), **(status.get("capacity") or {})}
        # A node with any capacity of its own gets only the resources that every node has.
        everything = {"pods": DEFAULT_CAPACITY["pods"], **given} if given else DEFAULT_CAPACITY
        status["capacity"] = {**everything, **(status.get("capacity") or {})}
        status["allocatable"] = {**everything, **(status.get("allocatable") or {})}
        known = {condition.get("type") for condition in status.get("conditions") or []}
        status["conditions"] = [*(status.get("conditions") or [])] + [
            {
                "type": type_,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for type_, value, reason, message in _CONDITIONS
            if type_ not in known
        ]
        address = {"type": "InternalIP", "address": address_of(name)}
        status.setdefault("addresses", [address, {"type": "Hostname", "address": name}])
        status["daemonEndpoints"] = {
            **(status.get("daemonEndpoints") or {}),
            "kubeletEndpoint": {"Port": _kubelet_port(status) or _KUBELET_PORT},
        }
        # The API server stores an empty text for each part that is not given.
        info = {part: value for part, value in (status.get("nodeInfo") or {}).items() if value}
        status["nodeInfo"] = {**_node_info(metadata.get("uid", "")), **info}
        return {**node, "metadata": {**metadata, "labels": labels}, "status": status}

    def _alive(self, node: Raw) -> Raw:
        now = self._clock.stamp()
        status = node.get("status") or {}
        conditions = [
            {**condition, "lastHeartbeatTime": now}
            if condition.get("status") != "Unknown"
            else condition
            for condition in status.get("conditions") or []
        ]
        return {**node, "status": {**status, "conditions": conditions}}

    def _renew_lease(self, node: Raw) -> None:
        name = node["metadata"]["name"]
        renewed = format_micro_time(self._clock.epoch())
        key = Key(*LEASE, LEASE_NAMESPACE, name)
        lease = self._objects.get(key)
        if lease is not None:
            self._objects.store.update(key, {**lease, "spec": {**lease["spec"], "renewTime": renewed}})
            return
        namespace = self._objects.get(_LEASES)
        if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        self._objects.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
                "spec": {
                    "holderIdentity": name,
                    "leaseDurationSeconds": LEASE_SECONDS,
                    "renewTime": renewed,
                },
            }
        )


def registered_node(raw: Raw, now: str) -> Raw:
    """The node with what a kubelet sets at least: host name, capacity, allocatable and readiness."""
    metadata = dict(raw["metadata"])
    metadata["labels"] = {
        names.HOSTNAME_LABEL: metadata["name"],
        **(metadata.get("labels") or {}),
    }
    status = dict(raw.get("status") or {})
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    everything = {"pods": str(_PODS_PER_NODE), **allocatable, **capacity}
    status["capacity"] = {**everything, **capacity}
    status["allocatable"] = {**everything, **allocatable}
    if not status.get("conditions"):
        status["conditions"] = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastTransitionTime": now,
            }
        ]
    return {**raw, "metadata": metadata, "status": status}


@lru_cache(maxsize=10_000)
def address_of(node: str) -> str:
    """A stable address for a node name; two names may share one."""
    number = zlib.crc32(node.encode())
    return f"172.{16 + (number >> 16) % 16}.{(number >> 8) & 255}.{number & 255}"


def _kubelet_port(status: Raw) -> int:
    """The port that the status gives; 0 if it gives none."""
    return ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0


def _node_info(uid: str) -> Raw:
    return {
        "machineID": uid.replace("-", ""),
        "systemUUID": uid,
        "bootID": uid,
        "kernelVersion": "0.0.0-simulated",
        "osImage": "Holdfast simulated node",
        "containerRuntimeVersion": f"holdfast://{__version__}",
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


# Pod GC: deletes pods of deleted nodes at once, and pods of nodes that never existed after a delay.


PATIENCE = 40.0
"""Seconds, as the pod garbage collector has it."""


class PodGC:
    def __init__(
        self, objects: ObjectWriter, clock: LocalClock, timers: ComponentTimers, kubelets: Kubelets
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._kubelets = kubelets
        self._deleted: dict[Key, str] = {}
        """Pods of nodes that were deleted, with their uids: a node of the same name that comes at once
        is another, and a pod of the same name may be on it."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == NODE and after is None:
            for pod_key in self._kubelets.pods_on(key.name):
                pod = self._objects.get(pod_key)
                if pod is not None:
                    self._deleted[pod_key] = pod["metadata"]["uid"]
        elif key[:2] == POD and after is not None:
            node = after["spec"].get("nodeName")
            new = before is None or not before["spec"].get("nodeName")
            if node and new and node_key(node) not in self._objects:
                self._timers.when_due(key, self._clock.t + PATIENCE, lambda: self._collect(key))

    def settle(self) -> Steps:
        deleted, self._deleted = self._deleted, {}
        for key, uid in deleted.items():
            pod = self._objects.get(key)
            if pod is not None and pod["metadata"]["uid"] == uid:
                self._kubelets.delete(key, at_once=True)
                yield None

    def _collect(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is not None and node_key(pod["spec"].get("nodeName") or "") not in self._objects:
            self._kubelets.delete(key, at_once=True)


# The taint eviction controller: deletes pods that do not tolerate a node's NoExecute taints.
#
# `tolerationSeconds` counts from when the pod was bound or the taint was added, whichever is later.


COMPONENT = "taint-eviction-controller"
MESSAGE = "Taint manager: deleting due to NoExecute taint"


class TaintEviction:
    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        kubelets: Kubelets,
        recorder: StoredEvents,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._kubelets = kubelets
        self._recorder = recorder
        self._tainted: dict[str, list[Taint]] = {}
        """By node, its NoExecute taints, if there are any."""
        self._stale_nodes: dict[str, None] = {}
        self._stale_pods: dict[Key, None] = {}
        self._planned: dict[Key, Timer] = {}
        """The timers of pods with `tolerationSeconds`."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD:
            if after is None:
                self._planned.pop(key, None)
            elif self._tainted and after["spec"].get("nodeName") in self._tainted:
                self._stale_pods[key] = None
        elif key[:2] == NODE and _taints_of(before) != _taints_of(after):
            taints = _no_execute(after)
            if taints != self._tainted.get(key.name, []):
                self._stale_nodes[key.name] = None
            if taints:
                self._tainted[key.name] = taints
            else:
                self._tainted.pop(key.name, None)

    def settle(self) -> Steps:
        while self._stale_nodes:
            node = next(iter(self._stale_nodes))
            del self._stale_nodes[node]
            for key in self._kubelets.pods_on(node):
                self._stale_pods[key] = None
            yield None
        stale, self._stale_pods = self._stale_pods, {}
        for key in stale:
            self._judge(key)
            yield None

    def _judge(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        seconds = _tolerated_for(pod, self._tainted.get(pod["spec"].get("nodeName") or "", []))
        planned = self._planned.get(key)
        if planned is not None:
            if seconds is not None and seconds > 0:
                return  # a further taint does not make its time longer or shorter
            self._timers.cancel(planned)
            del self._planned[key]
        if seconds is None:
            return
        if seconds <= 0:
            self._evict(key)
            return
        due = self._clock.t + seconds
        self._planned[key] = self._timers.when_due(key, due, lambda: self._evict(key))

    def _evict(self, key: Key) -> None:
        self._planned.pop(key, None)
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        about = ObjectRef("Pod", key.namespace, key.name, pod["metadata"]["uid"])
        text = f"Marking for deletion Pod {key.namespace}/{key.name}"
        self._recorder.emit(Emit(about, "Normal", "TaintManagerEviction", text), COMPONENT)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": MESSAGE,
        }
        before = pod["status"].get("conditions") or []
        conditions = with_condition(before, condition, self._clock.stamp())
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})
        self._kubelets.delete(key)


def _taints_of(node: Raw | None) -> list[Raw]:
    return ((node or {}).get("spec") or {}).get("taints") or []


def _no_execute(node: Raw | None) -> list[Taint]:
    found = []
    for raw in _taints_of(node):
        if raw.get("effect") == NO_EXECUTE:
            try:
                found.append(convert(raw, Taint))
            except InvalidObject:
                continue  # an invalid taint evicts no pod
    return found


def _tolerated_for(pod: Raw, taints: list[Taint]) -> float | None:
    """How many seconds the pod may stay; None if forever."""
    if not taints:
        return None
    try:
        tolerations = convert(pod["spec"].get("tolerations") or [], list[Toleration])
    except InvalidObject:
        tolerations = []
    shortest: float | None = None
    for taint in taints:
        # Of several that match, the first counts.
        match = next((each for each in tolerations if tolerates(each, taint)), None)
        if match is None:
            return 0.0
        seconds = match.toleration_seconds
        if seconds is not None and (shortest is None or seconds < shortest):
            shortest = float(seconds)
    return shortest
