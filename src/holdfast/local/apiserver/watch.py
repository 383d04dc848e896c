"""Watches: event queues, bookmarks, and streams over HTTP.

Each change is encoded once per form and queued for all watchers of its kind. An event is sent in
pieces, the next one when the client has taken the one before: a client that does not read keeps a piece
of its own, and the rest is shared. The queue of a watcher is bounded, and so is what all watchers hold.

A watcher that does not read fast enough is terminated, as by the API server: its queue is dropped, the
stream ends after the last whole event, and the client comes back with the last revision that it saw.
Nothing may be sent after that event, not even a bookmark, or the client would skip the dropped events.
In the middle of an event the connection is cut, since the rest would have to be kept for the client.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from aiohttp import HttpVersion11, web

from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.request_info import ListOptions, parse_revision
from holdfast.local.apiserver.responses import JSON, Form, add_warnings, in_form, ordered
from holdfast.local.apiserver.selection import Selection, select
from holdfast.local.store import Compacted, FutureRevision, Raw, StoreChange
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.types import storage_group, to_version
from holdfast.machinery.status import StatusError, expired, revision_too_large, too_many_requests
from holdfast.serving.limits import (
    CHUNK_BYTES,
    FAREWELL_SECONDS,
    WATCHER_BYTES,
    WATCHERS_BYTES,
    WATCHES,
    Turns,
)
from holdfast.serving.unsent import UnsentBytes

MAX_PENDING = 20_000
"""How many changes a client may be behind, beside what there was when it began. There is a limit on
their bytes too (`limits`)."""
_CHUNK = 256
_INITIAL_END = {"k8s.io/initial-events-end": "true"}
_encode = msgspec.json.Encoder().encode


class _Initial(NamedTuple):
    """An initial event."""

    text: bytes
    key: Hashable = None
    """By which watchers share it; None if they cannot."""


class Watcher:
    """The events that one client has yet to receive. `closed` is true if no more will follow."""

    def __init__(
        self,
        cluster: ApiState,
        type: ResourceType,
        namespace: str,
        selection: Selection,
        form: Form,
        include: str = "",
    ) -> None:
        self._cluster = cluster
        self.type = type
        self.namespace = namespace
        self._selection = selection
        self._form = form
        self._include = include
        self._headers = True
        self.after = 0
        """Changes up to this revision are known to the client, or not wanted."""
        self.sent = 0
        """The latest revision sent to the client."""
        self._backlog: Iterator[_Initial | None] = iter(())
        """The initial events; encoded while they are sent."""
        self._behind = False
        self._pending: deque[bytes] = deque()
        self._sending: bytes | None = None
        """The event that is sent next, or in pieces at the moment."""
        self._offset = 0
        """Bytes of `_sending` that were sent."""
        self.waiting = 0
        """Bytes in `_pending` and `_sending`."""
        self.taken_at = 0.0
        """When the client last took a piece, or had nothing to take."""
        self._unsent = UnsentBytes()
        self._hub: WatchHub | None = None
        self._ready = asyncio.Event()
        self.closed = False
        self.cut: Callable[[], None] = lambda: None
        """Ends the connection."""

    @property
    def plain(self) -> bool:
        return not self._form.kind

    def take(self, change: StoreChange, shared: SharedEncoding) -> None:
        if change.revision <= self.after or self.closed:
            return
        event_type, raw = self._seen(change)
        if raw is not None:
            self.sent = change.revision
            self._put(shared.event(self, event_type, raw))

    def begin_with(self, objects: Iterable[Raw], revision: int, ends: bool) -> None:
        """Starts with the existing objects, and a bookmark after them if `ends`."""
        self.after = self.sent = revision

        def sent() -> Iterator[_Initial | None]:
            for raw in objects:
                if self._selection.everything or self._selection.matches(to_version(self.type, raw)):
                    yield self._initial("ADDED", raw)
                else:
                    yield None
            if ends:
                yield _Initial(self._bookmark(revision, initial_end=True))

        self._backlog, self._behind = sent(), True

    def begin_after(self, revision: int, changes: Sequence[StoreChange]) -> None:
        """Starts with the changes after a revision that the client has."""
        self.after = self.sent = max(revision, changes[-1].revision if changes else 0)

        def sent() -> Iterator[_Initial | None]:
            for change in changes:
                event_type, raw = self._seen(change)
                yield self._initial(event_type, raw) if raw is not None else None

        self._backlog, self._behind = sent(), True

    def _initial(self, event_type: str, raw: Raw) -> _Initial:
        if not self.plain:
            return _Initial(self.encode_in_form(event_type, raw))
        key = _sharing_key(self.type, event_type, raw)
        text = self._unsent.find(key)
        return _Initial(
            text if text is not None else _plain(self._cluster, self.type, event_type, raw), key
        )

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
        return _event("BOOKMARK", _encode(raw)) if self.plain else self.encode_in_form("BOOKMARK", raw)

    def _seen(self, change: StoreChange) -> tuple[str, Raw | None]:
        if self.namespace and change.key.namespace != self.namespace:
            return "", None
        return self._selected_event(change)

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
        if self.in_event:
            self.cut()
        self._drop()

    @property
    def in_event(self) -> bool:
        """Whether the client has got a part of an event."""
        return self._offset > 0

    def attach(self, hub: WatchHub) -> None:
        self._hub, self._unsent = hub, hub.unsent

    def detach(self) -> None:
        self._drop()
        self._hub = None

    def _drop(self) -> None:
        self._backlog, self._behind = iter(()), False
        for text in self._pending:
            self._release(text)
        self._pending.clear()
        self._sent_whole()

    def _hold(self, text: bytes, key: Hashable = None) -> None:
        if not self.waiting:
            self.taken_at = time.monotonic()
        self._unsent.hold(text, key)
        self.waiting += len(text)

    def _release(self, text: bytes) -> None:
        self._unsent.release(text)
        self.waiting -= len(text)

    async def next(self, timeout: float | None) -> bytes | memoryview:
        """The next piece of what is queued: some events, or a part of a large one. Empty after the
        timeout or when the watch has ended."""
        self.taken_at = time.monotonic()
        while self._behind:
            piece = self._piece()
            if piece:
                return piece
            await asyncio.sleep(0)
        if self._sending is None and not self._pending and not self.closed:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return b""
        return self._piece()

    def _piece(self) -> bytes | memoryview:
        """At most CHUNK_BYTES; may be empty while there are initial events to look through."""
        some: list[bytes | memoryview] = []
        size = looked = 0
        while self._sending is not None or looked < _CHUNK:
            if self._sending is None:
                looked += 1
                if not self._load_next():
                    break
            text = self._sending
            if text is None:
                continue
            end = min(len(text), self._offset + CHUNK_BYTES - size)
            if end < len(text) and some:
                break
            some.append(
                text if not self._offset and end == len(text) else memoryview(text)[self._offset : end]
            )
            size += end - self._offset
            self._offset = end
            if end < len(text):
                break
            self._sent_whole()
        return some[0] if len(some) == 1 else b"".join(some)

    def _load_next(self) -> bool:
        """Makes the next event the one that is sent; initial events may be skipped. False if there is
        none."""
        if self._behind:
            try:
                event = next(self._backlog)
            except StopIteration:
                self._behind = False
                return bool(self._pending)
            if event is not None:
                self._sending = event.text
                self._hold(event.text, event.key)
                if self._hub is not None:
                    self._hub.bound()
            return True
        if not self._pending:
            return False
        self._sending = self._pending.popleft()
        return True

    def _sent_whole(self) -> None:
        if self._sending is not None:
            self._release(self._sending)
        self._sending, self._offset = None, 0

    def _selected_event(self, change: StoreChange) -> tuple[str, Raw | None]:
        """The event type and object of a change as seen through the selector: an object that starts to
        match it is added, one that stops is deleted. None if the change is not seen.
        """
        before, after = change.before, change.after
        if not self._selection.everything:
            if before is not None and not self._selection.matches(to_version(self.type, before)):
                before = None
            if after is not None and not self._selection.matches(to_version(self.type, after)):
                after = None
        if after is not None:
            return ("ADDED" if before is None else "MODIFIED"), after
        if before is None:
            return "", None
        # A deleted object is shown as it last was, with the revision of its deletion.
        metadata = {**before["metadata"], "resourceVersion": str(change.revision)}
        return "DELETED", {**before, "metadata": metadata}

    def encode_in_form(self, event_type: str, raw: Raw) -> bytes:
        """As a table or as metadata. The first table has the headers."""
        document = in_form(
            self.type, raw, self._form, self._cluster.clock.epoch(), self._include, self._headers
        )
        if event_type != "BOOKMARK":
            self._headers = False
        return _event(event_type, _encode(document))

    @property
    def shape(self) -> Hashable:
        """Watchers of one type and shape get a change in the same bytes."""
        return None if self.plain else (self._form, self._include, self._headers)

    def sent_headers(self) -> None:
        self._headers = False

    def _put(self, text: bytes) -> None:
        self._hold(text)
        self._pending.append(text)
        if len(self._pending) > MAX_PENDING or self.waiting > WATCHER_BYTES:
            self.terminate()
        self._ready.set()


class SharedEncoding:
    """Encodes the events of one change once for all watchers that get the same bytes."""

    def __init__(self, cluster: ApiState) -> None:
        self._cluster = cluster
        self._known: dict[Hashable, bytes] = {}

    def event(self, watcher: Watcher, event_type: str, raw: Raw) -> bytes:
        key = (watcher.shape, *_sharing_key(watcher.type, event_type, raw))
        known = self._known.get(key)
        if known is None:
            if watcher.plain:
                known = _plain(self._cluster, watcher.type, event_type, raw)
            else:
                known = watcher.encode_in_form(event_type, raw)
            self._known[key] = known
        watcher.sent_headers()
        return known


def _sharing_key(type: ResourceType, event_type: str, raw: Raw) -> tuple[str, str, str]:
    return event_type, type.api_version, raw["metadata"]["resourceVersion"]


def _plain(cluster: ApiState, type: ResourceType, event_type: str, raw: Raw) -> bytes:
    """The event with the object itself."""
    if event_type == "DELETED":
        encoded = _encode(ordered(type, to_version(type, raw)))
    else:
        encoded = cluster.encoder.object(type, raw)
    return _event(event_type, encoded)


class WatchHub:
    """Passes every durable change on to the watchers of its kind."""

    def __init__(self, cluster: ApiState) -> None:
        self._cluster = cluster
        self._watchers: dict[tuple[str, str], dict[Watcher, None]] = {}
        self.unsent = UnsentBytes()
        """Events that wait for watchers, all together."""
        self._number = 0
        self._stop = cluster.store.subscribe(self._changed)

    def __len__(self) -> int:
        return self._number

    def add(self, watcher: Watcher) -> None:
        kind = (storage_group(watcher.type), watcher.type.kind)
        self._watchers.setdefault(kind, {})[watcher] = None
        self._number += 1
        watcher.attach(self)

    def remove(self, watcher: Watcher) -> None:
        kind = (storage_group(watcher.type), watcher.type.kind)
        if watcher in self._watchers.get(kind, {}):
            del self._watchers[kind][watcher]
            self._number -= 1
            watcher.detach()

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
            shared = SharedEncoding(self._cluster)
            for watcher in list(watchers):
                watcher.take(change, shared)
            self.bound()

    def bound(self) -> None:
        """Terminates the slowest watchers if too much waits: those for which most has waited longest.
        One that reads has just taken something, however much there is for it."""
        if self.unsent.total <= WATCHERS_BYTES:
            return
        now = time.monotonic()
        slow = [watcher for watcher in self._all() if watcher.waiting]
        slow.sort(key=lambda each: each.waiting * (now - each.taken_at), reverse=True)
        for watcher in slow:
            if self.unsent.total <= WATCHERS_BYTES * 3 // 4:
                return
            watcher.terminate()


def _event(event_type: str, encoded: bytes) -> bytes:
    return b'{"type":"' + event_type.encode() + b'","object":' + encoded + b"}\n"


BOOKMARK_SECONDS = 60.0
"""Between two bookmarks of a watch that asks for them."""
MIN_WATCH_SECONDS = 1800
"""Minimum duration of a watch without `timeoutSeconds`; the maximum is twice as long. As with
kube-apiserver's `--min-request-timeout`."""


class WatchStreams:
    """Serves watches over HTTP."""

    def __init__(self, cluster: ApiState, hub: WatchHub, turns: Turns) -> None:
        self._cluster = cluster
        self._hub = hub
        self._turns = turns

    async def watch(
        self, request: web.BaseRequest, call: ApiRequest, options: ListOptions, form: Form, include: str
    ) -> web.StreamResponse:
        if len(self._hub) >= WATCHES:
            raise too_many_requests("Too many requests, please try again later.", 1)
        selection = select(call.type, options.label_selector, options.field_selector)
        watcher = Watcher(self._cluster, call.type, call.namespace, selection, form, include)
        if request.transport is not None:
            watcher.cut = request.transport.abort
        self._begin(watcher, options)
        response = web.StreamResponse(headers={"Content-Type": JSON})
        add_warnings(response, call.warnings)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()  # else the end of the connection is that of the answer
        loop = asyncio.get_running_loop()
        ends = loop.time() + (options.timeout or MIN_WATCH_SECONDS * (1 + random.random()))
        try:
            # A client that does not read keeps a write blocked beyond the end of the watch.
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
        """Queues the existing objects, or the changes since the requested revision, and adds the
        watcher to the hub, so that no change is missed between."""
        store = self._cluster.store
        revision = self._revision(options)
        if options.initial_events and revision is not None and revision > store.revision:
            raise revision_too_large(revision, store.revision)
        try:
            if options.initial_events or (revision in (None, 0) and options.initial_events is None):
                self._queue_existing(watcher, ends=options.initial_events is True and options.bookmarks)
            elif revision is None:
                watcher.after = watcher.sent = store.durable
            else:
                self._queue_changes(watcher, revision)
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

    def _queue_existing(self, watcher: Watcher, ends: bool) -> None:
        store = self._cluster.store
        group, kind = storage_group(watcher.type), watcher.type.kind
        # Only durable changes are sent; the hub passes the others on once they are durable.
        snapshot = store.snapshot(group, kind, at=store.durable)
        start, end = snapshot.span(watcher.namespace or None)
        # Watchers share the snapshot; a slice would be a copy for each.
        objects = (snapshot.objects[at] for at in range(start, end))
        watcher.begin_with(objects, snapshot.revision, ends)

    def _queue_changes(self, watcher: Watcher, revision: int) -> None:
        group, kind = storage_group(watcher.type), watcher.type.kind
        try:
            changes = self._cluster.store.changes_after(revision, group, kind)
        except FutureRevision:
            changes = []  # the hub passes them on once they are made
        watcher.begin_after(revision, changes)

    async def _feed(
        self, response: web.StreamResponse, watcher: Watcher, options: ListOptions, ends: float
    ) -> None:
        loop = asyncio.get_running_loop()
        bookmark_at = loop.time() + BOOKMARK_SECONDS
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
                bookmark_at = now + BOOKMARK_SECONDS
                self._bookmark(watcher)
            if over:
                while rest := await watcher.next(0):
                    await response.write(rest)
                    if not watcher.in_event:
                        return
                return

    def _bookmark(self, watcher: Watcher) -> None:
        durable = self._cluster.store.durable
        if durable > watcher.sent:
            watcher.bookmark(durable)
