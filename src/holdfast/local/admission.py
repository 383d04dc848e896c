"""Admission and defaulting of objects on creation, as far as scheduling and readers of results can see
it.

Each function takes a raw object and returns the complete one; given values are never overridden. Node
defaults are those that a kubelet sets when it registers.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.api.pod import Pod
from holdfast.api.resources import qos_class
from holdfast.local.store.objects import Raw
from holdfast.machinery.strategies.admission import merge_runtime_class
from holdfast.machinery.strategies.core_kinds import with_expiry

GATED_REASON = "SchedulingGated"
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
DEFAULT_GRACE = 30
PODS_PER_NODE = 110
_SHAPES_KEPT = 10_000

SYSTEM_CLASSES = {
    names.SYSTEM_CLUSTER_CRITICAL: 2_000_000_000,
    names.SYSTEM_NODE_CRITICAL: 2_000_001_000,
}


Scan = Callable[[str, str], Iterable[Raw]]
"""All objects of a group and kind."""


def admit(raw: Raw, scan: Scan, now: str) -> Raw:
    """The object as it would be stored. Raises InvalidObject for errors that depend on cluster
    state.
    """
    if (raw["apiVersion"], raw["kind"]) not in KINDS:
        return raw  # only plugins know what it is
    if raw["kind"] == "Pod":
        return _pod(raw, scan, now)
    complete = _COMPLETE.get(raw["kind"])
    return complete(raw, now) if complete is not None else raw


def _pod(raw: Raw, scan: Scan, now: str) -> Raw:
    spec = dict(raw.get("spec") or {})
    name = spec.get("runtimeClassName")
    if name:
        classes = scan("node.k8s.io", "RuntimeClass")
        chosen = next((each for each in classes if each["metadata"]["name"] == name), None)
        if chosen is not None:  # else it was admitted elsewhere, or has no overhead to speak of
            merge_runtime_class(spec, chosen)
    host_network = bool(spec.get("hostNetwork"))
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [_container(container, host_network) for container in spec[field]]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE)
    spec.setdefault("schedulerName", names.DEFAULT_SCHEDULER)
    _give_priority(spec, list(scan("scheduling.k8s.io", "PriorityClass")))
    status = dict(raw.get("status") or {})
    status.setdefault("phase", "Pending")
    completed = {**raw, "spec": spec, "status": status}
    if "qosClass" not in status:
        status["qosClass"] = _qos(completed)
    if spec.get("schedulingGates") and not status.get("conditions"):
        status["conditions"] = [gated_condition(now)]
    return completed


_known_qos: dict[bytes, str] = {}


def _qos(raw: Raw) -> str:
    """The QoS class, memoized by the resources of the pod's containers."""
    spec = raw["spec"]
    containers = [spec.get("containers"), spec.get("initContainers")]
    asked = [[each.get("resources") for each in part or []] for part in containers]
    shape = msgspec.json.encode((spec.get("resources"), asked))
    known = _known_qos.get(shape)
    if known is None:
        if len(_known_qos) >= _SHAPES_KEPT:
            _known_qos.clear()
        known = _known_qos[shape] = qos_class(convert(raw, Pod))
    return known


def gated_condition(now: str) -> Raw:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": GATED_REASON,
        "message": GATED_MESSAGE,
        "lastTransitionTime": now,
    }


def _container(raw: Raw, host_network: bool) -> Raw:
    container = dict(raw)
    resources = container.get("resources")
    if resources and resources.get("limits"):
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        container["resources"] = {**resources, "requests": requests}
    if container.get("ports"):
        container["ports"] = [_port(port, host_network) for port in container["ports"]]
    return container


def _port(raw: Raw, host_network: bool) -> Raw:
    port = {**raw, "protocol": raw.get("protocol") or "TCP"}
    if host_network and not port.get("hostPort"):
        port["hostPort"] = port["containerPort"]
    return port


def _give_priority(spec: Raw, classes: list[Raw]) -> None:
    """Resolves the priority class. A number without a class is accepted: scenarios need not declare
    classes.
    """
    name = spec.get("priorityClassName")
    given = spec.get("priority")
    chosen: Raw | None = None
    if name:
        chosen = next((each for each in classes if each["metadata"]["name"] == name), None)
        if chosen is None and name not in SYSTEM_CLASSES:
            if given is not None:  # it was admitted elsewhere, where the class is
                spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
                return
            raise InvalidObject(
                "", "spec.priorityClassName", f"no PriorityClass with name {name} was found"
            )
    elif given is None:
        # Of several defaults the API server takes the lowest.
        defaults = [each for each in classes if each.get("globalDefault")]
        chosen = min(defaults, key=lambda each: int(each.get("value", 0)), default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value = chosen.get("value", 0) if chosen is not None else SYSTEM_CLASSES.get(name or "", 0)
    if name and given is not None and given != value:
        raise InvalidObject(
            "", "spec.priority", f"must not be given: PriorityClass {name} says {value}, not {given}"
        )
    spec["priority"] = value if given is None else given
    policy = chosen.get("preemptionPolicy") if chosen is not None else None
    spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")


def _node(raw: Raw, now: str) -> Raw:
    metadata = dict(raw["metadata"])
    metadata["labels"] = {
        names.HOSTNAME_LABEL: metadata["name"],
        **(metadata.get("labels") or {}),
    }
    status = dict(raw.get("status") or {})
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    everything = {"pods": str(PODS_PER_NODE), **allocatable, **capacity}
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


def _namespace(raw: Raw, now: str) -> Raw:
    metadata = dict(raw["metadata"])
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        names.NAMESPACE_NAME_LABEL: metadata["name"],
    }
    return {**raw, "metadata": metadata, "status": raw.get("status") or {"phase": "Active"}}


def _phased(phase: str) -> Callable[[Raw, str], Raw]:
    def complete(raw: Raw, now: str) -> Raw:
        status: dict[str, Any] = {"phase": phase, **(raw.get("status") or {})}
        return {**raw, "status": status}

    return complete


def _reservation(raw: Raw, now: str) -> Raw:
    spec = {"allocateOnce": True, **raw["spec"]}
    status = {"phase": "Pending", **(raw.get("status") or {})}
    return with_expiry({**raw, "spec": spec, "status": status})


_COMPLETE: dict[str, Callable[[Raw, str], Raw]] = {
    "Node": _node,
    "Namespace": _namespace,
    "PersistentVolume": _phased("Available"),
    "PersistentVolumeClaim": _phased("Pending"),
    "Reservation": _reservation,
}
