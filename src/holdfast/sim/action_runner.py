"""Carries out the actions of a scenario on the cluster, like a user with `kubectl`."""

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.api.quantity import parse
from holdfast.local.admission import admit
from holdfast.local.clock import TimerEntry
from holdfast.local.component import DELETED, RESERVATION
from holdfast.local.store.objects import NODE, POD, Key, Raw
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.machinery.strategies.core_kinds import with_expiry
from holdfast.machinery.typed_validation import validate
from holdfast.sim.clock import timing
from holdfast.sim.document_fields import duration
from holdfast.sim.scenario_actions import Apply, Create, Delete, Patch, Restart, Target
from holdfast.sim.simulated_cluster import SimulatedCluster

_NAMESPACE = ("", "Namespace")
_FIXED = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
)

Step = Create | Apply | Delete | Patch | Restart


class ActionRunner:
    """Raises InvalidObject for requests that an API server would reject."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self._objects = world.objects
        self._last_applied: dict[Key, Raw] = {}
        self._to_delete: dict[Key, TimerEntry] = {}
        self._take: dict[type, Callable[[Any], None]] = {
            Create: self._create,
            Apply: self._apply,
            Delete: self._delete,
            Patch: self._patch,
            Restart: self._restart,
        }

    def take(self, step: Step, place: int) -> None:
        """`place` is that of the step's document among all."""
        self._world.timers.place = place
        self._take[type(step)](step)

    def _create(self, step: Create | Apply) -> None:
        key = self._objects.key_of(step.raw)
        if key.name and key in self._objects:
            raise InvalidObject(str(key), "", "already exists")
        complete = self._admitted(step.raw, key)
        stored = self._objects.create(complete)
        key = self._objects.key_of(stored)
        self._last_applied[key] = complete
        self._plan_deletion(key, stored)

    def _plan_deletion(self, key: Key, raw: Raw, before: Raw | None = None) -> None:
        """At its `delete-at`, if the object is still there."""
        at = _delete_at(raw)
        if before is not None and _delete_at(before) == at:
            return
        planned = self._to_delete.pop(key, None)
        if planned is not None:
            planned.what = None
        if at is not None:
            self._to_delete[key] = self._world.timers.when_due(
                key, at, lambda: self._delete_object(key)
            )

    def _apply(self, step: Apply) -> None:
        key = self._objects.key_of(step.raw)
        live = self._objects.get(key)
        if live is None:
            self._create(step)
            return
        complete, last = self._admitted(step.raw, key), self._last_applied.get(key, {})
        if "status" not in step.raw:
            complete, last = _without_status(complete), _without_status(last)
        self._replace(key, live, apply(live, last, complete), "apply")
        self._last_applied[key] = complete

    def _patch(self, step: Patch) -> None:
        key, live = self._found(step.target, "patch")
        merge = with_allocatable(key.kind, step.merge) if not key.group else step.merge
        self._replace(key, live, merge_patch(live, merge), "patch.merge")

    def _restart(self, step: Restart) -> None:
        self._world.restart_scheduler()

    def _delete(self, step: Delete) -> None:
        key, _ = self._found(step.target, "delete")
        self._delete_object(key)

    def _delete_object(self, key: Key) -> None:
        kubelets = self._world.kubelets
        if key[:2] == POD:
            kubelets.delete(key)
            return
        self._last_applied.pop(key, None)
        if key[:2] == _NAMESPACE:
            self._terminate(key)
            return
        if key[:2] == RESERVATION:
            if self._objects.end(key, self._world.clock.stamp()):
                self._world.record(key, DELETED)
            return
        inside = kubelets.pods_on(key.name) if key[:2] == NODE else []
        self._objects.delete(key)
        self._world.record(key, DELETED)
        for each in inside:
            kubelets.delete(each, at_once=True)

    def _terminate(self, key: Key) -> None:
        """A namespace goes when it is empty, which others see to."""
        namespace = self._objects.get(key)
        assert namespace is not None
        metadata = {"deletionTimestamp": self._world.clock.stamp(), **namespace["metadata"]}
        status = {**(namespace.get("status") or {}), "phase": "Terminating"}
        self._objects.update(key, {**namespace, "metadata": metadata, "status": status})

    def _admitted(self, raw: Raw, key: Key) -> Raw:
        try:
            return admit(raw, self._objects.scan, self._world.clock.stamp())
        except InvalidObject as error:
            raise error.within(str(key)) from None

    def _replace(self, key: Key, live: Raw, changed: Raw, field: str) -> None:
        """Puts the changed object in, if an API server would have it."""
        if key[:2] == RESERVATION and isinstance(changed.get("spec"), dict):
            changed = with_expiry(changed, live)
        for path in _FIXED:
            if _at(changed, path) != _at(live, path):
                raise InvalidObject(str(key), f"{field}.{'.'.join(path)}", "cannot be changed")
        if key[:2] == POD and "spec" not in changed:
            raise InvalidObject(str(key), f"{field}.spec", "is required and cannot be removed")
        node = _at(live, ("spec", "nodeName")) if key[:2] == POD else None
        if node and _at(changed, ("spec", "nodeName")) != node:
            message = f"cannot be changed: the pod is on {node}"
            raise InvalidObject(str(key), f"{field}.spec.nodeName", message)
        if "status" in live:
            changed.setdefault("status", live["status"])
        problems = validate(changed, self._objects.declared)
        if not problems:
            timing(changed, problems)
        if not problems and key[:2] == POD:
            problems.extend(refused_changes(live, changed))
        if problems:
            raise problems[0].within(str(key), field)
        if changed != live:
            self._plan_deletion(key, self._objects.update(key, changed), live)

    def _found(self, target: Target, field: str) -> tuple[Key, Raw]:
        present = [
            (key, raw) for key in target.candidates() if (raw := self._objects.get(key)) is not None
        ]
        if not present:
            raise InvalidObject(str(target), field, "there is no such object at this time")
        if len(present) > 1:
            groups = " and ".join(key.group for key, _ in present)
            message = f"is needed: there is one in {groups}"
            raise InvalidObject(str(target), f"{field}.apiVersion", message)
        return present[0]


def with_allocatable(kind: str, merge: Raw) -> Raw:
    """The node with the allocatable that a kubelet computes from its capacity."""
    status = merge.get("status")
    if kind != "Node" or not isinstance(status, dict) or "capacity" not in status:
        return merge
    return {**merge, "status": {"allocatable": status["capacity"], **status}}


def _delete_at(raw: Raw) -> float | None:
    text = (raw["metadata"].get("annotations") or {}).get(names.SIM_DELETE_AT)
    return duration(text) if text is not None else None


def _without_status(raw: Raw) -> Raw:
    return {name: value for name, value in raw.items() if name != "status"}


def _at(raw: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw


# Client-side apply


def apply(live: Any, last: Any, new: Any) -> Any:
    """Like `kubectl apply`: sets the fields of `new`, removes those that only `last` had, keeps
    those that others wrote.
    """
    if not isinstance(new, dict) or not isinstance(live, dict):
        return new
    before = last if isinstance(last, dict) else {}
    result = {key: value for key, value in live.items() if key in new or key not in before}
    for key, value in new.items():
        result[key] = apply(live.get(key), before.get(key), value)
    return result


# Immutable fields of a pod


_CONTAINERS = ("containers", "initContainers")
_RESOURCES = "a pod's resources cannot be changed by an update"


def refused_changes(live: Raw, changed: Raw) -> Iterator[InvalidObject]:
    """The differences between two valid versions of a pod that an update cannot make."""
    before, after = live["spec"], changed["spec"]
    for field in _CONTAINERS:
        known = {each["name"]: each for each in before.get(field) or []}
        for i, container in enumerate(after.get(field) or []):
            old = known.pop(container["name"], None)
            if old is None:
                message = "containers cannot be added to a pod by an update"
                yield InvalidObject("", f"spec.{field}[{i}]", message)
            elif _amounts(old) != _amounts(container):
                yield InvalidObject("", f"spec.{field}[{i}].resources", _RESOURCES)
        for name in known:
            message = f"containers cannot be taken from a pod by an update: {name}"
            yield InvalidObject("", f"spec.{field}", message)
    if _amounts(before) != _amounts(after):
        yield InvalidObject("", "spec.resources", _RESOURCES)
    gates = _names(before.get("schedulingGates"))
    for i, gate in enumerate(after.get("schedulingGates") or []):
        if gate.get("name") not in gates:
            message = f"{gate.get('name')}: gates can only be removed by an update, not added"
            yield InvalidObject("", f"spec.schedulingGates[{i}]", message)
    if after.get("nodeName") and not before.get("nodeName"):
        message = "cannot be set by an update: a pod gets its node from the scheduler, by a Binding"
        yield InvalidObject("", "spec.nodeName", message)
    kept = after.get("tolerations") or []
    for toleration in before.get("tolerations") or []:
        if toleration not in kept:
            message = "tolerations can only be added by an update, not removed or changed"
            yield InvalidObject("", "spec.tolerations", message)


def _amounts(part_of_pod: Raw) -> dict[tuple[str, str], int]:
    """Quantities by value, so that `1` and `1000m` are equal."""
    resources = part_of_pod.get("resources") or {}
    return {
        (part, name): parse(quantity)
        for part in ("requests", "limits")
        for name, quantity in (resources.get(part) or {}).items()
    }


def _names(items: list[Any] | None) -> set[Any]:
    return {each.get("name") for each in items or []}
