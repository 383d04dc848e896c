"""What workload controllers read and return: the lister with its ownership indexes, and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from holdfast.api.decode import convert
from holdfast.api.meta import LabelSelector
from holdfast.api.selectors import matches
from holdfast.machinery.schema.catalogue import holdfast_catalogue

Raw = dict[str, Any]

BURST = 100
"""Pods made at a time (kube-controller-manager: 500). They make the controller look again."""
NORMAL, WARNING = "Normal", "Warning"


class Ref(NamedTuple):
    """Identifies an object by group without version; the namespace is empty for cluster-scoped
    objects.
    """

    group: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CreateDependent:
    """Creates an object, often with only a `generateName`."""

    raw: Raw
    by: Ref
    """The owner, which gets the event: `Created pod: NAME`, or why not."""
    announce: bool = True


@dataclass(frozen=True, slots=True)
class Update:
    """Replaces the whole object, status included."""

    ref: Ref
    before: Raw
    """The object that the action was computed from."""
    after: Raw

    def applied_to(self, now: Raw) -> Raw:
        """The object as it is now, with what is to change. What others have written meanwhile stays,
        but for parts that both have written: the spec, the status, one field of the metadata."""
        if now is self.before:
            return self.after
        merged = _merged(self.before, self.after, now)
        merged["metadata"] = _merged(self.before["metadata"], self.after["metadata"], now["metadata"])
        return merged


@dataclass(frozen=True, slots=True)
class DeleteDependent:
    """Deletes like a client's DELETE: with the grace period of pods, and waiting for finalizers."""

    ref: Ref
    uid: str
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An event."""

    about: Raw
    type: str
    reason: str
    message: str
    source: str


Action = CreateDependent | Update | DeleteDependent | EmitEvent


@dataclass(slots=True)
class ActionOutcome:
    actions: list[Action] = field(default_factory=list)
    again_at: float | None = None
    """When to reconcile again even without changes."""

    def sync_again(self, at: float | None) -> None:
        if at is not None and (self.again_at is None or at < self.again_at):
            self.again_at = at

    def update(self, ref: Ref, before: Raw, after: Raw) -> None:
        if after != before:
            self.actions.append(Update(ref, before, after))


def _merged(before: Raw, after: Raw, now: Raw) -> Raw:
    ours = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    kept = {name: value for name, value in now.items() if name not in ours}
    return kept | {name: value for name, value in after.items() if name in ours}


# Reading the cluster


class WorkloadObjects(Protocol):
    """The object store as a lister needs it. Objects are never changed in place."""

    def get(self, key: Any) -> Raw | None: ...

    def scan(self, group: str, kind: str) -> list[Raw]: ...


_ADOPTABLE = ("Pod", "ReplicaSet")
_OWNER_GROUPS = ("apps", "batch")
_MANY = 500
"""Objects that take milliseconds to look at."""
Label = tuple[str, str, str, str]
"""Kind, namespace, key and value."""


class Lister:
    """The objects, an index of dependents by owner uid, and an index of objects without a controller by
    label.

    A partial view need not have every owner: only owners it has seen can be gone. Without `waits` no
    time passes: pods are available as soon as they are ready, and there is no back-off.
    """

    def __init__(self, objects: WorkloadObjects, *, partial: bool = False, waits: bool = True) -> None:
        self.objects = objects
        self.get = objects.get
        self._dependents: dict[str, dict[Ref, None]] = {}
        self._free: dict[Label, dict[Ref, None]] = {}
        self._seen: set[str] | None = set() if partial else None
        self.waits = waits

    def min_ready(self, owner: Raw) -> float:
        """Seconds for which a pod of the owner must be ready to be available."""
        return float((owner.get("spec") or {}).get("minReadySeconds") or 0) if self.waits else 0.0

    def changed(self, ref: Ref, before: Raw | None, after: Raw | None) -> None:
        was = before["metadata"].get("ownerReferences") if before is not None else None
        now = after["metadata"].get("ownerReferences") if after is not None else None
        if ref.kind in _ADOPTABLE:
            self._index_free(ref, before, after)
        if self._seen is not None and ref.group in _OWNER_GROUPS:
            self._seen.update(raw["metadata"]["uid"] for raw in (before, after) if raw is not None)
        if was == now:
            return
        for owner in was or ():
            known = self._dependents.get(owner.get("uid", ""), {})
            known.pop(ref, None)
            if not known:
                self._dependents.pop(owner.get("uid", ""), None)
        for owner in now or ():
            self._dependents.setdefault(owner.get("uid", ""), {})[ref] = None

    def _index_free(self, ref: Ref, before: Raw | None, after: Raw | None) -> None:
        was = labels_of(before) if before is not None and controller_of(before) is None else {}
        now = labels_of(after) if after is not None and controller_of(after) is None else {}
        if was is now or was == now:
            return
        for key, value in was.items() - now.items():
            label = (ref.kind, ref.namespace, key, value)
            known = self._free.get(label, {})
            known.pop(ref, None)
            if not known:
                self._free.pop(label, None)
        for key, value in now.items() - was.items():
            self._free.setdefault((ref.kind, ref.namespace, key, value), {})[ref] = None

    def free(self, kind: tuple[str, str], namespace: str, selector: Raw) -> Iterator[tuple[Ref, Raw]]:
        """Objects that no controller has and the selector selects."""
        found: Iterable[tuple[Ref, Raw | None]]
        if selector.get("matchLabels"):
            key, value = next(iter(selector["matchLabels"].items()))
            refs = [*self._free.get((kind[1], namespace, key, value), ())]
            found = ((ref, self.get(ref)) for ref in refs)
        else:
            found = self.of_kind(*kind, namespace)
        for ref, raw in found:
            if raw is not None and controller_of(raw) is None and selects(selector, labels_of(raw)):
                yield ref, raw

    def owner(self, ref: Ref, reference: Raw) -> tuple[Ref, Raw] | None:
        """The owner that an object references, in the object's namespace or cluster-scoped; not one
        recreated under its name.
        """
        for namespace in (ref.namespace, "") if ref.namespace else ("",):
            found = owner_ref(reference, namespace)
            raw = self.get(found)
            if raw is not None and raw["metadata"]["uid"] == reference.get("uid", ""):
                return found, raw
        return None

    def is_gone(self, ref: Ref, reference: Raw) -> bool:
        """Whether an owner that is not there has gone, and is not just unknown here. What is in no
        namespace cannot reference an owner that is in one."""
        if not ref.namespace and _is_namespaced(reference):
            return False
        return self._seen is None or reference.get("uid", "") in self._seen

    def dependents(self, uid: str) -> list[Ref]:
        return [*self._dependents.get(uid, ())]

    def has_many_dependents(self, uid: str) -> bool:
        """Its own, or those of one of them."""
        found = self._dependents.get(uid, {})
        if len(found) > _MANY:
            return True
        below = (self.get(ref) for ref in found if ref.kind in _ADOPTABLE and ref.kind != "Pod")
        return any(
            len(self._dependents.get(raw["metadata"]["uid"], ())) > _MANY for raw in below if raw
        )

    def controlled(self, uid: str, kind: str) -> Iterator[tuple[Ref, Raw]]:
        """Objects of a kind whose controller has that uid."""
        for ref in self.dependents(uid):
            if ref.kind == kind:
                raw = self.get(ref)
                if raw is not None and controller_uid(raw) == uid:
                    yield ref, raw

    def of_kind(self, group: str, kind: str, namespace: str | None = None) -> Iterator[tuple[Ref, Raw]]:
        for raw in self.objects.scan(group, kind):
            ref = Ref(group, kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
            if namespace is None or ref.namespace == namespace:
                yield ref, raw


def _is_namespaced(reference: Raw) -> bool:
    """Whether the kind of an owner is known, and namespaced."""
    group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
    type = holdfast_catalogue().kind(group, version, str(reference.get("kind", "")))
    return type is not None and type.namespaced


def group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def controller_of(raw: Raw) -> Raw | None:
    """The owner reference of the managing controller."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Raw = owner
            return found
    return None


def controller_uid(raw: Raw) -> str | None:
    owner = controller_of(raw)
    return owner.get("uid", "") if owner is not None else None


def owner_ref(owner: Raw, namespace: str) -> Ref:
    """The object of an owner reference, for a dependent in that namespace."""
    group = group_of(owner.get("apiVersion", ""))
    return Ref(group, owner.get("kind", ""), namespace, owner.get("name", ""))


def reference_to(raw: Raw) -> Raw:
    """The controller reference of a dependent to its owner."""
    return {
        "apiVersion": raw["apiVersion"],
        "kind": raw["kind"],
        "name": raw["metadata"]["name"],
        "uid": raw["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels_of(raw: Raw) -> dict[str, str]:
    labels: dict[str, str] = raw["metadata"].get("labels") or {}
    return labels


def annotations_of(raw: Raw) -> dict[str, str]:
    annotations: dict[str, str] = raw["metadata"].get("annotations") or {}
    return annotations


def selects(selector: Raw | None, labels: dict[str, str]) -> bool:
    """An absent or empty selector selects nothing, so that no workload adopts every pod."""
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    if not selector.get("matchExpressions"):
        return True
    return matches(convert(selector, LabelSelector), labels)


def is_going(raw: Raw) -> bool:
    return bool(raw["metadata"].get("deletionTimestamp"))


def with_metadata(raw: Raw, **fields: Any) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], **fields}}


# Adoption: an object that matches the selector and has no controller is adopted; one that no longer
# matches is released.


Member = tuple[Ref, Raw]


def claim(
    view: Lister,
    owner: Raw,
    kind: tuple[str, str],
    outcome: ActionOutcome,
    may_adopt: Callable[[Raw], bool] = lambda raw: True,
) -> list[Member]:
    """The owner's members after adoption and release; the outcome gets the necessary changes."""
    selector, uid = (owner.get("spec") or {}).get("selector"), owner["metadata"]["uid"]
    going = is_going(owner)
    mine: list[Member] = []
    for ref, raw in view.controlled(uid, kind[1]):
        if going or not selector or selects(selector, labels_of(raw)):
            mine.append((ref, raw))
        else:
            outcome.update(ref, raw, _released(raw, uid))
    if going or not selector:
        return mine
    for ref, raw in view.free(kind, owner["metadata"]["namespace"], selector):
        if not is_going(raw) and may_adopt(raw):
            owners = raw["metadata"].get("ownerReferences") or []
            others = [each for each in owners if each.get("uid") != uid]
            adopted = with_metadata(raw, ownerReferences=[*others, reference_to(owner)])
            outcome.update(ref, raw, adopted)
            mine.append((ref, adopted))
    return mine


def _released(raw: Raw, uid: str) -> Raw:
    owners = [each for each in raw["metadata"]["ownerReferences"] if each.get("uid") != uid]
    return with_metadata(raw, ownerReferences=owners)
