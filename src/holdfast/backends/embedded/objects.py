"""Writing to the store as the cluster's own parts do: identity and generations are seen to."""

from collections.abc import Iterator

from holdfast.api.kinds import KINDS, NO_KINDS, Kinds, kind_info
from holdfast.api.names import DEFAULT_NAMESPACE, RESERVATION_API
from holdfast.store.identity import Identity, with_generation
from holdfast.store.objects import Key, Raw
from holdfast.store.store import Store

RESERVATION = (RESERVATION_API.partition("/")[0], "Reservation")
ENDED = ("Succeeded", "Failed")
"""Phases of pods that run no more."""


_ORDER = {(info.group, info.kind): position for position, info in enumerate(KINDS.values())}


def key_of(raw: Raw, declared: Kinds = NO_KINDS) -> Key:
    """Of an object of a kind Holdfast knows, or plugins declare; its name is empty as long as it has
    none."""
    info = kind_info(raw["apiVersion"], raw["kind"], declared)
    metadata = raw["metadata"]
    namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
    return Key(info.group, info.kind, namespace if info.namespaced else "", metadata.get("name", ""))


class Objects:
    def __init__(self, store: Store, identity: Identity, declared: Kinds = NO_KINDS) -> None:
        """`declared` are the kinds of objects that only plugins read."""
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
        """Of every object, whatever kind it is of."""
        for kind in self.store.kinds():
            for raw in self.store.scan(*kind):
                yield Key(*kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])

    def create(self, raw: Raw) -> Raw:
        """With the metadata only a server can give."""
        key = self.key_of(raw)
        if not key.name:
            key = key._replace(name=self._free_name(key, str(raw["metadata"]["generateName"])))
        return self.store.create(key, self.identity.new(key, raw))

    def update(self, key: Key, raw: Raw) -> Raw:
        before = self.get(key)
        if before is not None and raw.get("spec") is not before.get("spec"):
            raw = with_generation(before, raw)
        if key[:2] == RESERVATION and has_ended(raw):
            self.delete(key)
            return raw
        return self.store.update(key, raw)

    def end(self, key: Key, now: str) -> bool:
        """Deletes an object as the API server does: one with finalizers is marked, and goes when the
        last of them is taken away. Whether it is gone."""
        raw = self.get(key)
        if raw is None:
            return True
        metadata = raw["metadata"]
        if not metadata.get("finalizers"):
            self.delete(key)
            return True
        if not metadata.get("deletionTimestamp"):
            marked = {**metadata, "deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
            self.update(key, {**raw, "metadata": marked})
        return False

    def _free_name(self, key: Key, prefix: str) -> str:
        while True:
            name = self.identity.name(prefix)
            if key._replace(name=name) not in self:
                return name


def has_ended(raw: Raw) -> bool:
    """Whether an object was deleted and nothing keeps it any more."""
    metadata = raw["metadata"]
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")


def with_condition(conditions: list[Raw], condition: Raw, now: str) -> list[Raw]:
    """The conditions with this one set. The time of its transition is that of its status: a new
    reason or message alone does not move it."""
    result = list(conditions)
    for i, known in enumerate(result):
        if known.get("type") == condition["type"]:
            since = known.get("lastTransitionTime") or now
            same = known.get("status") == condition["status"]
            result[i] = {**condition, "lastTransitionTime": since if same else now}
            return result
    return [*result, {**condition, "lastTransitionTime": now}]
