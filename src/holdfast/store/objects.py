"""What a store keeps.

Objects are raw dicts and are never changed in place: an update puts a new dict in the place of the
old one, so whoever holds a typed view, or the object as it was, can go on holding it.
"""

from typing import Any, NamedTuple

import msgspec

Raw = dict[str, Any]


class Key(NamedTuple):
    """`group` and not the version, since an object is the same in all versions. The namespace of what
    lives outside namespaces is empty."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        parts = (self.kind, self.namespace, self.name) if self.namespace else (self.kind, self.name)
        return "/".join(parts)


POD = ("", "Pod")
NODE = ("", "Node")
"""The group and kind of the two kinds that most is about, as `key[:2]` has them."""


class Change(NamedTuple):
    """What one revision did: `before` is None of a new object, `after` of one that is gone.

    The revision of a deletion stands nowhere in the object: `before` still has that of its last update.
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
    """About how many bytes an encoded object takes once decoded: of many small fields ten times as many
    as of JSON. Text that looks like JSON counts for more than it takes."""
    return len(data) + _PER_VALUE * (len(data) - len(data.translate(None, b",:{[")))


def pod_key(namespace: str, name: str) -> Key:
    return Key("", "Pod", namespace, name)


def node_key(name: str) -> Key:
    return Key("", "Node", "", name)
