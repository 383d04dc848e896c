"""Owner specs: which pods are owners of a reservation.

The entries of `spec.owners` are alternatives; all conditions of one entry must hold. Most conditions
are on what all pods of a class share (labels, namespace, controllers). A name or uid selects one pod,
so a pod that a reservation names gets a class of its own. The object may also be a PodGroup, or the
Workload that PodGroups were made for: then their pods are owners, and while any reservation names one,
the pods of each PodGroup have classes of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.api.meta import ObjectReference, OwnerReference
from holdfast.api.names import RESERVATION_IGNORED
from holdfast.api.reservation import ReservationControllerReference, ReservationOwner
from holdfast.api.selectors import Selector, compile_selector
from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.pod_classes import PodClass

Clue = tuple[Hashable, ...]
"""A property that a pod class must have to match an entry; the key of the index of entries."""

ANYONE: Clue = ()

_GROUP, _WORKLOAD = "PodGroup", "Workload"

_NONE: frozenset[int] = frozenset()

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_NO_OWNERS = _encode([])


class PodName(NamedTuple):
    """A single pod that a reservation names. Empty fields match any value."""

    namespace: str
    name: str
    uid: str

    def means(self, namespace: str, name: str, uid: str) -> bool:
        return (
            (not self.uid or self.uid == uid)
            and (not self.name or self.name == name)
            and (not self.namespace or self.namespace == namespace)
        )


class Alternative:
    """One entry of `spec.owners`."""

    __slots__ = ("_controller", "_object", "_selector")

    def __init__(self, owner: ReservationOwner) -> None:
        self._object = owner.object
        self._controller = owner.controller
        self._selector: Selector | None = (
            None if owner.label_selector is None else compile_selector(owner.label_selector)
        )

    @property
    def named(self) -> PodName | None:
        """The single pod that the entry names, if it names one."""
        named = self._object
        if named is None or not (named.name or named.uid) or self.is_group:
            return None
        return PodName(named.namespace, named.name, named.uid)

    @property
    def is_group(self) -> bool:
        """Whether the entry names a PodGroup or a Workload."""
        return self._object is not None and self._object.kind in (_GROUP, _WORKLOAD)

    def clue(self) -> Clue:
        """The property by which the entry is indexed; ANYONE if there is none."""
        if self._object is not None and self.is_group and self._object.name:
            return (self._object.kind, self._object.name)
        named = self.named
        if named is not None:
            return ("uid", named.uid) if named.uid else ("name", named.name)
        controller = self._controller
        if controller is not None and controller.uid:
            return ("controller", controller.uid)
        if controller is not None and controller.name:
            return ("controller name", controller.name)
        for requirement in self._selector.requirements if self._selector is not None else ():
            if requirement.operator == "In" and len(requirement.values) == 1:
                return ("label", requirement.key, requirement.values[0])
        return ANYONE

    def matches(self, cls: PodClass) -> bool:
        return (
            (self._object is None or self._is_object(self._object, cls))
            and (self._controller is None or self._is_controller(self._controller, cls))
            and (self._selector is None or self._selector.matches(cls.labels))
        )

    def _is_object(self, wanted: ObjectReference, cls: PodClass) -> bool:
        if self.is_group:
            return _is_group(wanted, cls)
        named = self.named
        if named is not None:
            meta = cls.pod.metadata
            if not cls.private or not named.means(cls.namespace, meta.name, meta.uid):
                return False
        return (
            (not wanted.namespace or wanted.namespace == cls.namespace)
            and (not wanted.kind or wanted.kind == "Pod")
            and (not wanted.api_version or wanted.api_version == "v1")
        )

    def _is_controller(self, wanted: ReservationControllerReference, cls: PodClass) -> bool:
        if wanted.namespace and wanted.namespace != cls.namespace:
            return False
        return any(_is_reference(wanted, owner) for owner in cls.owners)


def _is_group(wanted: ObjectReference, cls: PodClass) -> bool:
    """Whether the pods of the class belong to this PodGroup, or to one of this Workload. Workloads are
    not read, so their uid is not compared."""
    group = cls.group
    if group is None or (wanted.namespace and wanted.namespace != cls.namespace):
        return False
    if wanted.kind == _WORKLOAD:
        return bool(group.workload) and wanted.name in ("", group.workload)
    family = wanted.api_version.rpartition("/")[0]
    return (
        (not wanted.name or wanted.name == group.name)
        and (not wanted.uid or wanted.uid == group.uid)
        and (not family or family == group.family)
    )


def _is_reference(wanted: ReservationControllerReference, owner: OwnerReference) -> bool:
    return (
        (not wanted.uid or wanted.uid == owner.uid)
        and (not wanted.name or wanted.name == owner.name)
        and (not wanted.kind or wanted.kind == owner.kind)
        and (not wanted.api_version or wanted.api_version == owner.api_version)
        and (wanted.controller is None or wanted.controller == bool(owner.controller))
    )


class OwnerSpec:
    """The owners of a reservation, shared by all reservations with equal owners."""

    __slots__ = ("alternatives", "id", "key", "refs")

    def __init__(self, spec_id: int, key: bytes, owners: list[ReservationOwner]) -> None:
        self.id = spec_id
        self.key = key
        self.alternatives = [Alternative(owner) for owner in owners]
        self.refs = 0

    def matches(self, cls: PodClass) -> bool:
        return any(alternative.matches(cls) for alternative in self.alternatives)

    def clues(self) -> list[Clue]:
        return list(dict.fromkeys(alternative.clue() for alternative in self.alternatives))

    @property
    def names_groups(self) -> bool:
        return any(alternative.is_group for alternative in self.alternatives)

    def names(self) -> Iterator[PodName]:
        for alternative in self.alternatives:
            named = alternative.named
            if named is not None:
                yield named


class OwnerSpecs:
    """The owner specs in use, and which of them a class matches."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._by_key: dict[bytes, OwnerSpec] = {}
        self._by_id: dict[int, OwnerSpec] = {}
        self._by_clue: dict[Clue, dict[int, OwnerSpec]] = {}
        self._next = 0
        self._of_class: dict[int, tuple[int, frozenset[int]]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def acquire(self, owners: list[ReservationOwner]) -> OwnerSpec:
        """The spec of these owners, with one more reference. Raises SelectorError."""
        key = _key(owners)
        spec = self._by_key.get(key)
        if spec is None:
            spec = OwnerSpec(self._next, key, owners)
            self._next += 1
            self._by_key[key] = self._by_id[spec.id] = spec
            for clue in spec.clues():
                self._by_clue.setdefault(clue, {})[spec.id] = spec
            self._epoch.owners += 1
        spec.refs += 1
        return spec

    def get(self, spec_id: int) -> OwnerSpec:
        return self._by_id[spec_id]

    def release(self, spec: OwnerSpec) -> bool:
        """Drops a reference. Returns whether it was the last one."""
        spec.refs -= 1
        if spec.refs:
            return False
        del self._by_key[spec.key], self._by_id[spec.id]
        for clue in spec.clues():
            there = self._by_clue[clue]
            del there[spec.id]
            if not there:
                del self._by_clue[clue]
        self._epoch.owners += 1
        return True

    def matching(self, cls: PodClass) -> frozenset[int]:
        """The ids of the specs that the class matches. Reserve pods match none."""
        if not self._by_key or cls.owner_spec_id >= 0 or cls.labels.get(RESERVATION_IGNORED) == "true":
            return _NONE
        known = self._of_class.get(cls.id)
        if known is not None and known[0] == self._epoch.owners:
            return known[1]
        found = frozenset(
            spec.id
            for clue in _clues_of(cls)
            for spec in self._by_clue.get(clue, {}).values()
            if spec.matches(cls)
        )
        if known is not None and known[1] == found:
            found = known[1]
        self._of_class[cls.id] = (self._epoch.owners, found)
        return found

    def forget_class(self, cls: PodClass) -> None:
        self._of_class.pop(cls.id, None)


def _key(owners: list[ReservationOwner]) -> bytes:
    """A key that is equal for equal owners, in any order."""
    if not owners:
        return _NO_OWNERS
    return _encode(sorted({_encode((o.object, o.controller, _asked(o))) for o in owners}))


def _asked(owner: ReservationOwner) -> list[tuple[str, str, list[str]]] | None:
    """The label requirements of an owner's selector."""
    selector = owner.label_selector
    if selector is None:
        return None
    asked: set[tuple[str, str, tuple[str, ...]]] = {
        (key, "In", (value,)) for key, value in selector.match_labels.items()
    }
    asked |= {
        (each.key, each.operator, tuple(sorted(set(each.values))))
        for each in selector.match_expressions
    }
    return [(key, operator, list(values)) for key, operator, values in sorted(asked)]


def _clues_of(cls: PodClass) -> Iterator[Clue]:
    yield ANYONE
    for key, value in cls.labels.items():
        yield ("label", key, value)
    for owner in cls.owners:
        yield ("controller", owner.uid)
        yield ("controller name", owner.name)
    if cls.group is not None:
        yield (_GROUP, cls.group.name)
        yield (_WORKLOAD, cls.group.workload)
    if cls.private:
        yield ("uid", cls.pod.metadata.uid)
        yield ("name", cls.pod.metadata.name)
