"""What the components of a local cluster share: the Component protocol and ObjectWriter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.api.kinds import KINDS, NO_KINDS, Kinds, kind_info
from holdfast.api.names import DEFAULT_NAMESPACE, RESERVATION_API
from holdfast.local.clock import LocalClock
from holdfast.local.store.objects import Identity, Key, Raw, StoreChange, with_generation
from holdfast.local.store.store import Store
from holdfast.machinery.object_request import UNTRACKED, ObjectRequest
from holdfast.machinery.objects import check_namespace_is_active, deleted_object, new_object
from holdfast.machinery.schema import ResourceType, read_object
from holdfast.machinery.schema.catalogue import holdfast_catalogue, open_type
from holdfast.machinery.schema.types import key_of as storage_key

Work = Callable[[], None]
"""Takes long and writes nothing: to be called before the next step, where there are threads in one."""
Steps = Iterator[Work | None]
"""Each step is done when it is taken, or is work to be done."""


class Component(Protocol):
    """A part of the cluster that reacts to changes of objects, such as a controller."""

    def changed(self, change: StoreChange) -> None:
        """Takes note of a change; writes nothing."""

    def settle(self) -> Steps:
        """Does the work that is due, step by step. What must wait gets a timer.

        A step takes milliseconds. Between two steps requests are answered, so anything may change: it
        iterates over a copy, and reads each object again."""


RESERVATION = (RESERVATION_API.partition("/")[0], "Reservation")
ENDED = ("Succeeded", "Failed")
"""Phases of pods that run no more."""


_ORDER = {(info.group, info.kind): position for position, info in enumerate(KINDS.values())}


def key_of(raw: Raw, declared: Kinds = NO_KINDS) -> Key:
    """The key of an object of a kind known to Holdfast or declared by a plugin. The name is empty if
    it has none yet.
    """
    info = kind_info(raw["apiVersion"], raw["kind"], declared)
    metadata = raw["metadata"]
    namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
    return Key(info.group, info.kind, namespace if info.namespaced else "", metadata.get("name", ""))


class ObjectWriter:
    """Writes to the store for the cluster's own components; sets identity and generation."""

    def __init__(
        self, store: Store, identity: Identity, clock: LocalClock, declared: Kinds = NO_KINDS
    ) -> None:
        """`declared` are the kinds of objects that only plugins read."""
        self._clock = clock
        self.store = store
        self.declared = declared
        self.identity = identity
        self.get = store.get
        self.scan = store.scan
        self.delete = store.delete

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def key_of(self, raw: Raw) -> Key:
        return key_of(raw, self.declared)

    def all(self) -> Iterator[Raw]:
        """By kind, then in the order of creation."""
        for kind in sorted(self.store.kinds(), key=lambda kind: (_ORDER.get(kind, len(_ORDER)), kind)):
            yield from self.store.scan(*kind)

    def every_key(self) -> Iterator[Key]:
        """For objects of every kind."""
        for kind in self.store.kinds():
            for raw in self.store.scan(*kind):
                yield Key(*kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])

    def create(self, raw: Raw) -> Raw:
        """With the metadata only a server can give."""
        key = self.key_of(raw)
        if not key.name:
            key = key._replace(name=self._free_name(key, str(raw["metadata"]["generateName"])))
        return self.store.create(key, self.identity.new(key, raw))

    def submit(self, raw: Raw) -> Raw:
        """Creates an object as the API server does for a client: decodes, defaults, admits, checks it.
        Raises StatusError or AlreadyExists."""
        type = self.type_of(raw)
        return self._submit(read_object(type, raw)[0], type, restores=False)

    def restore(self, raw: Raw, type: ResourceType) -> Raw:
        """Creates an object of a scenario or snapshot, of which `check_decoded` has found no error.
        Raises StatusError or AlreadyExists."""
        return self._submit(raw, type, restores=True)

    def _submit(self, raw: Raw, type: ResourceType, restores: bool) -> Raw:
        while True:
            key, built = self.prepared(raw, type, restores=restores)
            if key in self and not raw["metadata"].get("name"):
                continue  # the generated name is taken
            return self.store.create(key, built)

    def prepared(self, raw: Raw, type: ResourceType, *, restores: bool) -> tuple[Key, Raw]:
        """The key and the object that `submit` or `restore` stores, from a decoded one."""
        request = self.request(type, raw["metadata"], restores=restores)
        check_namespace_is_active(request, must_exist=False)
        built = new_object(request, raw, checked=restores)
        return storage_key(type, request.namespace, request.name), built

    def type_of(self, raw: Raw) -> ResourceType:
        api_version, kind = raw["apiVersion"], raw["kind"]
        group, _, version = api_version.rpartition("/")
        found = holdfast_catalogue().kind(group, version, kind)
        return found or open_type(kind_info(api_version, kind, self.declared))

    def request(
        self, type: ResourceType, metadata: Raw, *, subresource: str = "", restores: bool = False
    ) -> ObjectRequest[ObjectWriter]:
        """A write request for an object with this metadata; managed fields are not tracked."""
        namespace = (metadata.get("namespace") or DEFAULT_NAMESPACE) if type.namespaced else ""
        name = metadata.get("name") or ""
        return ObjectRequest(self, type, namespace, name, subresource, UNTRACKED, restores)

    def stamp(self, after: float = 0.0) -> str:
        return self._clock.stamp(after)

    def update(self, key: Key, raw: Raw) -> Raw:
        before = self.get(key)
        if before is not None and raw.get("spec") is not before.get("spec"):
            raw = with_generation(before, raw)
        if key[:2] == RESERVATION and has_ended(raw):
            self.delete(key)
            return raw
        return self.store.update(key, raw)

    def end(self, key: Key, propagation: str | None = None) -> bool:
        """Deletes an object as the API server does: one with finalizers is marked, and goes when the
        last of them is taken away. Whether it is gone."""
        raw = self.get(key)
        if raw is None:
            return True
        request = self.request(self.type_of(raw), raw["metadata"])
        after, gone = deleted_object(request, raw, propagation=propagation)
        if gone:
            self.delete(key)
        elif after is not raw:
            self.store.update(key, after)
        return gone

    def _free_name(self, key: Key, prefix: str) -> str:
        while True:
            name = self.identity.name(prefix)
            if key._replace(name=name) not in self:
                return name


def has_ended(raw: Raw) -> bool:
    """Whether the object is deleted and has no finalizers left."""
    metadata = raw["metadata"]
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")
