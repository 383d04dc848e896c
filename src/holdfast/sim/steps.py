"""What the scenario says is done to the cluster, as by a user with `kubectl`."""

from collections.abc import Callable
from typing import Any

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.api.merge_patch import merge_patch
from holdfast.api.validation import validate
from holdfast.backends.embedded.admission import admit, with_expiry
from holdfast.backends.embedded.agenda import Entry
from holdfast.backends.embedded.objects import RESERVATION
from holdfast.backends.embedded.telling import DELETED
from holdfast.sim.happenings import Apply, Create, Delete, Patch, Restart, Target
from holdfast.sim.merging import apply
from holdfast.sim.reading import duration
from holdfast.sim.timing import timing
from holdfast.sim.updates import refused_changes
from holdfast.sim.world import World
from holdfast.store.objects import NODE, POD, Key, Raw

_NAMESPACE = ("", "Namespace")
_FIXED = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
)

Step = Create | Apply | Delete | Patch | Restart


class Steps:
    """Raises InvalidObject for what an API server would refuse."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = world.objects
        self._last_applied: dict[Key, Raw] = {}
        self._to_delete: dict[Key, Entry] = {}
        self._take: dict[type, Callable[[Any], None]] = {
            Create: self._create,
            Apply: self._apply,
            Delete: self._delete,
            Patch: self._patch,
            Restart: self._restart,
        }

    def take(self, step: Step, place: int) -> None:
        """`place` is that of the step's document among all."""
        self._world.agenda.place = place
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
            self._to_delete[key] = self._world.agenda.when_due(
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
                self._world.tell(key, DELETED)
            return
        inside = kubelets.pods_on(key.name) if key[:2] == NODE else []
        self._objects.delete(key)
        self._world.tell(key, DELETED)
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
    """A kubelet works out what it can give from what it has."""
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
