"""Changes of objects, tried on a snapshot: applied to its objects and its scheduler, and undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.api.kinds import KindInfo
from holdfast.api.times import format_time
from holdfast.kube.object_client import Raw
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.scheduler.cluster.events import Added, Deleted, Malformed, Updated
from holdfast.snapshot.cluster_snapshot import NODE, POD, RESERVATION, ClusterSnapshot, event_of

PATCH, CREATE, DELETE = "patch", "create", "delete"
_END = "end"
"""A deletion that is waited for, as data."""


class ObjectChange(NamedTuple):
    """One object is patched, created or deleted."""

    operation: str
    info: KindInfo
    name: str
    namespace: str
    body: Raw
    """The JSON merge patch or the new object; empty for a deletion."""
    follows: bool = False
    """Controllers make this change once the others are made."""
    subresource: str = ""
    """The subresource that is patched, for a change that the user makes there."""
    is_awaited: bool = False
    """Whether it happens by itself, so that users only wait for it."""

    def data(self) -> Raw:
        named: Raw = {
            "operation": _END if self.is_awaited and self.operation == DELETE else self.operation,
            "apiVersion": self.info.api_version,
            "kind": self.info.kind,
            "namespace": self.namespace,
            "name": self.name,
        }
        if self.operation != DELETE:
            named[self.operation if self.operation == PATCH else "object"] = self.body
        if self.subresource:
            named["subresource"] = self.subresource
        return named

    def split(self) -> tuple[ObjectChange, ...]:
        """What a user applies and what follows. Status is written by controllers, and metadata such as
        the uid by the API server; a node is created with the status that it reports."""
        if self.follows or self.subresource or self.operation == DELETE:
            return (self,)
        body = {key: value for key, value in self.body.items() if key != "status"}
        if self.operation == CREATE and self.info is NODE:
            return (self._replace(body=_applicable(self.body)),)
        if self.operation == CREATE:
            return (self._replace(body=_applicable(body)),)
        status = {key: value for key, value in self.body.items() if key == "status"}
        parts = [(body, False), (status, True)]
        return tuple(self._replace(body=part, follows=later) for part, later in parts if part)


_SERVER_SIDE = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
)
"""Metadata that the API server writes."""
_CHANGEABLE = {"nodeName", "schedulingGates", "tolerations", "activeDeadlineSeconds"}
"""What may change in the spec of a pod: the scheduler binds it, gates are removed, and tolerations are
added."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _applicable(raw: Raw) -> Raw:
    """An object as a user applies it."""
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _SERVER_SIDE}
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(_LAST_APPLIED, None)
    if annotations:
        metadata["annotations"] = annotations
    return {**raw, "metadata": metadata}


def patch(info: KindInfo, raw: Raw, body: Raw, follows: bool = False) -> ObjectChange:
    metadata = raw["metadata"]
    return ObjectChange(PATCH, info, metadata["name"], metadata.get("namespace") or "", body, follows)


def patch_status(info: KindInfo, raw: Raw, status: Raw) -> ObjectChange:
    """A change of a status that no controller makes."""
    return patch(info, raw, {"status": status})._replace(subresource="status")


def create(info: KindInfo, raw: Raw, follows: bool = False) -> ObjectChange:
    metadata = raw["metadata"]
    return ObjectChange(CREATE, info, metadata["name"], metadata.get("namespace") or "", raw, follows)


def delete(info: KindInfo, name: str, namespace: str = "") -> ObjectChange:
    return ObjectChange(DELETE, info, name, namespace, {})


def awaited(changes: Iterable[ObjectChange]) -> list[ObjectChange]:
    """The changes, which happen by themselves; what follows from them does anyway."""
    return [each if each.follows else each._replace(is_awaited=True) for each in changes]


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """A change of a cluster that takes effect as a whole."""

    actions: tuple[str, ...] = ()
    """What it does, such as `Tolerate`."""
    objects: tuple[ObjectChange, ...] = ()
    until: float | None = None
    """When it will have happened by itself, for a change that is only waited for."""

    def __add__(self, other: ClusterChange) -> ClusterChange:
        """Both, this one first. Patches that follow are made from the changed objects."""
        times = [each.until for each in (self, other) if each.until is not None]
        return ClusterChange(
            self.actions + other.actions, self.objects + other.objects, max(times, default=None)
        )

    @property
    def parts(self) -> list[ObjectChange]:
        """What a user applies, one after the other, and what follows."""
        return _edits_together([part for each in self.objects for part in each.split()])

    def data(self) -> Raw:
        first, then = list[Raw](), list[Raw]()
        for each in self.parts:
            is_made = each.is_awaited and each.operation != DELETE  # by controllers
            (then if each.follows or is_made else first).append(each.data())
        found: dict[str, Any] = {"actions": list(self.actions), "objects": first}
        if then:
            found["then"] = then
        if self.until is not None:
            found["until"] = format_time(self.until)
        return found


def _edits_together(changes: Iterable[ObjectChange]) -> list[ObjectChange]:
    """With one patch for all that are made of an object: each edit of a template begins a rollout."""
    found: list[ObjectChange] = []
    edits: dict[tuple[KindInfo, str, str, str, bool], int] = {}
    for each in changes:
        key = each.info, each.namespace, each.name, each.subresource, each.follows
        if each.operation != PATCH:
            edits = {known: at for known, at in edits.items() if known[:3] != key[:3]}
        elif key in edits:
            first = found[edits[key]]
            found[edits[key]] = first._replace(body=one_patch(first.body, each.body))
            continue
        else:
            edits[key] = len(found)
        found.append(each)
    return found


def one_patch(first: Raw, then: Raw) -> Raw:
    """One merge patch for two, the second of which was made from what the first one changes."""
    nested = {key for key in then if isinstance(then[key], dict) and isinstance(first.get(key), dict)}
    return {**first, **then, **{key: one_patch(first[key], then[key]) for key in nested}}


@contextmanager
def applied(snapshot: ClusterSnapshot, changes: Iterable[ObjectChange]) -> Iterator[None]:
    """Makes the changes in the snapshot, and undoes them at the end of the block."""
    undo: list[Callable[[], None]] = []
    memo = snapshot.memo
    try:
        for each in changes:
            snapshot.memo = {}
            undo.append(_apply(snapshot, each))
        yield
    finally:
        for revert in reversed(undo):
            revert()
        snapshot.memo = memo


def _apply(snapshot: ClusterSnapshot, change: ObjectChange) -> Callable[[], None]:
    info = change.info
    key = change.namespace, change.name
    known = snapshot.objects.setdefault((info.api_version, info.kind), {})
    before = known.get(key)
    after: Raw | None = None
    if change.operation == CREATE:
        after = change.body
    elif change.operation == PATCH and before is not None:
        after = merge_patch(before, change.body)
    is_new = info is POD and _is_new_pod(snapshot, before, change)
    after = _created_now(snapshot, after) if is_new and after is not None else after
    _replace(snapshot, info, key, before, after)
    restore = _moved_to_the_end(snapshot, key) if is_new else lambda: None

    def revert() -> None:
        _replace(snapshot, info, key, after, before)
        restore()

    return revert


def _is_new_pod(snapshot: ClusterSnapshot, before: Raw | None, change: ObjectChange) -> bool:
    """Whether the pod is another one than before. Pods that are yet to be created are changed in their
    manifest."""
    if snapshot.is_hypothetical or change.operation == DELETE:
        return False
    if before is None:
        return change.operation == CREATE and not _node(change.body)
    return is_replaced(before, change)


def is_replaced(pod: Raw, change: ObjectChange) -> bool:
    """Whether the patch of a pod without a node is made by another pod in its place: its controller
    creates that one, or the API server does not let the field change."""
    before, after = pod["spec"], merge_patch(pod, change.body)["spec"]
    if change.operation != PATCH or _node(after):
        return False
    if change.follows:
        return bool(before != after)
    kept = all(each in (after.get("tolerations") or ()) for each in before.get("tolerations") or ())
    fields = (before.keys() | after.keys()) - _CHANGEABLE
    return not kept or any(before.get(field) != after.get(field) for field in fields)


def _created_now(snapshot: ClusterSnapshot, raw: Raw) -> Raw:
    metadata = {key: each for key, each in raw["metadata"].items() if key != "resourceVersion"}
    return {**raw, "metadata": {**metadata, "creationTimestamp": format_time(snapshot.now)}}


def _moved_to_the_end(snapshot: ClusterSnapshot, key: tuple[str, str]) -> Callable[[], None]:
    """Gives the pod the place of a new one in the scheduling queue; returns what undoes that."""
    pod = snapshot.cluster.pod(*key)
    if pod is None:  # it is invalid for the scheduler
        return lambda: None
    before = pod.created, pod.first_seen, pod.queued_since
    pod.created = format_time(snapshot.now)
    pod.first_seen = pod.queued_since = snapshot.now

    def restore() -> None:
        pod.created, pod.first_seen, pod.queued_since = before

    return restore


def _scheduler(raw: Raw | None) -> str | None:
    return ((raw or {}).get("spec") or {}).get("schedulerName") or None


def _node(raw: Raw | None) -> str | None:
    return ((raw or {}).get("spec") or {}).get("nodeName") or None


def _replace(
    snapshot: ClusterSnapshot,
    info: KindInfo,
    key: tuple[str, str],
    before: Raw | None,
    after: Raw | None,
) -> None:
    """Feeds the difference to the scheduler. A Reservation is added anew, because the scheduler's own
    decisions about a known one take precedence over its object; and a pod of another scheduler, or that
    loses its node, since a pod never does."""
    known, scheduler = snapshot.objects[info.api_version, info.kind], snapshot.scheduler
    is_added_anew = info is RESERVATION or after is None or _scheduler(before) != _scheduler(after)
    is_added_anew |= info is POD and bool(_node(before)) and _node(before) != _node(after)
    if before is not None and is_added_anew:
        event = event_of(info, before)
        if not isinstance(event, Malformed):
            scheduler.feed(Deleted(event.object), snapshot.now)
    if after is None:
        known.pop(key, None)
        return
    known[key] = after
    event = event_of(info, after)
    if isinstance(event, Added) and before is not None and not is_added_anew:
        scheduler.feed(Updated(event.object), snapshot.now)
    else:
        scheduler.feed(event, snapshot.now)
