"""The objects of a kind at one revision, for lists that come in pages."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.store.objects import Key, Raw

_FEW = 1024
"""Keys that are put in their places whatever the number of the others."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Sorted by namespace and name. It holds references, not copies, and stays as it is whatever
    happens to the store."""

    revision: int
    keys: Sequence[Key]
    objects: Sequence[Raw]

    def span(self, namespace: str | None = None, after: Key | None = None) -> tuple[int, int]:
        """Where the objects of a namespace begin and end in `objects`, leaving out those up to and
        including `after`, which need not be there any more."""
        start, end = 0, len(self.keys)
        if namespace is not None and self.keys:
            group, kind = self.keys[0][:2]
            start = bisect_left(self.keys, Key(group, kind, namespace, ""))
            end = bisect_left(self.keys, Key(group, kind, namespace + "\0", ""), start)
        if after is not None:
            start = max(start, bisect_right(self.keys, after))
        return min(start, end), end

    def listed(self, namespace: str | None = None) -> list[Raw]:
        start, end = self.span(namespace)
        return list(self.objects[start:end])


class Order:
    """The keys of a kind in order as they were, and which have come or gone since: putting these few
    in their places takes a fraction of what sorting all anew does."""

    __slots__ = ("_keys", "_moved")

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys
        self._moved: dict[Key, None] = {}

    def moved(self, key: Key) -> bool:
        """The key has come or gone. False once so many have that nothing is saved."""
        self._moved[key] = None
        return len(self._moved) <= max(_FEW, len(self._keys) // 4)

    def keys_of(self, objects: Collection[Key]) -> list[Key]:
        """The keys of the objects there are now, in order."""
        if not self._moved:
            return self._keys
        before, keys, at = self._keys, list[Key](), 0
        for key in sorted(self._moved):
            place = bisect_left(before, key, at)
            keys += before[at:place]
            if key in objects:
                keys.append(key)
            at = place + 1 if place < len(before) and before[place] == key else place
        keys += before[at:]
        return keys
