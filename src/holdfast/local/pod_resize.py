"""In-place resize of pods: what a kubelet does when the resources of a running pod change.

    requested: the node has too little left    PodResizePending (Deferred), until something there ends
    requested: it fits                         allocated: allocatedResources, PodResizeInProgress
    allocated                                  made: the resources of the statuses, without a condition

Allocation and actuation follow each other at once, as two writes. A container whose `resizePolicy` says
so is restarted. The API server refuses what a node cannot have even if empty, so that no resize is
Infeasible here.
"""

from __future__ import annotations

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.names import CPU, MEMORY
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.quantity import parse
from holdfast.api.resources import Amounts, amounts, pod_requests
from holdfast.local.clock import LocalClock
from holdfast.local.component import ENDED, ObjectWriter, Steps
from holdfast.local.store.objects import NODE, POD, Key, Raw, StoreChange, node_key
from holdfast.local.stored_events import StoredEvents
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_DEFERRED = "Deferred"
_PARTS = ("requests", "limits")


class PodResizes:
    """The resizes of all kubelets."""

    def __init__(self, objects: ObjectWriter, clock: LocalClock, recorder: StoredEvents) -> None:
        self._objects = objects
        self._clock = clock
        self._recorder = recorder
        self._unfinished: dict[str, dict[Key, None]] = {}
        """By node, pods whose resize is not finished, the oldest first."""
        self._due: dict[Key, None] = {}
        """Pods to look at: what they request or what their node has left is new."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == NODE:
            self._retry(key.name)
        elif key[:2] == POD:
            self._pod_changed(key, before, after)

    def _pod_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        pod = after if after is not None else before
        node = pod["spec"].get("nodeName") if pod is not None else None
        if not node:
            return
        if after is not None and _is_unfinished(after):
            self._unfinished.setdefault(node, {})[key] = None
            self._due[key] = None
        elif node in self._unfinished:
            there = self._unfinished[node]
            there.pop(key, None)
            if not there:
                del self._unfinished[node]
        if before is not None and _releases(before, after):
            self._retry(node)

    def _retry(self, node: str) -> None:
        self._due.update(self._unfinished.get(node, {}))

    def settle(self) -> Steps:
        while self._due:
            due, self._due = self._due, {}
            for key in sorted(due, key=self._order):
                pod = self._objects.get(key)
                if pod is not None and _is_unfinished(pod):
                    self._sync(key, pod)
                yield None

    def _order(self, key: Key) -> tuple[bool, int]:
        """Resizes that need no more than before come first, then pods of higher priority, then the
        oldest."""
        pod = self._objects.get(key)
        if pod is None:
            return False, 0
        return _needs_more(pod), -int(pod["spec"].get("priority") or 0)

    def _sync(self, key: Key, pod: Raw) -> None:
        generation = pod["metadata"].get("generation", 1)
        found = _condition(pod, IN_PROGRESS)
        if found is not None and found.get("observedGeneration") == generation:
            self._actuate(key, pod, generation)
        elif not _differs(pod):
            self._write(key, pod, _without_conditions(pod))
        else:
            node = self._objects.get(node_key(pod["spec"]["nodeName"]))
            if node is not None:
                self._allocate(key, pod, generation, node)

    def _allocate(self, key: Key, pod: Raw, generation: int, node: Raw) -> None:
        message = self._obstacle(key, pod, node)
        status = _without_conditions(pod)
        if not message:
            for field, statuses in _reported(pod).items():
                status[field] = [
                    each
                    if wanted is None
                    else {**each, "allocatedResources": wanted.get("requests") or {}}
                    for each, wanted in statuses
                ]
            _add_condition(status, IN_PROGRESS, "", "", generation, self._clock.stamp())
            self._write(key, pod, status)
            self._emit(pod, "Normal", "ResizeStarted", "started", generation)
            return
        before = _condition(pod, PENDING) or {}
        if before.get("observedGeneration") != generation:
            self._emit(pod, "Warning", f"Resize{_DEFERRED}", _DEFERRED, generation, message)
        elif before.get("message") == message:
            return
        since = before.get("lastTransitionTime") or self._clock.stamp()
        _add_condition(status, PENDING, _DEFERRED, message, generation, since)
        self._write(key, pod, status)

    def _obstacle(self, key: Key, pod: Raw, node: Raw) -> str:
        """The message of PodResizePending; empty if the pod fits."""
        try:
            wanted, has = pod_requests(convert(pod, Pod), use_status=False), _allocatable(node)
        except InvalidObject as error:
            return str(error)
        used = self._used(key, node["metadata"]["name"])
        for name in (CPU, MEMORY):
            amount, taken, capacity = wanted.get(name, 0), used.get(name, 0), has.get(name, 0)
            if amount and amount + taken > capacity:
                numbers = f"requested: {amount}, used: {taken}, capacity: {capacity}"
                return f"Node didn't have enough resource: {name}, {numbers}"
        return ""

    def _used(self, key: Key, node: str) -> Amounts:
        """What is allocated to the other pods of the node."""
        used: Amounts = {}
        for pod in self._objects.scan("", "Pod"):
            metadata = pod["metadata"]
            other = (metadata["namespace"], metadata["name"]) != (key.namespace, key.name)
            if not other or pod["spec"].get("nodeName") != node or _has_ended(pod):
                continue
            try:
                found = pod_requests(convert(_as_allocated(pod), Pod), use_status=False)
            except InvalidObject:
                continue
            for name in (CPU, MEMORY):
                used[name] = used.get(name, 0) + found.get(name, 0)
        return used

    def _actuate(self, key: Key, pod: Raw, generation: int) -> None:
        now = self._clock.stamp()
        status = _without_conditions(pod)
        policies = {
            each["name"]: each.get("resizePolicy") or ()
            for each in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ()))
        }
        for field, statuses in _reported(pod).items():
            made = []
            for each, wanted in statuses:
                if wanted is not None and _is_restarted(
                    each["resources"], wanted, policies[each["name"]]
                ):
                    message = f"Container {each['name']} resize requires restart"
                    self._recorder.emit(Emit(_about(pod), "Normal", "Killing", message), "kubelet")
                    made.append({**_restarted(each, now), "resources": wanted})
                else:
                    made.append(each if wanted is None else {**each, "resources": wanted})
            status[field] = made
        self._write(key, pod, status)
        self._emit(pod, "Normal", "ResizeCompleted", "completed", generation)

    def _write(self, key: Key, pod: Raw, status: Raw) -> None:
        self._objects.update(key, {**pod, "status": status})

    def _emit(
        self, pod: Raw, type: str, reason: str, outcome: str, generation: int, error: str = ""
    ) -> None:
        spec = pod["spec"]
        summary: Raw = {}
        sidecars = [each for each in spec.get("initContainers") or () if _is_sidecar(each)]
        for field, containers in (("initContainers", sidecars), ("containers", spec["containers"])):
            if containers:
                summary[field] = [
                    {"name": each["name"], "resources": _sorted(_resources(each))}
                    for each in containers
                ]
        summary["generation"] = generation
        if error:
            summary["error"] = error
        text = msgspec.json.encode(summary).decode()
        event = Emit(_about(pod), type, reason, f"Pod resize {outcome}: {text}")
        self._recorder.emit(event, "kubelet")


def _about(pod: Raw) -> ObjectRef:
    metadata = pod["metadata"]
    return ObjectRef("Pod", metadata["namespace"], metadata["name"], metadata["uid"])


def _has_ended(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def _is_unfinished(pod: Raw) -> bool:
    """Whether a running pod has other resources than it requests, or a condition of a resize."""
    status = pod.get("status") or {}
    if status.get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = status.get("conditions") or ()
    return any(each.get("type") in (PENDING, IN_PROGRESS) for each in conditions) or _differs(pod)


def _releases(before: Raw, after: Raw | None) -> bool:
    """Whether the change can leave more of the node for others."""
    if after is None or _has_ended(after):
        return not _has_ended(before)
    return _allocated_of(before) != _allocated_of(after)


def _allocated_of(pod: Raw) -> list[Raw | None]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return [each.get("allocatedResources") for each in statuses]


# Resources of containers


def _is_sidecar(container: Raw) -> bool:
    return bool(container.get("restartPolicy") == "Always")


def _resources(container: Raw) -> Raw:
    resources = container.get("resources") or {}
    return {part: resources[part] for part in _PARTS if resources.get(part)}


def _sorted(resources: Raw) -> Raw:
    return {part: dict(sorted(resources[part].items())) for part in sorted(resources)}


def _reported(pod: Raw) -> dict[str, list[tuple[Raw, Raw | None]]]:
    """The statuses of the containers with what they request; None for those that no resize is made of:
    init containers, and containers whose resources are not reported."""
    spec, status = pod["spec"], pod["status"]
    sidecars = [each for each in spec.get("initContainers") or () if _is_sidecar(each)]
    wanted = {each["name"]: _resources(each) for each in (*spec["containers"], *sidecars)}
    return {
        field: [
            (each, wanted.get(each["name"]) if each.get("resources") is not None else None)
            for each in status[field]
        ]
        for field in ("containerStatuses", "initContainerStatuses")
        if status.get(field)
    }


def _differs(pod: Raw) -> bool:
    containers, statuses = pod["spec"]["containers"], pod["status"].get("containerStatuses") or ()
    if not pod["status"].get("initContainerStatuses") and all(
        status.get("resources") == (container.get("resources") or {})
        for container, status in zip(containers, statuses, strict=False)
    ):
        return False
    return any(
        wanted is not None and not _equal(each["resources"], wanted)
        for statuses in _reported(pod).values()
        for each, wanted in statuses
    )


def _equal(have: Raw, wanted: Raw) -> bool:
    if all((have.get(part) or {}) == (wanted.get(part) or {}) for part in _PARTS):
        return True
    return all(_parsed(have.get(part)) == _parsed(wanted.get(part)) for part in _PARTS)


def _parsed(resources: Raw | None) -> dict[str, int]:
    return {name: parse(quantity) for name, quantity in (resources or {}).items()}


def _needs_more(pod: Raw) -> bool:
    for statuses in _reported(pod).values():
        for each, wanted in statuses:
            have = _parsed(each.get("allocatedResources"))
            for name, amount in _parsed((wanted or {}).get("requests")).items():
                if amount > have.get(name, 0):
                    return True
    return False


def _as_allocated(pod: Raw) -> Raw:
    """The pod with the requests that its kubelet has allocated."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    allocated = {
        each["name"]: each["allocatedResources"] for each in statuses if "allocatedResources" in each
    }
    containers = [
        {**each, "resources": {**(each.get("resources") or {}), "requests": allocated[each["name"]]}}
        if each["name"] in allocated
        else each
        for each in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def _allocatable(node: Raw) -> Amounts:
    status = convert(node, Node).status
    return amounts(status.allocatable or status.capacity, "status.allocatable")


def _is_restarted(have: Raw, wanted: Raw, policies: list[Raw] | tuple[()]) -> bool:
    changed = {
        name
        for part in _PARTS
        for name in (CPU, MEMORY)
        if _parsed(have.get(part)).get(name) != _parsed(wanted.get(part)).get(name)
    }
    return any(
        each.get("restartPolicy") == "RestartContainer" and each.get("resourceName") in changed
        for each in policies
    )


def _restarted(status: Raw, now: str) -> Raw:
    started = ((status.get("state") or {}).get("running") or {}).get("startedAt", now)
    ended = {"exitCode": 137, "reason": "Error", "startedAt": started, "finishedAt": now}
    return {
        **status,
        "state": {"running": {"startedAt": now}},
        "lastState": {"terminated": ended},
        "restartCount": int(status.get("restartCount") or 0) + 1,
    }


# Conditions


def _condition(pod: Raw, type: str) -> Raw | None:
    conditions = pod["status"].get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type), None)


def _without_conditions(pod: Raw) -> Raw:
    """The status without the conditions of a resize."""
    status = dict(pod["status"])
    status["conditions"] = [
        each
        for each in status.get("conditions") or ()
        if each.get("type") not in (PENDING, IN_PROGRESS)
    ]
    return status


def _add_condition(
    status: Raw, type: str, reason: str, message: str, generation: int, since: str
) -> None:
    new = {"type": type, "status": "True", "observedGeneration": generation}
    new |= {"lastProbeTime": None, "lastTransitionTime": since}
    if reason:
        new |= {"reason": reason, "message": message}
    status["conditions"] = [*status["conditions"], new]
