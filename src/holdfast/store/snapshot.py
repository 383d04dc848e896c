"""The objects of a kind at one revision, for lists that come in pages."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.objects import Key, Raw


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
