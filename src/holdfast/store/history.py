"""The changes a store still remembers, so that a watch can go on where it stopped."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from holdfast.store.errors import Compacted
from holdfast.store.objects import Change

_TRIM = 1024


class _OfKind:
    """The changes of one kind, oldest first. Forgetting moves `start`, and now and then the list."""

    __slots__ = ("changes", "start")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.start = 0

    def forget_first(self) -> None:
        self.start += 1
        if self.start >= _TRIM and self.start * 2 >= len(self.changes):
            del self.changes[: self.start]
            self.start = 0

    def after(self, revision: int) -> int:
        return bisect_right(self.changes, revision, lo=self.start, key=lambda change: change.revision)


class History:
    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.compacted = 0
        """Changes after this revision are all here; of those before it, none is."""
        self._all: deque[Change] = deque()
        self._kinds: dict[tuple[str, str], _OfKind] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, change: Change) -> None:
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

    def surplus(self) -> int:
        """How many changes are remembered beyond those to keep."""
        return len(self._all) - self.keep

    def forget(self, revision: int) -> list[Change]:
        """Forgets the changes up to and including that revision, and says which these were."""
        forgotten = []
        while self._all and self._all[0].revision <= revision:
            forgotten.append(self._forget_first())
        self.compacted = max(self.compacted, revision)
        return forgotten

    def forget_surplus(self, up_to: int) -> list[Change]:
        """As `forget`, of the changes beyond those to keep, but none after `up_to`."""
        surplus = self.surplus()
        return self.forget(min(self._all[surplus - 1].revision, up_to)) if surplus > 0 else []

    def _forget_first(self) -> Change:
        change = self._all.popleft()
        self._kinds[change.key[:2]].forget_first()
        return change
