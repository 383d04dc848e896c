"""Watches: event queues, bookmarks, and streams over HTTP.

Each change is encoded once per form and queued for all watchers of its kind. The queue of a watcher is
bounded, and so are all queues together. A watcher that does not read fast enough is terminated, as by
the API server: its queue is dropped, the stream ends after the last whole event, and the client comes
back with the last revision that it saw. Nothing may be sent after that event, not even a bookmark, or
the client would skip the dropped events.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Hashable, Iterator, Sequence

import msgspec
from aiohttp import HttpVersion11, web

from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.request_info import ListOptions, parse_revision
from holdfast.local.apiserver.responses import JSON, Form, in_form, ordered
from holdfast.local.apiserver.selection import Selection, select
from holdfast.local.store import Compacted, FutureRevision, Raw, StoreChange
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.types import shown, storage_group
from holdfast.machinery.status import StatusError, expired, revision_too_large, too_many_requests
from holdfast.serving.limits import (
    CHUNK_BYTES,
    FAREWELL_SECONDS,
    WATCHER_BYTES,
    WATCHERS_BYTES,
    WATCHES,
    Turns,
)

MAX_PENDING = 20_000
"""How many changes a client may be behind, beside what there was when it began. There is a limit on
their bytes too (`limits`)."""
_CHUNK = 256
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
_encode = msgspec.json.Encoder().encode


class Watcher:
    """The events that one client has yet to receive. `closed` is true if no more will follow."""

    def __init__(
        self,
        cluster: ApiState,
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
        self.sent = 0
        """The latest revision sent to the client."""
        self._backlog: Iterator[bytes | None] = iter(())
        """The initial events; encoded while they are sent."""
        self._behind = False
        self._pending: deque[bytes] = deque()
        self.waiting = 0
        """Bytes in `_pending`."""
        self._hub: WatchHub | None = None
        self._ready = asyncio.Event()
        self.closed = False

    @property
    def plain(self) -> bool:
        return not self._form.kind

    def take(self, change: StoreChange, shared: Shared) -> None:
        if change.revision <= self.after or self.closed:
            return
        text = self._of_change(change, shared)
        if text is not None:
            self.sent = change.revision
            self._put(text)

    def begin_with(self, objects: Sequence[Raw], revision: int, ends: bool) -> None:
        """Starts with the existing objects, and a bookmark after them if `ends`."""
        shared = Shared(self._cluster, keep=False)
        self.after = self.sent = revision

        def sent() -> Iterator[bytes | None]:
            for raw in objects:
                if self._chosen.everything or self._chosen.matches(shown(self.type, raw)):
                    yield self._of_object("ADDED", raw, shared)
                else:
                    yield None
            if ends:
                yield self._bookmark(revision, initial_end=True)

        self._backlog, self._behind = sent(), True

    def begin_after(self, revision: int, changes: Sequence[StoreChange]) -> None:
        """Starts with the changes after a revision that the client has."""
        shared = Shared(self._cluster, keep=False)
        self.after = self.sent = max(revision, changes[-1].revision if changes else 0)
        self._backlog = (self._of_change(change, shared) for change in changes)
        self._behind = True

    def bookmark(self, revision: int) -> None:
        if self.closed:
            return
        self.sent = max(self.sent, revision)
        self._put(self._bookmark(revision))

    def _bookmark(self, revision: int, initial_end: bool = False) -> bytes:
        metadata: Raw = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = _INITIAL_END
        raw = {"kind": self.type.kind, "apiVersion": self.type.api_version, "metadata": metadata}
        return _event("BOOKMARK", _encode(raw)) if self.plain else self.formed("BOOKMARK", raw)

    def _of_change(self, change: StoreChange, shared: Shared) -> bytes | None:
        if self.namespace and change.key.namespace != self.namespace:
            return None
        sort, raw = self._judged(change)
        return self._of_object(sort, raw, shared) if raw is not None else None

    def _of_object(self, sort: str, raw: Raw, shared: Shared) -> bytes:
        return shared.event(self, sort, raw) if self.plain else shared.formed(self, sort, raw)

    def error(self, status: Raw) -> None:
        self._put(_event("ERROR", _encode(status)))
        self.close()

    def close(self) -> None:
        """Ends the watch after what is queued was sent."""
        self.closed = True
        self._ready.set()

    def terminate(self) -> None:
        """Ends the watch at once."""
        self.close()
        self._pending.clear()
        self._counted(-self.waiting)
        self._backlog, self._behind = iter(()), False

    def joined(self, hub: WatchHub) -> None:
        self._hub = hub

    def left(self) -> None:
        self._counted(-self.waiting)
        self._hub = None

    def _counted(self, more: int) -> None:
        self.waiting += more
        if self._hub is not None:
            self._hub.waiting += more

    async def next(self, timeout: float | None) -> bytes:
        """The next queued events, at most a batch; empty after the timeout or when the watch has
        ended."""
        while self._behind:
            text = self._some_backlog()
            if text:
                return text
            await asyncio.sleep(0)
        if not self._pending and not self.closed:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return b""
        pending, some, size = self._pending, [], 0
        while pending and size < CHUNK_BYTES:
            some.append(pending.popleft())
            size += len(some[-1])
        self._counted(-size)
        return b"".join(some)

    def _some_backlog(self) -> bytes:
        some, size = [], 0
        for looked, text in enumerate(self._backlog, 1):
            if text is not None:
                some.append(text)
                size += len(text)
            if looked == _CHUNK or size >= CHUNK_BYTES:
                return b"".join(some)
        self._behind = False
        return b"".join(some)

    def _judged(self, change: StoreChange) -> tuple[str, Raw | None]:
        """The event type of a change for a watch with a selector."""
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

    def formed(self, sort: str, raw: Raw) -> bytes:
        """As a table or as metadata. The first table has the headers."""
        document = in_form(
            self.type, raw, self._form, self._cluster.clock.epoch(), self._include, self._headers
        )
        if sort != "BOOKMARK":
            self._headers = False
        return _event(sort, _encode(document))

    @property
    def shows(self) -> Hashable:
        """The key by which watchers share encoded events; None if they cannot be shared."""
        return None if self._headers else (self._form, self._include)

    def _put(self, text: bytes) -> None:
        self._pending.append(text)
        self._counted(len(text))
        if len(self._pending) > MAX_PENDING or self.waiting > WATCHER_BYTES:
            self.terminate()
        self._ready.set()


class Shared:
    """The bytes of one change, for as many watchers as want it."""

    def __init__(self, cluster: ApiState, keep: bool = True) -> None:
        self._cluster = cluster
        self._keep = keep
        self._known: dict[Hashable, bytes] = {}

    def formed(self, watcher: Watcher, sort: str, raw: Raw) -> bytes:
        shows = watcher.shows if self._keep else None
        if shows is None:
            return watcher.formed(sort, raw)
        key = (shows, sort, watcher.type.api_version, raw["metadata"]["resourceVersion"])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = watcher.formed(sort, raw)
        return known

    def event(self, watcher: Watcher, sort: str, raw: Raw) -> bytes:
        type = watcher.type
        key = (sort, type.api_version, raw["metadata"]["resourceVersion"])
        known = self._known.get(key)
        if known is None:
            if sort == "DELETED":
                encoded = _encode(ordered(type, shown(type, raw)))
            else:
                encoded = self._cluster.encoder.object(type, raw)
            known = _event(sort, encoded)
            if self._keep:
                self._known[key] = known
        return known


class WatchHub:
    """Hears of every durable change and passes it on to those who watch its kind."""

    def __init__(self, cluster: ApiState) -> None:
        self._cluster = cluster
        self._watchers: dict[tuple[str, str], dict[Watcher, None]] = {}
        self.waiting = 0
        """Bytes that wait for watchers, all together."""
        self._number = 0
        self._stop = cluster.store.subscribe(self._changed)

    def __len__(self) -> int:
        return self._number

    def add(self, watcher: Watcher) -> None:
        kind = (storage_group(watcher.type), watcher.type.kind)
        self._watchers.setdefault(kind, {})[watcher] = None
        self._number += 1
        self.waiting += watcher.waiting
        watcher.joined(self)

    def remove(self, watcher: Watcher) -> None:
        kind = (storage_group(watcher.type), watcher.type.kind)
        if watcher in self._watchers.get(kind, {}):
            del self._watchers[kind][watcher]
            self._number -= 1
            watcher.left()

    def close(self) -> None:
        self._stop()
        for watcher in self._all():
            watcher.close()

    def _all(self) -> Iterator[Watcher]:
        for watchers in self._watchers.values():
            yield from list(watchers)

    def _changed(self, change: StoreChange) -> None:
        watchers = self._watchers.get(change.key[:2])
        if watchers:
            shared = Shared(self._cluster)
            for watcher in list(watchers):
                watcher.take(change, shared)
            if self.waiting > WATCHERS_BYTES:
                self._terminate_slowest()

    def _terminate_slowest(self) -> None:
        for watcher in sorted(self._all(), key=lambda each: each.waiting, reverse=True):
            if self.waiting <= WATCHERS_BYTES * 3 // 4:
                return
            watcher.terminate()


def _event(sort: str, encoded: bytes) -> bytes:
    return b'{"type":"' + sort.encode() + b'","object":' + encoded + b"}\n"


BOOKMARKS_EVERY = 60.0
LONGEST = 1800
"""Minimum duration of a watch without `timeoutSeconds`; the maximum is twice as long."""


class Streams:
    def __init__(self, cluster: ApiState, hub: WatchHub, turns: Turns) -> None:
        self._cluster = cluster
        self._hub = hub
        self._turns = turns

    async def watch(
        self, request: web.BaseRequest, call: ApiRequest, options: ListOptions, form: Form, include: str
    ) -> web.StreamResponse:
        if len(self._hub) >= WATCHES:
            raise too_many_requests("Too many requests, please try again later.", 1)
        chosen = select(call.type, options.label_selector, options.field_selector)
        watcher = Watcher(self._cluster, call.type, call.namespace, chosen, form, include)
        self._begin(watcher, options)
        response = web.StreamResponse(headers={"Content-Type": JSON})
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()  # else the end of the connection is that of the answer
        loop = asyncio.get_running_loop()
        ends = loop.time() + (options.timeout or LONGEST * (1 + random.random()))
        try:
            # One that does not read is blocked in a write when its time is over.
            async with asyncio.timeout_at(ends + FAREWELL_SECONDS):
                await response.prepare(request)
                await self._feed(response, watcher, options, ends)
                await response.write_eof()
        except TimeoutError:
            watcher.terminate()
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            watcher.close()  # the client has disconnected
        except asyncio.CancelledError:
            watcher.close()
            raise
        finally:
            self._hub.remove(watcher)
        return response

    def _begin(self, watcher: Watcher, options: ListOptions) -> None:
        """From here on nothing is missed: what there is now, or what has been since, is in the queue,
        and the hub adds what comes."""
        store = self._cluster.store
        revision = self._revision(options)
        if options.initial_events and revision is not None and revision > store.revision:
            raise revision_too_large(revision, store.revision)
        try:
            if options.initial_events or (revision in (None, 0) and options.initial_events is None):
                self._send_all(watcher, ends=options.initial_events is True and options.bookmarks)
            elif revision is None:
                watcher.after = watcher.sent = store.durable
            else:
                self._send_since(watcher, revision)
        except Compacted as error:
            watcher.error(expired(str(error)).status())
            return
        self._hub.add(watcher)

    def _revision(self, options: ListOptions) -> int | None:
        if not options.resource_version:
            return None
        try:
            return parse_revision(options.resource_version)
        except ValueError as error:
            raise StatusError(500, "", str(error)) from None

    def _send_all(self, watcher: Watcher, ends: bool) -> None:
        store = self._cluster.store
        group, kind = storage_group(watcher.type), watcher.type.kind
        # Only durable changes are sent; the hub brings the rest when it is.
        snapshot = store.snapshot(group, kind, at=store.durable)
        start, end = snapshot.span(watcher.namespace or None)
        watcher.begin_with(snapshot.objects[start:end], snapshot.revision, ends)

    def _send_since(self, watcher: Watcher, revision: int) -> None:
        group, kind = storage_group(watcher.type), watcher.type.kind
        try:
            changes = self._cluster.store.changes_after(revision, group, kind)
        except FutureRevision:
            changes = []  # the hub brings it when it has come
        watcher.begin_after(revision, changes)

    async def _feed(
        self, response: web.StreamResponse, watcher: Watcher, options: ListOptions, ends: float
    ) -> None:
        loop = asyncio.get_running_loop()
        bookmark_at = loop.time() + BOOKMARKS_EVERY
        while True:
            now = loop.time()
            wait = min(ends, bookmark_at) - now if options.bookmarks else ends - now
            text = await watcher.next(max(wait, 0))
            if text:
                await self._turns.take()
                await response.write(text)
            if watcher.closed and not text:
                return
            now = loop.time()
            over = now >= ends
            if options.bookmarks and (over or now >= bookmark_at):
                bookmark_at = now + BOOKMARKS_EVERY
                self._bookmark(watcher)
            if over:
                rest = await watcher.next(0)
                if rest:
                    await response.write(rest)
                return

    def _bookmark(self, watcher: Watcher) -> None:
        durable = self._cluster.store.durable
        if durable > watcher.sent:
            watcher.bookmark(durable)
