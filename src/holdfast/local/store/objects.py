"""Store keys, changes, errors, and the identity (UID, name, time) of new objects.

Objects are raw dicts and are never changed in place: an update replaces the dict, so a holder of a
typed view or of the earlier version can keep it. UIDs and generated names are random, or derived from
the seed of a simulation, so that a run is reproducible.

    HoldfastError
    └── StoreError
        ├── AlreadyExists    created again
        ├── NotFound         updated or deleted, but does not exist
        ├── Conflict         not the expected version
        ├── Compacted        a revision that is no longer retained (410 Gone)
        ├── FutureRevision   a revision that does not exist yet
        ├── NotEncodable     an object that JSON cannot represent
        └── StoreFailed      a write to disk failed, or the file cannot be used
"""

import hashlib
import os
import secrets
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.api.errors import HoldfastError
from holdfast.api.raw_objects import Key as Key
from holdfast.api.raw_objects import Raw as Raw

POD = ("", "Pod")
NODE = ("", "Node")
"""The group and kind of the two kinds that most is about, as `key[:2]` has them."""


class StoreChange(NamedTuple):
    """The change of one revision: `before` is None for a new object, `after` for a deleted one.

    A deletion's revision is not in the object: `before` has that of its last update.
    """

    revision: int
    key: Key
    before: Raw | None
    after: Raw | None


encode = msgspec.json.Encoder().encode
"""An object as it is written to disk. Raises TypeError, ValueError or RecursionError."""


_PER_VALUE = 55
"""Bytes for each sign in JSON that begins a value, an object or a list, or follows a name."""


def memory_of(data: bytes) -> int:
    """Estimates the bytes of a decoded object: with many small fields, ten times its JSON. Text that
    looks like JSON is overestimated.
    """
    return len(data) + _PER_VALUE * (len(data) - len(data.translate(None, b",:{[")))


def pod_key(namespace: str, name: str) -> Key:
    return Key("", "Pod", namespace, name)


def node_key(name: str) -> Key:
    return Key("", "Node", "", name)


class StoreError(HoldfastError):
    pass


class _AboutObject(StoreError):
    _says = ""

    def __init__(self, key: Key) -> None:
        self.key = key
        super().__init__(f"{key}: {self._says}")


class AlreadyExists(_AboutObject):
    _says = "already exists"


class NotFound(_AboutObject):
    _says = "not found"


class Conflict(StoreError):
    def __init__(self, key: Key, expected: str, found: str) -> None:
        self.key, self.expected, self.found = key, expected, found
        super().__init__(f"{key}: has resourceVersion {found}, not {expected}")


class Compacted(StoreError):
    """`oldest` is the oldest revision from which changes are retained."""

    def __init__(self, revision: int, oldest: int) -> None:
        self.revision, self.oldest = revision, oldest
        super().__init__(f"too old resource version: {revision} ({oldest})")


class FutureRevision(StoreError):
    def __init__(self, revision: int, current: int) -> None:
        self.revision, self.current = revision, current
        super().__init__(f"resource version {revision} is in the future; the current one is {current}")


class NotEncodable(_AboutObject):
    """The object cannot be encoded; only its write fails."""

    _says = "cannot be encoded as JSON"


class StoreFailed(StoreError):
    pass


_UIDS = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: without vowels, so that they form no words."""
_SUFFIX_LENGTH = 5


class Names(Protocol):
    def uid(self, key: Key, given: str = "") -> str:
        """The UID of a new object: the given one, or a new one."""

    def exclude(self, uids: Iterable[str]) -> None:
        """These UIDs are those of other objects: none of them is made."""

    def suffix(self, prefix: str) -> str:
        """The end of a name that begins like this."""


class RandomNames:
    def uid(self, key: Key, given: str = "") -> str:
        return given or _text(int.from_bytes(os.urandom(16)), version=4)

    def exclude(self, uids: Iterable[str]) -> None:
        """Nothing: random UIDs are distinct."""

    def suffix(self, prefix: str) -> str:
        return _suffix(secrets.randbits(64))


class SeededNames:
    """The same names for the same objects created in the same order."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._incarnations: dict[Key, int] = {}
        self._generated = 0
        self._excluded: set[str] = set()
        """Given objects may be those of an earlier run with the same seed, so that the UIDs that this
        one would make are theirs."""

    def uid(self, key: Key, given: str = "") -> str:
        incarnation = self._next_incarnation(key)
        if given:
            self._excluded.add(given)
            return given
        while (made := self._made(key, incarnation)) in self._excluded:
            incarnation = self._next_incarnation(key)
        return made

    def exclude(self, uids: Iterable[str]) -> None:
        self._excluded.update(uids)

    def _next_incarnation(self, key: Key) -> int:
        number = self._incarnations[key] = self._incarnations.get(key, 0) + 1
        return number

    def _made(self, key: Key, incarnation: int) -> str:
        parts = (str(self._seed), key.group, *map(str, key[1:]), str(incarnation))
        name = "/".join(parts).encode()
        digest = hashlib.sha1(_UIDS.bytes + name, usedforsecurity=False).digest()
        return _text(int.from_bytes(digest[:16]), version=5)

    def suffix(self, prefix: str) -> str:
        self._generated += 1
        return _suffix(uuid.uuid5(_UIDS, f"{self._seed}/{prefix}/{self._generated}").int)


class Identity:
    """`now` is the time in the format of objects."""

    def __init__(self, names: Names, now: Callable[[], str]) -> None:
        self._names = names
        self._now = now

    def name(self, prefix: str) -> str:
        """A name for an object that has but a `generateName`. It may be taken: ask the store."""
        return prefix + self._names.suffix(prefix)

    def uid(self, key: Key) -> str:
        return self._names.uid(key)

    def exclude(self, objects: Iterable[Raw]) -> None:
        """No other object gets the UID of one of these, which come from elsewhere."""
        self._names.exclude(uid for raw in objects if (uid := raw["metadata"].get("uid")))

    def new(self, key: Key, raw: Raw) -> Raw:
        """The object with a name, uid, creationTimestamp and generation; what it has of these it
        keeps, so what clients must not choose is to be taken out before."""
        metadata = dict(raw["metadata"])
        metadata["name"] = key.name
        if key.namespace:
            metadata["namespace"] = key.namespace
        else:
            metadata.pop("namespace", None)
        metadata["uid"] = self._names.uid(key, metadata.get("uid") or "")
        metadata["resourceVersion"] = ""  # set by the store; here for its place among the others
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or self._now()
        if "spec" in raw:
            metadata.setdefault("generation", 1)
        return {**raw, "metadata": metadata}


def with_generation(before: Raw, after: Raw) -> Raw:
    """The changed object, with the next generation if its desired state changed."""
    metadata = after["metadata"]
    if "generation" not in metadata or desired_state(after) == desired_state(before):
        return after
    return {**after, "metadata": {**metadata, "generation": metadata["generation"] + 1}}


def desired_state(raw: Raw) -> Any:
    """What increments the generation when changed: the spec except for the fields that binding
    writes.
    """
    spec = raw.get("spec")
    if isinstance(spec, dict) and "nodeName" in spec:
        return {name: value for name, value in spec.items() if name != "nodeName"}
    return spec


def _text(number: int, version: int) -> str:
    """Random or hashed bits as a UUID, in a quarter of the uuid module's time."""
    number = number & ~(0xF000 << 64) & ~(0xC000 << 48) | (version << 76) | (0x8000 << 48)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _suffix(number: int) -> str:
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, digit = divmod(number, len(_SUFFIX_LETTERS))
        suffix += _SUFFIX_LETTERS[digit]
    return suffix
