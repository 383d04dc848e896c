"""Watches the raw objects of several kinds. A lost watch is resumed: the objects are listed again, and
what differs from what was known is reported.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple

from holdfast.api.kinds import KindInfo
from holdfast.kube.errors import ApiError, KubernetesError, Unreachable
from holdfast.kube.object_client import Raw, Server

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
LISTED = "LISTED"
"""Follows the changes that a list reported; of a kind that cannot be read, it comes at once."""
_BOOKMARK = "BOOKMARK"
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

Lost = Callable[[KindInfo, str], None]
"""Called when a watch is lost, with the reason."""


class WatchedChange(NamedTuple):
    event: str
    info: KindInfo
    raw: Raw


class WatchScope(NamedTuple):
    """The objects of one kind that are watched."""

    info: KindInfo
    namespace: str = ""
    selector: str = ""
    fields: str = ""
    optional: bool = False
    """Whether the server may not have the kind, or not show it."""


async def changes(
    server: Server,
    scopes: Sequence[WatchScope],
    shown: Sequence[Raw],
    lost: Lost,
    keep: Callable[[Raw], Raw] = lambda raw: raw,
) -> AsyncGenerator[WatchedChange, None]:
    """Changes of all of them, beginning with what differs from the objects that were shown. Of a known
    object only what `keep` returns is kept in memory, and reported if a list shows that it is gone: its
    apiVersion and kind, and the name, uid and resourceVersion of its metadata are needed."""
    waiting: asyncio.Queue[WatchedChange | BaseException] = asyncio.Queue()

    async def watch(scope: WatchScope) -> None:
        known = {
            _uid(raw): keep(raw)
            for raw in shown
            if (raw["apiVersion"], raw["kind"]) == (scope.info.api_version, scope.info.kind)
        }
        try:
            await _ObjectWatch(server, scope, known, waiting, lost, keep).run()
        except KubernetesError as error:
            waiting.put_nowait(error)

    tasks = [asyncio.create_task(watch(scope)) for scope in scopes]
    try:
        while True:
            change = await waiting.get()
            if isinstance(change, BaseException):
                raise change
            yield change
    finally:
        for task in tasks:
            task.cancel()


class _ObjectWatch:
    """Lists and watches one scope, for ever."""

    def __init__(
        self,
        server: Server,
        scope: WatchScope,
        known: dict[str, Raw],
        out: "asyncio.Queue[WatchedChange | BaseException]",
        lost: Lost,
        keep: Callable[[Raw], Raw],
    ) -> None:
        self._server = server
        self._scope = scope
        self._known = known
        self._out = out
        self._lost = lost
        self._keep = keep

    async def run(self) -> None:
        scope, pause = self._scope, _FIRST_PAUSE
        while True:
            try:
                version = await self._list()
                pause = _FIRST_PAUSE
                while True:
                    version = await self._follow(version)
                    await asyncio.sleep(0)  # the server ended it, as it does every few minutes
            except ApiError as error:
                if error.status == 410:
                    continue
                if scope.optional and error.status in (403, 404):
                    self._put(LISTED, {})
                    return
                if not error.is_transient:
                    raise
                why = error.message
            except Unreachable as error:
                why = str(error)
            self._lost(scope.info, why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _follow(self, version: str) -> str:
        """Watches from that version on; returns the last one."""
        scope = self._scope
        watched = self._server.watch(scope.info, version, scope.namespace, scope.selector, scope.fields)
        async for event, raw in watched:
            version = str(raw["metadata"].get("resourceVersion") or version)
            if event == _BOOKMARK:
                continue
            if event == DELETED:
                self._known.pop(_uid(raw), None)
            else:
                self._known[_uid(raw)] = self._keep(raw)
            self._put(event, raw)
        return version

    async def _list(self) -> str:
        """Lists the objects, reports what differs from those known, and returns the version."""
        scope, known = self._scope, self._known
        items, version = await self._server.listed(
            scope.info, scope.namespace, scope.selector, scope.fields
        )
        fresh = {_uid(raw): raw for raw in items}
        for uid in known.keys() - fresh.keys():
            self._put(DELETED, known.pop(uid))
        for uid, raw in fresh.items():
            before = known.get(uid)
            if before is None:
                self._put(ADDED, raw)
            elif before["metadata"].get("resourceVersion") != raw["metadata"].get("resourceVersion"):
                self._put(MODIFIED, raw)
            known[uid] = self._keep(raw)
        self._put(LISTED, {})
        return version

    def _put(self, event: str, raw: Raw) -> None:
        self._out.put_nowait(WatchedChange(event, self._scope.info, raw))


def _uid(raw: Raw) -> str:
    return str(raw["metadata"].get("uid") or "")
