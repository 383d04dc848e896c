"""Objects in full, as an API server would keep them.

Objects are raw dicts and are never changed in place: an update puts a new dict in the place of the
old one, so whoever holds a typed view, or the object as it was, can go on holding it.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.api.kinds import KINDS, kind_info
from holdfast.api.names import DEFAULT_NAMESPACE
from holdfast.sim.clock import VirtualClock

Raw = dict[str, Any]

_UIDS = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Those the API server makes names of: no vowels, so no words."""
_ORDER = {(info.group, info.kind): position for position, info in enumerate(KINDS.values())}


class Key(NamedTuple):
    """`group` and not the version, since an object is the same in all versions."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        parts = (self.kind, self.namespace, self.name) if self.namespace else (self.kind, self.name)
        return "/".join(parts)


def key_of(raw: Raw) -> Key:
    info = kind_info(raw["apiVersion"], raw["kind"])
    metadata = raw["metadata"]
    namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
    return Key(info.group, info.kind, namespace if info.namespaced else "", metadata.get("name", ""))


def pod_key(namespace: str, name: str) -> Key:
    return Key("", "Pod", namespace, name)


def node_key(name: str) -> Key:
    return Key("", "Node", "", name)


class Store:
    """`listeners` are told of every change: the key, the object as it was (None if it is new) and
    as it is (None if it is gone)."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self._objects: dict[tuple[str, str], dict[Key, Raw]] = {}
        """By group and kind; within these in the order of creation."""
        self._version = 0
        self._incarnations: dict[Key, int] = {}
        self._generated = 0
        self.listeners: list[Callable[[Key, Raw | None, Raw | None], None]] = []

    def get(self, key: Key) -> Raw | None:
        return self._objects.get(key[:2], {}).get(key)

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def of_kind(self, kind: str) -> Iterator[Raw]:
        """In the order they were created; the set may change meanwhile."""
        for (_, name), objects in self._objects.items():
            if name == kind:
                yield from list(objects.values())

    def in_namespace(self, namespace: str) -> list[Key]:
        return [
            key for objects in self._objects.values() for key in objects if key.namespace == namespace
        ]

    def all(self) -> Iterator[Raw]:
        """By kind, then in the order of creation."""
        for kind in sorted(self._objects, key=_ORDER.__getitem__):
            yield from list(self._objects[kind].values())

    def create(self, raw: Raw) -> Raw:
        """Puts a new object in, with the metadata only a store can give; its name must be free."""
        metadata = dict(raw["metadata"])
        if not metadata.get("name"):
            metadata["name"] = self._generated_name(str(metadata["generateName"]))
        info = kind_info(raw["apiVersion"], raw["kind"])
        if info.namespaced:
            metadata["namespace"] = metadata.get("namespace") or DEFAULT_NAMESPACE
        else:
            metadata.pop("namespace", None)
        key = Key(info.group, info.kind, metadata.get("namespace", ""), metadata["name"])
        incarnation = self._incarnations[key] = self._incarnations.get(key, 0) + 1
        self._version += 1
        metadata["uid"] = metadata.get("uid") or self._uid(key, incarnation)
        metadata["resourceVersion"] = str(self._version)
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or self._clock.stamp()
        if "spec" in raw:
            metadata.setdefault("generation", 1)
        stored = {**raw, "metadata": metadata}
        self._objects.setdefault(key[:2], {})[key] = stored
        self._tell(key, None, stored)
        return stored

    def update(self, raw: Raw) -> Raw:
        """Puts a new version of a known object in the place of the old one."""
        key = key_of(raw)
        before = self.get(key)
        assert before is not None, f"{key} is not stored"
        self._version += 1
        metadata = {**raw["metadata"], "resourceVersion": str(self._version)}
        if "generation" in metadata and _wish(raw) != _wish(before):
            metadata["generation"] += 1
        stored = {**raw, "metadata": metadata}
        self._objects[key[:2]][key] = stored
        self._tell(key, before, stored)
        return stored

    def delete(self, key: Key) -> Raw:
        before = self._objects[key[:2]].pop(key)
        self._version += 1
        self._tell(key, before, None)
        return before

    def _tell(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        for listener in self.listeners:
            listener(key, before, after)

    def _uid(self, key: Key, incarnation: int) -> str:
        parts = (str(self._seed), key.group, *map(str, key[1:]), str(incarnation))
        name = "/".join(parts).encode()
        # As uuid.uuid5 does, in a quarter of its time.
        number = int.from_bytes(hashlib.sha1(_UIDS.bytes + name, usedforsecurity=False).digest()[:16])
        number = number & ~(0xF000 << 64) & ~(0xC000 << 48) | (5 << 76) | (0x8000 << 48)
        text = f"{number:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _generated_name(self, prefix: str) -> str:
        self._generated += 1
        number = uuid.uuid5(_UIDS, f"{self._seed}/{prefix}/{self._generated}").int
        suffix = ""
        for _ in range(5):
            number, digit = divmod(number, len(_SUFFIX_LETTERS))
            suffix += _SUFFIX_LETTERS[digit]
        return prefix + suffix


def _wish(raw: Raw) -> Any:
    """What a change of makes a new generation: the spec, but for what binding writes into it."""
    spec = raw.get("spec")
    if isinstance(spec, dict) and "nodeName" in spec:
        return {name: value for name, value in spec.items() if name != "nodeName"}
    return spec
