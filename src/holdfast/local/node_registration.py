"""The kubelets' registration of nodes: capacity, conditions, heartbeats and leases.

Every Node object gets a simulated kubelet. Values in the object are kept; the kubelet fills in the
rest. It posts its status and renews its Lease every five minutes, as a real one does on an idle node.
"""

import zlib
from functools import lru_cache
from typing import Any

from holdfast import __version__
from holdfast.api import names
from holdfast.api.times import format_micro_time
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.store.objects import NODE, Key, Raw, StoreChange, node_key

DEFAULT_CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
"""The allocatable of a node without any."""
KUBELET_VERSION = f"v1.35.0+holdfast.{__version__}"
HEARTBEAT = 300.0
_TICK = 10.0
LEASE_NAMESPACE = "kube-node-lease"
_PODS_PER_NODE = 110
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
        self._turn = 0
        if heartbeats:
            timers.add(clock.t + _TICK, self._tick)

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == NODE and after is not None and before is None:
            self._new[key.name] = None

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
        # Of a node that says how much of anything it has, only what every node has is filled in.
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
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 10250}})
        status["nodeInfo"] = {**_node_info(metadata.get("uid", "")), **(status.get("nodeInfo") or {})}
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
        key = Key("coordination.k8s.io", "Lease", LEASE_NAMESPACE, name)
        lease = self._objects.get(key)
        if lease is not None:
            self._objects.store.update(key, {**lease, "spec": {**lease["spec"], "renewTime": renewed}})
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


def new_node(number: int) -> dict[str, Any]:
    """The nodes that `--nodes` creates, numbered from 1, in three zones."""
    name = f"node-{number}"
    labels = {
        names.HOSTNAME_LABEL: name,
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
        names.INSTANCE_TYPE_LABEL: "simulated",
        names.REGION_LABEL: "local",
        names.ZONE_LABEL: f"zone-{'abc'[(number - 1) % 3]}",
    }
    capacity = dict(DEFAULT_CAPACITY)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"capacity": capacity, "allocatable": dict(capacity)},
    }


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
