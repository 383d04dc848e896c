"""The changes a store still remembers, so that a watch can go on where it stopped.

It is bounded by number and by bytes. What a change costs is the version of the object that it replaced:
the newest version of an object is in the store anyway, and each older one is `before` of one change.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from holdfast.store.errors import Compacted
from holdfast.store.objects import Change, Key

_TRIM = 1024
_FRACTION = 32
"""Of what is kept, so much more may be there before some is forgotten: milliseconds of work."""
_OVERHEAD = 256
"""Bytes that any change takes, however small its object."""


class _OfKind:
    """The changes of one kind, oldest first. Forgetting moves `start`, and now and then the list."""

    __slots__ = ("changes", "start")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.start = 0

    def forget_first(self) -> None:
        # The place stays for a while, and must not keep the objects.
        gone = self.changes[self.start]
        self.changes[self.start] = Change(gone.revision, gone.key, None, None)
        self.start += 1
        if self.start >= _TRIM and self.start * 2 >= len(self.changes):
            del self.changes[: self.start]
            self.start = 0

    def after(self, revision: int) -> int:
        return bisect_right(self.changes, revision, lo=self.start, key=lambda change: change.revision)


class History:
    def __init__(self, keep: int, keep_bytes: int) -> None:
        self.keep = keep
        self.keep_bytes = keep_bytes
        self.bytes = 0
        """What the remembered changes hold beside the objects there are now; see `memory_of`."""
        self.compacted = 0
        """Changes after this revision are all here; of those before it, none is."""
        self._all: deque[Change] = deque()
        self._kinds: dict[tuple[str, str], _OfKind] = {}
        self._costs: deque[int] = deque()
        """Of each change in `_all`."""
        self._sizes: dict[Key, int] = {}
        """Of the newest version of each object."""

    def __len__(self) -> int:
        return len(self._all)

    def sized(self, key: Key, size: int) -> None:
        """Of an object whose changes are not remembered."""
        self._sizes[key] = size

    def size(self, key: Key) -> int:
        """Of the newest version of an object; 0 if that is not known."""
        return self._sizes.get(key, 0)

    def add(self, change: Change, size: int) -> None:
        """`size` is that of the object in memory, 0 if it is gone."""
        cost = _OVERHEAD + self._sizes.pop(change.key, 0)
        if change.after is not None:
            self._sizes[change.key] = size
        self._costs.append(cost)
        self.bytes += cost
        self._all.append(change)
        kind = change.key[:2]
        of_kind = self._kinds.get(kind)
        if of_kind is None:
            of_kind = self._kinds[kind] = _OfKind()
        of_kind.changes.append(change)

    def after(self, revision: int, kind: tuple[str, str]) -> list[Change]:
        """Raises Compacted."""
        self.check(revision)
        of_kind = self._kinds.get(kind)
        return of_kind.changes[of_kind.after(revision) :] if of_kind is not None else []

    def back_to(self, revision: int, kind: tuple[str, str]) -> Iterator[Change]:
        """The changes of a kind after that revision, newest first."""
        return reversed(self.after(revision, kind))

    def last_of(self, kind: tuple[str, str]) -> int:
        """The revision of the kind's latest change, as far as remembered."""
        of_kind = self._kinds.get(kind)
        if of_kind is None or of_kind.start == len(of_kind.changes):
            return self.compacted
        return of_kind.changes[-1].revision

    def check(self, revision: int) -> None:
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)

    def is_overfull(self) -> bool:
        """Whether it is worth forgetting some: now and then, rather than one for each that comes."""
        return (len(self._all) - self.keep) * _FRACTION > self.keep or (
            self.bytes - self.keep_bytes
        ) * _FRACTION > self.keep_bytes

    def forget(self, revision: int) -> list[Change]:
        """Forgets the changes up to and including that revision, and says which these were."""
        forgotten = []
        while self._all and self._all[0].revision <= revision:
            forgotten.append(self._forget_first())
        self.compacted = max(self.compacted, revision)
        return forgotten

    def forget_surplus(self, up_to: int) -> list[Change]:
        """As `forget`, of the changes beyond those to keep, but none after `up_to`."""
        forgotten = []
        while self._all and (len(self._all) > self.keep or self.bytes > self.keep_bytes):
            if self._all[0].revision > up_to:
                break
            forgotten.append(self._forget_first())
        if forgotten:
            self.compacted = max(self.compacted, forgotten[-1].revision)
        return forgotten

    def _forget_first(self) -> Change:
        change = self._all.popleft()
        self.bytes -= self._costs.popleft()
        self._kinds[change.key[:2]].forget_first()
        return change
