"""Watches: each change is encoded once per form and handed to all who watch its kind.

A watcher has a bounded queue. One that does not read fast enough is cut off and comes back with the
revision it saw last, as Kubernetes' clients do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

import msgspec

from holdfast.server.api.cluster import Cluster
from holdfast.server.api.encoding import in_form, ordered
from holdfast.server.api.negotiate import Form
from holdfast.server.api.selection import Selection
from holdfast.server.api.views import shown, storage_group
from holdfast.server.schema import ResourceType
from holdfast.store import Change, Raw

MAX_PENDING = 20_000
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
_encode = msgspec.json.Encoder().encode


class Watcher:
    """What one client still has to be told. `closed` says there will be no more."""

    def __init__(
        self,
        cluster: Cluster,
        type: ResourceType,
        namespace: str,
        chosen: Selection,
        form: Form,
        include: str = "",
    ) -> None:
        self._cluster = cluster
        self.type = type
        self.namespace = namespace
        self._chosen = chosen
        self._form = form
        self._include = include
        self._headers = True
        self.after = 0
        """Changes up to this revision are known to the client, or not wanted."""
        self.told = 0
        """The latest revision the client was told of."""
        self._pending: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self.closed = False

    @property
    def plain(self) -> bool:
        return not self._form.kind

    def take(self, change: Change, shared: Shared) -> None:
        if change.revision <= self.after or self.closed:
            return
        if self.namespace and change.key.namespace != self.namespace:
            return
        sort, raw = self._judged(change)
        if raw is None:
            return
        self.told = change.revision
        self._put(shared.event(self, sort, raw) if self.plain else self._formed(sort, raw))

    def added(self, raw: Raw, shared: Shared) -> None:
        """An object that was there when the watch began."""
        if self._chosen.everything or self._chosen.matches(shown(self.type, raw)):
            self._put(shared.event(self, "ADDED", raw) if self.plain else self._formed("ADDED", raw))

    def bookmark(self, revision: int, initial_end: bool = False) -> None:
        metadata: Raw = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = _INITIAL_END
        raw = {"kind": self.type.kind, "apiVersion": self.type.api_version, "metadata": metadata}
        self.told = max(self.told, revision)
        self._put(_event("BOOKMARK", _encode(raw)) if self.plain else self._formed("BOOKMARK", raw))

    def error(self, status: Raw) -> None:
        self._put(_event("ERROR", _encode(status)))
        self.close()

    def close(self) -> None:
        self.closed = True
        self._ready.set()

    async def next(self, timeout: float | None) -> bytes:
        """All there is, at once; empty when nothing came in time or nothing will."""
        if not self._pending and not self.closed:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return b""
        text = b"".join(self._pending)
        self._pending.clear()
        return text

    def _judged(self, change: Change) -> tuple[str, Raw | None]:
        """What the change is to someone who sees only what they chose."""
        before, after = change.before, change.after
        if not self._chosen.everything:
            if before is not None and not self._chosen.matches(shown(self.type, before)):
                before = None
            if after is not None and not self._chosen.matches(shown(self.type, after)):
                after = None
        if after is not None:
            return ("ADDED" if before is None else "MODIFIED"), after
        if before is None:
            return "", None
        # What went is shown as it was, with the revision at which it went.
        metadata = {**before["metadata"], "resourceVersion": str(change.revision)}
        return "DELETED", {**before, "metadata": metadata}

    def _formed(self, sort: str, raw: Raw) -> bytes:
        document = in_form(
            self.type, raw, self._form, self._cluster.clock.epoch(), self._include, self._headers
        )
        if sort != "BOOKMARK":
            self._headers = False
        return _event(sort, _encode(document))

    def _put(self, text: bytes) -> None:
        self._pending.append(text)
        if len(self._pending) > MAX_PENDING:
            self.close()
        self._ready.set()


class Shared:
    """The bytes of one change, for as many watchers as want it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, str, str], bytes] = {}

    def event(self, watcher: Watcher, sort: str, raw: Raw) -> bytes:
        type = watcher.type
        key = (sort, type.api_version, raw["metadata"]["resourceVersion"])
        known = self._known.get(key)
        if known is None:
            if sort == "DELETED":
                encoded = _encode(ordered(type, shown(type, raw)))
            else:
                encoded = self._cluster.encoder.object(type, raw)
            known = self._known[key] = _event(sort, encoded)
        return known


class WatchHub:
    """Hears of every durable change and passes it on to those who watch its kind."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watchers: dict[tuple[str, str], dict[Watcher, None]] = {}
        self._stop = cluster.store.subscribe(self._changed)

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, watcher: Watcher) -> None:
        kind = (storage_group(watcher.type), watcher.type.kind)
        self._watchers.setdefault(kind, {})[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        kind = (storage_group(watcher.type), watcher.type.kind)
        self._watchers.get(kind, {}).pop(watcher, None)

    def close(self) -> None:
        self._stop()
        for watcher in self._all():
            watcher.close()

    def _all(self) -> Iterator[Watcher]:
        for watchers in self._watchers.values():
            yield from list(watchers)

    def _changed(self, change: Change) -> None:
        watchers = self._watchers.get(change.key[:2])
        if watchers:
            shared = Shared(self._cluster)
            for watcher in list(watchers):
                watcher.take(change, shared)


def _event(sort: str, encoded: bytes) -> bytes:
    return b'{"type":"' + sort.encode() + b'","object":' + encoded + b"}\n"
