"""The changes that watches can resume from, and the notification of listeners.

*Observers* are parts of the cluster, which only write to the same store: they are notified at once. The
journal keeps the order of writes, so a crash that reverts what they saw also reverts what they wrote.
*Subscribers* (watches) serve clients and see only durable changes.
"""

import asyncio
import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator

from holdfast.local.store.objects import Compacted, Key, StoreChange, StoreFailed

_TRIM = 1024
_FRACTION = 32
"""The history may exceed its limit by this fraction before it is trimmed, which takes milliseconds."""
_OVERHEAD = 256
"""Bytes counted for any change besides its object."""


class _OfKind:
    """The changes of one kind, oldest first. Trimming moves `start`, and occasionally compacts the
    list.
    """

    __slots__ = ("changes", "start")

    def __init__(self) -> None:
        self.changes: list[StoreChange] = []
        self.start = 0

    def forget_first(self) -> None:
        # The place stays for a while, and must not keep the objects.
        gone = self.changes[self.start]
        self.changes[self.start] = StoreChange(gone.revision, gone.key, None, None)
        self.start += 1
        if self.start >= _TRIM and self.start * 2 >= len(self.changes):
            del self.changes[: self.start]
            self.start = 0

    def after(self, revision: int) -> int:
        return bisect_right(self.changes, revision, lo=self.start, key=lambda change: change.revision)


class History:
    """The retained changes, bounded by number and by bytes.

    The cost of a change is the object version it replaced: the newest version of an object is in the
    store anyway, and each older one is the `before` of one change.
    """

    def __init__(self, keep: int, keep_bytes: int) -> None:
        self.keep = keep
        self.keep_bytes = keep_bytes
        self.bytes = 0
        """Bytes of the kept changes besides the current objects; see `memory_of`."""
        self.compacted = 0
        """Changes after this revision are all here; of those before it, none is."""
        self._all: deque[StoreChange] = deque()
        self._kinds: dict[tuple[str, str], _OfKind] = {}
        self._costs: deque[int] = deque()
        """The cost in bytes of each change in `_all`."""
        self._sizes: dict[Key, int] = {}
        """The size of the newest version of each object."""

    def __len__(self) -> int:
        return len(self._all)

    def sized(self, key: Key, size: int) -> None:
        """Sets the size of an object whose changes are not kept."""
        self._sizes[key] = size

    def size(self, key: Key) -> int:
        """The size of the newest version of an object; 0 if unknown."""
        return self._sizes.get(key, 0)

    def add(self, change: StoreChange, size: int) -> None:
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

    def after(self, revision: int, kind: tuple[str, str]) -> list[StoreChange]:
        """Raises Compacted."""
        self.check(revision)
        of_kind = self._kinds.get(kind)
        return of_kind.changes[of_kind.after(revision) :] if of_kind is not None else []

    def back_to(self, revision: int, kind: tuple[str, str]) -> Iterator[StoreChange]:
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
        """Whether it exceeds the limits by so much that trimming is worth it."""
        return (len(self._all) - self.keep) * _FRACTION > self.keep or (
            self.bytes - self.keep_bytes
        ) * _FRACTION > self.keep_bytes

    def forget(self, revision: int) -> list[StoreChange]:
        """Forgets the changes up to and including that revision, and returns them."""
        forgotten = []
        while self._all and self._all[0].revision <= revision:
            forgotten.append(self._forget_first())
        self.compacted = max(self.compacted, revision)
        return forgotten

    def forget_surplus(self, up_to: int) -> list[StoreChange]:
        """Like `forget`, for the changes beyond the limit, but none after `up_to`."""
        forgotten = []
        while self._all and (len(self._all) > self.keep or self.bytes > self.keep_bytes):
            if self._all[0].revision > up_to:
                break
            forgotten.append(self._forget_first())
        if forgotten:
            self.compacted = max(self.compacted, forgotten[-1].revision)
        return forgotten

    def _forget_first(self) -> StoreChange:
        change = self._all.popleft()
        self.bytes -= self._costs.popleft()
        self._kinds[change.key[:2]].forget_first()
        return change


Listener = Callable[[StoreChange], None]


class Listeners:
    """Notifies all listeners of one change before the next one: a listener may itself cause a
    change. A failing listener does not keep others from being notified; its exception is raised at
    the end.
    """

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._pending: deque[StoreChange] = deque()
        self._notifying = False

    def add(self, listener: Listener) -> Callable[[], None]:
        # Each time another function, so that one that listens twice can stop once.
        def notify(change: StoreChange) -> None:
            listener(change)

        self._listeners = (*self._listeners, notify)

        def stop() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not notify)

        return stop

    def notify(self, change: StoreChange) -> None:
        if not self._listeners:
            return
        self._pending.append(change)
        if self._notifying:
            return
        self._notifying = True
        failed: Exception | None = None
        try:
            while self._pending:
                pending = self._pending.popleft()
                for listener in self._listeners:
                    try:
                        listener(pending)
                    except Exception as error:
                        failed = failed or error
        finally:
            self._notifying = False
        if failed is not None:
            raise failed


class PendingNotices:
    """Waiters for a revision to become durable."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._entered = 0

    async def until(self, revision: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entered += 1
        heapq.heappush(self._heap, (revision, self._entered, future))
        await future

    def reached(self, revision: int) -> None:
        while self._heap and self._heap[0][0] <= revision:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: StoreFailed) -> None:
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(error)
        self._heap.clear()
