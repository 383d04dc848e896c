"""The object store: all objects, one revision counter, watches, consistent snapshots for paged lists,
and drafts for requests that run in another thread.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.api.errors import HoldfastError
from holdfast.local.store.history import History, Listener, Listeners, PendingNotices
from holdfast.local.store.objects import (
    AlreadyExists,
    Conflict,
    FutureRevision,
    Key,
    NotEncodable,
    NotFound,
    Raw,
    StoreChange,
    StoreFailed,
    encode,
    memory_of,
)

_FEW = 1024
"""Keys that are put in their places whatever the number of the others."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of a kind at one revision, sorted by namespace and name. It has references, not
    copies, and does not change with the store.
    """

    revision: int
    keys: Sequence[Key]
    objects: Sequence[Raw]

    def span(self, namespace: str | None = None, after: Key | None = None) -> tuple[int, int]:
        """The range of the objects of a namespace in `objects` after the key `after`, which need not
        exist."""
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
    """The sorted keys of a kind, and those added or removed since: merging these few is much cheaper
    than sorting all.
    """

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


Kind = tuple[str, str]
Objects = list[Raw]
Keys = list[Key]
Changes = list[StoreChange]

KEEP = 20_000
"""Default number of changes kept in the history."""
KEEP_BYTES = 128 * 1024**2
"""How many bytes of older versions they may hold: some 10,000 changes of pods."""
_SLICE = 0.005
"""Seconds of notifying subscribers before the event loop continues with other work."""
_SNAPSHOTS = 8
"""Past snapshots kept at hand, for clients in the middle of a paged list."""


class Journal(Protocol):
    """The durable record of changes."""

    durable: int
    """The latest revision that is."""
    failure: StoreFailed | None
    """The error after which no write is durable."""

    def load(self, objects: dict[Kind, dict[Key, Raw]], history: History) -> int:
        """Fills in what was kept before; answers with the revision reached."""

    def start(self, progress: Callable[[], None]) -> None:
        """From now on changes may be written. `progress` is called, in whatever thread, when
        `durable` or `failure` has changed."""

    def write(self, change: StoreChange, data: bytes | None) -> None:
        """Takes the change, to commit it soon; `data` is its object, encoded."""

    def forget(self, changes: Iterable[StoreChange], compacted: int) -> None:
        """These changes need not be remembered, only what they led to."""

    def flush(self) -> None:
        """Waits until all that was written is durable, or cannot be."""

    def close(self) -> None: ...


class Store:
    """All objects, with one revision counter.

                     mutation                          committed (at once without a journal)
        caller ───────────────► objects, history ───────────────────────► subscribers, settled()
                                        │ at once
                                        ▼
                                    observers

    All methods are called in one thread, the event loop's if there is one.
    """

    def __init__(
        self, journal: Journal | None = None, keep: int = KEEP, keep_bytes: int = KEEP_BYTES
    ) -> None:
        self._objects: dict[Kind, dict[Key, Raw]] = {}
        """By group and kind; within these in the order of creation."""
        self._history = History(keep, keep_bytes)
        self._journal = journal
        self._encodes = journal is not None or keep > 0
        """Whether objects are encoded as they come. A simulation keeps nothing and need not."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.revision = 0
        """The revision of the latest change. As text it is an object's resourceVersion."""
        self.failure: StoreFailed | None = None
        """Set once the disk did not take a write: from then on all writes are refused."""
        if journal is not None:
            self.revision = journal.load(self._objects, self._history)
            journal.start(self._progress_in_thread)
        self.durable = self.revision
        """The latest durable revision, which subscribers have received."""
        self._observers = Listeners()
        self._subscribers = Listeners()
        self._unsettled: deque[StoreChange] = deque()
        self._waiting = PendingNotices()
        self._goes_on = False
        """Whether `_progress` is about to be called again."""
        self._current: dict[Kind, tuple[Keys, Objects]] = {}
        self._order: dict[Kind, Order] = {}
        self._past: OrderedDict[tuple[Kind, int], Snapshot] = OrderedDict()

    # Reading

    def get(self, key: Key) -> Raw | None:
        of_kind = self._objects.get(key[:2])
        return of_kind.get(key) if of_kind is not None else None

    def size(self, key: Key) -> int:
        """About how many bytes the object takes in memory, which is how much work it is, too; 0 if that
        is not known."""
        return self._history.size(key)

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def list(self, group: str, kind: str, namespace: str | None = None) -> Objects:
        """Sorted by namespace and name."""
        return self.snapshot(group, kind).listed(namespace)

    def snapshot(self, group: str, kind: str, at: int | None = None) -> Snapshot:
        """The objects of a kind, now or at a revision still remembered. Raises Compacted or
        FutureRevision. The pages of one list come from snapshots of one revision."""
        wanted = (group, kind)
        if at is None:
            return Snapshot(self.revision, *self._sorted(wanted))
        self._check(at)
        if at >= self._history.last_of(wanted):
            return Snapshot(at, *self._sorted(wanted))
        known = self._past.get((wanted, at))
        if known is None:
            known = self._past[wanted, at] = self._rewound(wanted, at)
            while len(self._past) > _SNAPSHOTS:
                self._past.popitem(last=False)
        self._past.move_to_end((wanted, at))
        return known

    def kinds(self) -> Sequence[Kind]:
        """The kinds there are objects of, or once were."""
        return [*self._objects]

    def scan(self, group: str, kind: str) -> Objects:
        """Unsorted: in the order they were created, as long as nothing was read from disk."""
        return [*self._objects.get((group, kind), {}).values()]

    def count(self, group: str, kind: str) -> int:
        return len(self._objects.get((group, kind), ()))

    def keys_in(self, namespace: str) -> Keys:
        return [
            key for objects in self._objects.values() for key in objects if key.namespace == namespace
        ]

    # Writing

    def load(self, objects: Iterable[tuple[Key, Raw]]) -> None:
        """Fills an empty store with objects as they are. Observers and subscribers are not notified,
        and nothing is written to a journal."""
        for key, raw in objects:
            self._objects.setdefault(key[:2], {})[key] = raw

    def create(self, key: Key, raw: Raw) -> Raw:
        """Stores a new object. Raises AlreadyExists or NotEncodable."""
        if key in self._objects.setdefault(key[:2], {}):
            raise AlreadyExists(key)
        return self._put(key, None, raw)

    def update(self, key: Key, raw: Raw, expected: str | None = None) -> Raw:
        """Replaces an object; with `expected`, only if that is its resourceVersion. Raises NotFound,
        Conflict or NotEncodable."""
        return self._put(key, self._found(key, expected), raw)

    def delete(self, key: Key, expected: str | None = None) -> Raw:
        """Deletes the object and returns it as it was. Raises NotFound or Conflict."""
        before = self._found(key, expected)
        self._check_failure()
        del self._objects[key[:2]][key]
        self._happened(StoreChange(self.revision + 1, key, before, None), None)
        return before

    # Watching

    def changes_after(self, revision: int, group: str, kind: str) -> Changes:
        """The durable changes of a kind after a revision, oldest first; those that follow come to
        subscribers. Raises Compacted or FutureRevision.

        A watch begins with this and `subscribe`, with no await in between, and skips changes that are
        not after its revision."""
        self._check(revision)
        changes = self._history.after(revision, (group, kind))
        while changes and changes[-1].revision > self.durable:
            changes.pop()
        return changes

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls the listener with every change, in order, once it is durable. The answer ends that."""
        return self._subscribers.add(listener)

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Calls the listener with every change, in order, at once; for parts of the cluster, which do
        nothing but write to this store."""
        return self._observers.add(listener)

    async def settled(self, revision: int) -> None:
        """Returns once that revision is durable. Raises StoreFailed if it will never be."""
        if revision > self.durable:
            if revision > self.revision:
                raise FutureRevision(revision, self.revision)
            self._check_failure()
            self._loop = asyncio.get_running_loop()
            self._progress()
            if revision > self.durable:
                await self._waiting.until(revision)

    def flush(self) -> None:
        """Like `settled` of the latest revision, but blocks; for callers without an event loop."""
        if self._journal is not None:
            self._journal.flush()
            self._progress(whole=True)
            self._check_failure()

    def compact(self, revision: int) -> None:
        """Forgets the changes before that revision, in memory and on disk."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self._forgot(self._history.forget(min(revision, self.durable)))

    @property
    def compacted(self) -> int:
        """The oldest revision that can be watched or listed from."""
        return self._history.compacted

    def close(self) -> None:
        """Makes all changes durable and closes the file."""
        if self._journal is not None:
            try:
                self.flush()
            finally:
                self._journal.close()

    # Within

    def _found(self, key: Key, expected: str | None) -> Raw:
        found = self.get(key)
        if found is None:
            raise NotFound(key)
        if expected is not None:
            version = found["metadata"]["resourceVersion"]
            if version != expected:
                raise Conflict(key, expected, version)
        return found

    def _put(self, key: Key, before: Raw | None, raw: Raw) -> Raw:
        self._check_failure()
        revision = self.revision + 1
        stored = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(revision)}}
        data = None
        if self._encodes:
            # Before anything changes: an object that cannot be encoded fails only its own write.
            try:
                data = encode(stored)
            except (TypeError, ValueError, OverflowError, RecursionError):
                raise NotEncodable(key) from None
        self._objects[key[:2]][key] = stored
        self._happened(StoreChange(revision, key, before, stored), data)
        return stored

    def _happened(self, change: StoreChange, data: bytes | None) -> None:
        self.revision = change.revision
        kind = change.key[:2]
        self._current.pop(kind, None)
        order = self._order.get(kind) if change.before is None or change.after is None else None
        if order is not None and not order.moved(change.key):
            del self._order[kind]
        self._history.add(change, memory_of(data) if data is not None else 0)
        self._unsettled.append(change)
        if self._journal is None:
            self._observers.notify(change)
            self._settle(change.revision)
            return
        if self._loop is None:
            self._loop = asyncio._get_running_loop()
        self._journal.write(change, data)
        self._observers.notify(change)

    def _settle(self, durable: int, until: float | None = None) -> None:
        """Notifies subscribers of durable changes; no longer than `until`, if that is given."""
        unsettled = self._unsettled
        while unsettled and unsettled[0].revision <= durable:
            change = unsettled.popleft()
            self.durable = change.revision
            self._subscribers.notify(change)
            if until is not None and time.perf_counter() > until:
                break
        if self._history.is_overfull():
            self._forgot(self._history.forget_surplus(self.durable))

    def _progress_in_thread(self) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._progress)
            except RuntimeError:
                self._loop = None  # that loop has ended; the next call of settled or flush catches up

    def _progress(self, whole: bool = False) -> None:
        """Notifies those that wait for durable changes. A commit may be of thousands of changes,
        and each may have hundreds of watchers: unless it is to be done as a `whole`, others have their
        turns in between."""
        journal = self._journal
        assert journal is not None
        failure = journal.failure
        whole = whole or failure is not None
        self._settle(journal.durable, None if whole else time.perf_counter() + _SLICE)
        self._waiting.reached(self.durable)
        if failure is not None:
            self.failure = failure
            self._waiting.fail(failure)
        if self._unsettled and self.durable < journal.durable and not (whole or self._goes_on):
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._progress()

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _check(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self._history.check(revision)

    def _forgot(self, changes: Changes) -> None:
        for known in [known for known in self._past if known[1] < self._history.compacted]:
            del self._past[known]
        if self._journal is not None:
            self._journal.forget(changes, self._history.compacted)

    def _sorted(self, kind: Kind) -> tuple[Keys, Objects]:
        known = self._current.get(kind)
        if known is None:
            of_kind = self._objects.get(kind, {})
            order = self._order.get(kind)
            keys = order.keys_of(of_kind) if order is not None else sorted(of_kind)
            self._order[kind] = Order(keys)
            known = self._current[kind] = (keys, [of_kind[key] for key in keys])
        return known

    def _rewound(self, kind: Kind, at: int) -> Snapshot:
        of_kind = dict(self._objects.get(kind, {}))
        order = Order(self._sorted(kind)[0])
        for change in self._history.back_to(at, kind):
            if change.before is None:
                del of_kind[change.key]
            else:
                of_kind[change.key] = change.before
            order.moved(change.key)
        keys = order.keys_of(of_kind)
        return Snapshot(at, keys, [of_kind[key] for key in keys])


class ChangedMeanwhile(HoldfastError):
    """The draft's object, or one that it was computed from, was written concurrently."""


class Draft(Store):
    """The store as seen by a request that runs in another thread; takes one write.

    A long request runs beside the event loop on immutable objects. Its write is kept in the draft and
    committed in the loop's thread, provided that no other request has written the object, or others
    that the result depends on (such as its namespace), since they were read. Otherwise the request runs
    again. A read copies its result in one step, since the loop continues to write.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects = store._objects
        self.revision = store.revision
        self.durable = store.durable
        self.pending: StoreChange | None = None
        self._seen: dict[Key, Raw | None] = {}
        self._scanned: dict[Kind, dict[Key, Raw]] = {}
        """All objects of the scanned kinds, as they were at the first scan."""

    def get(self, key: Key) -> Raw | None:
        """The object as it was at the first read."""
        if key not in self._seen:
            self._seen[key] = super().get(key)
        return self._seen[key]

    def scan(self, group: str, kind: str) -> Objects:
        return [*self._of_kind((group, kind)).values()]

    def create(self, key: Key, raw: Raw) -> Raw:
        if self.get(key) is not None:
            raise AlreadyExists(key)
        return self._put(key, None, raw)

    def delete(self, key: Key, expected: str | None = None) -> Raw:
        before = self._found(key, expected)
        self._happened(StoreChange(self.revision, key, before, None))
        return before

    def keys_in(self, namespace: str) -> Keys:
        kinds = [*self._objects.values()]
        return [key for objects in kinds for key in [*objects] if key.namespace == namespace]

    def commit(self) -> Raw | None:
        """Writes what the draft would write, in the thread of the loop; the object as it is stored
        then, None if nothing is written or the object is deleted. Raises ChangedMeanwhile."""
        change = self.pending
        if change is None:
            return None
        if not self._is_current():
            raise ChangedMeanwhile(change.key)
        if change.after is None:
            self._store.delete(change.key)
            return None
        if change.before is None:
            return self._store.create(change.key, change.after)
        return self._store.update(change.key, change.after)

    def _put(self, key: Key, before: Raw | None, raw: Raw) -> Raw:
        self._happened(StoreChange(self.revision, key, before, raw))
        return raw

    def _happened(self, change: StoreChange, data: bytes | None = None) -> None:
        assert self.pending is None, "a draft takes one write"
        self.pending = change

    def _sorted(self, kind: Kind) -> tuple[Keys, Objects]:
        items = sorted(self._of_kind(kind).items(), key=lambda item: item[0])
        return [key for key, _ in items], [raw for _, raw in items]

    def _of_kind(self, kind: Kind) -> dict[Key, Raw]:
        if kind not in self._scanned:
            self._scanned[kind] = dict(self._objects.get(kind, {}))
        return self._scanned[kind]

    def _is_current(self) -> bool:
        """Whether everything that was read is unchanged."""
        current = self._store
        return all(current.get(key) is raw for key, raw in self._seen.items()) and all(
            current.count(*kind) == len(objects)
            and all(current.get(key) is raw for key, raw in objects.items())
            for kind, objects in self._scanned.items()
        )
