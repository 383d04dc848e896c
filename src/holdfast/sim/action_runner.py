"""Carries out the actions of a scenario on the cluster, like a user with `kubectl`."""

from collections.abc import Callable
from typing import Any

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.local.clock import Timer
from holdfast.local.cluster_parts import ClusterParts
from holdfast.local.component import RESERVATION
from holdfast.local.node_lifecycle import registered_node
from holdfast.local.store.objects import NODE, POD, Key, Raw
from holdfast.local.timeline import DELETED
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.objects import changed_object, decoded_object, is_gone
from holdfast.machinery.patch import PatchError, merge_patch, track_update
from holdfast.machinery.patch import apply as server_side_apply
from holdfast.machinery.schema import ResourceType, apply_defaults
from holdfast.machinery.status import StatusError
from holdfast.sim.clock import timing
from holdfast.sim.document_fields import duration
from holdfast.sim.scenario_actions import Apply, Create, Delete, Patch, Restart, Target
from holdfast.sim.scenario_objects import as_invalid, refusals, type_of
from holdfast.snapshot.stripping import REVISED, TEMPLATE_DIGEST

_MANAGER = "scenario"
_OTHERS = "cluster"

Step = Create | Apply | Delete | Patch | Restart


class ActionRunner:
    """Raises InvalidObject for requests that an API server would reject."""

    def __init__(self, world: ClusterParts, strip: Callable[[Raw], Raw] | None = None) -> None:
        """`strip` removes from objects what those of the cluster lack."""
        self._world = world
        self._strip = strip
        self._objects = world.objects
        self._last_applied: dict[Key, Raw] = {}
        self._to_delete: dict[Key, Timer] = {}
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
        raw = self._registered(step.raw)
        try:
            type = type_of(raw, self._objects.declared)
            stored = self._objects.restore(raw, type)
        except StatusError as error:
            raise refusals(str(key), error)[0] from None
        key = self._objects.key_of(stored)
        self._last_applied[key] = raw
        self._plan_deletion(key, stored)

    def _plan_deletion(self, key: Key, raw: Raw, before: Raw | None = None) -> None:
        """Deletes the object at its `delete-at`, if it still exists."""
        at = _delete_at(raw)
        if before is not None and _delete_at(before) == at:
            return
        planned = self._to_delete.pop(key, None)
        if planned is not None:
            self._world.timers.cancel(planned)
        if at is not None:
            self._to_delete[key] = self._world.timers.when_due(
                key, at, lambda: self._delete_object(key)
            )

    def _apply(self, step: Apply) -> None:
        """Like `kubectl apply --server-side`, of the object and of its status if it has one."""
        key = self._objects.key_of(step.raw)
        if key not in self._objects:
            self._create(step)
            return
        config, last = self._registered(step.raw), self._last_applied.get(key)
        if last is None:
            last = _applied_template(self._objects.get(key) or {})
        self._apply_part(key, _without_status(config), _without_status(last), "apply")
        if config.get("status"):
            self._apply_part(key, _only_status(config), _only_status(last), "apply", "status")
        self._last_applied[key] = config

    def _apply_part(self, key: Key, config: Raw, last: Raw, field: str, subresource: str = "") -> None:
        live = self._objects.get(key)
        assert live is not None
        request = self._request(key, live, subresource)
        type, now = request.type, request.stamp()
        if subresource and type.subresource(subresource) is None:
            request.subresource = ""
        try:
            known = live
            if last:
                # What differs from the last applied configuration was written by others and is theirs.
                owned = server_side_apply(type, None, last, _MANAGER, True, now)
                known = track_update(type, owned, live, _OTHERS, subresource, now)
            applied = server_side_apply(type, known, config, _MANAGER, True, now)
        except PatchError as error:
            raise InvalidObject(str(key), field, error.message) from None
        metadata = {k: v for k, v in applied["metadata"].items() if k != "managedFields"}
        self._replace(request, key, live, {**applied, "metadata": metadata}, field)

    def _patch(self, step: Patch) -> None:
        """Like `kubectl patch --type=merge`, of the object and of its status if the patch has one."""
        key, live = self._found(step.target, "patch")
        merge = with_allocatable(key.kind, step.merge) if not key.group else step.merge
        self._replace(self._request(key, live), key, live, merge_patch(live, merge), "patch.merge")
        now = self._objects.get(key)
        if now is None or "status" not in merge:
            return
        request = self._request(key, now, "status")
        if request.type.subresource("status") is not None:
            status = merge_patch(now, {"status": merge["status"]})
            self._replace(request, key, now, status, "patch.merge")

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
        inside = kubelets.pods_on(key.name) if key[:2] == NODE else []
        if self._objects.end(key, "Background"):
            self._world.record(key, DELETED)
        for each in inside:
            kubelets.delete(each, at_once=True)

    def _registered(self, raw: Raw) -> Raw:
        if self._strip is not None:
            raw = self._strip(raw)
        is_node = (raw["apiVersion"], raw["kind"]) == ("v1", "Node")
        return registered_node(raw, self._world.clock.stamp()) if is_node else raw

    def _request(self, key: Key, live: Raw, subresource: str = "") -> WriteRequest:
        type: ResourceType = type_of(live, self._objects.declared)
        return self._objects.request(type, live["metadata"], subresource=subresource, restores=True)

    def _replace(self, request: WriteRequest, key: Key, live: Raw, after: Raw, field: str) -> None:
        """Stores the changed object. Raises InvalidObject if an API server would refuse the change."""
        for name in ("apiVersion", "kind"):
            if after.get(name) != live[name]:
                raise InvalidObject(str(key), f"{field}.{name}", "field is immutable")
        decoded, problems = decoded_object(request.type, after)
        found = [as_invalid(str(key), each) for each in problems]
        if not found:
            timing(decoded, found)
        if not found:
            try:
                # What was stripped is compared as if it had the defaults, in both.
                before = live if self._strip is None else apply_defaults(request.type, live)
                changed = changed_object(request, before, apply_defaults(request.type, decoded))
                if self._strip is not None:
                    changed = self._strip(changed)
            except StatusError as error:
                found = refusals(str(key), error)
        if found:
            raise found[0].within(str(key), field)
        if is_gone(request, changed):
            self._objects.delete(key)
            if key[:2] != RESERVATION:
                self._world.record(key, DELETED)
        elif changed != live:
            self._plan_deletion(key, self._objects.store.update(key, changed), live)

    def _found(self, target: Target, field: str) -> tuple[Key, Raw]:
        present = [
            (key, raw) for key in target.candidates() if (raw := self._objects.get(key)) is not None
        ]
        if not present:
            raise InvalidObject(str(target), field, "there is no such object at this time")
        if len(present) > 1:
            groups = " and ".join(key.group for key, _ in present)
            message = f"is required: the object exists in {groups}"
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


def _applied_template(live: Raw) -> Raw:
    """Of an object that was not applied here, what counts as applied: its pod template, which nobody
    but its author writes. So what a manifest no longer has is removed from it."""
    spec = live.get("spec") or {}
    if live.get("kind") not in REVISED or not spec.get("template"):
        return {}
    template = spec["template"]
    metadata = template.get("metadata") or {}
    noted = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != TEMPLATE_DIGEST}
    applied = {**template, "metadata": {**metadata, "annotations": noted}}
    parts = {name: live[name] for name in ("apiVersion", "kind")}
    named = {name: live["metadata"].get(name) for name in ("name", "namespace")}
    return {**parts, "metadata": named, "spec": {"template": applied}}


def _only_status(raw: Raw) -> Raw:
    metadata = {k: v for k, v in (raw.get("metadata") or {}).items() if k in ("name", "namespace")}
    parts = {k: v for k, v in raw.items() if k in ("apiVersion", "kind", "status")}
    return {**parts, "metadata": metadata} if parts else {}
