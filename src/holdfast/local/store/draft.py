"""A store view for requests that are processed in another thread.

A long request runs beside the event loop on immutable objects. Its write is kept in the draft and
committed in the loop's thread, provided that nobody has written the object, or others that the result
depends on (such as its namespace), since they were read. Otherwise the request runs again.
"""

from __future__ import annotations

from holdfast.api.errors import HoldfastError
from holdfast.local.store.objects import AlreadyExists, Key, Raw, StoreChange
from holdfast.local.store.store import Keys, Kind, Objects, Store


class ChangedMeanwhile(HoldfastError):
    """The draft's object, or one that it was computed from, was written concurrently."""


class Draft(Store):
    """Takes one write. A read copies its result in one step, since the loop continues to write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects = store._objects
        self.revision = store.revision
        self.durable = store.durable
        self.pending: StoreChange | None = None
        self._seen: dict[Key, Raw | None] = {}
        self._scanned: dict[Kind, dict[Key, Raw]] = {}
        """All objects of the kinds that were gone through, as they were then."""

    def get(self, key: Key) -> Raw | None:
        """As it was when first asked for."""
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
        """Whether everything that was looked at is as it was."""
        current = self._store
        return all(current.get(key) is raw for key, raw in self._seen.items()) and all(
            current.count(*kind) == len(objects)
            and all(current.get(key) is raw for key, raw in objects.items())
            for kind, objects in self._scanned.items()
        )
