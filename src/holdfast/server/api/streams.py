"""Watches over HTTP: events as lines of JSON, for as long as the client stays."""

from __future__ import annotations

import asyncio
import random

from aiohttp import HttpVersion11, web

from holdfast.server.api.cluster import Call, Cluster
from holdfast.server.api.negotiate import JSON, Form
from holdfast.server.api.options import ListOptions, parse_revision
from holdfast.server.api.selection import select
from holdfast.server.api.status import ApiError, expired, revision_too_large, too_many_requests
from holdfast.server.api.views import storage_group
from holdfast.server.api.watching import Watcher, WatchHub
from holdfast.server.limits import FAREWELL_SECONDS, WATCHES
from holdfast.server.turns import Turns
from holdfast.store import Compacted, FutureRevision

BOOKMARKS_EVERY = 60.0
LONGEST = 1800
"""A watch that does not say how long it wants to last ends by itself after this or up to twice as
long."""


class Streams:
    def __init__(self, cluster: Cluster, hub: WatchHub, turns: Turns) -> None:
        self._cluster = cluster
        self._hub = hub
        self._turns = turns

    async def watch(
        self, request: web.BaseRequest, call: Call, options: ListOptions, form: Form, include: str
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
            watcher.close()  # whoever watched has gone, as everyone does in the end
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
                self._tell_all(watcher, ends=options.initial_events is True and options.bookmarks)
            elif revision is None:
                watcher.after = watcher.told = store.durable
            else:
                self._tell_since(watcher, revision)
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
            raise ApiError(500, "", str(error)) from None

    def _tell_all(self, watcher: Watcher, ends: bool) -> None:
        store = self._cluster.store
        group, kind = storage_group(watcher.type), watcher.type.kind
        # Only what is durable is told; the hub brings the rest when it is.
        snapshot = store.snapshot(group, kind, at=store.durable)
        start, end = snapshot.span(watcher.namespace or None)
        watcher.begin_with(snapshot.objects[start:end], snapshot.revision, ends)

    def _tell_since(self, watcher: Watcher, revision: int) -> None:
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
        if durable > watcher.told:
            watcher.bookmark(durable)
