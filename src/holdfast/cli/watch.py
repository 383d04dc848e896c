"""`holdfast get --watch`: rows of the objects that change, until the command is interrupted.

A lost watch is resumed: the objects are listed again, and what differs from what was shown is shown.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

import typer

from holdfast.api.kinds import KindInfo
from holdfast.cli.client import Raw, Server
from holdfast.cli.kinds.kind import Found, OutputColumn, OutputKind, OutputRow, PlainKind, Query
from holdfast.cli.kinds.snapshot_kind import SnapshotKind
from holdfast.kube.object_watch import (
    ADDED,
    DELETED,
    LISTED,
    MODIFIED,
    WatchedChange,
    WatchScope,
    changes,
)

_TOGETHER = 0.2
"""Changes within so many seconds are counted together, by types that count the whole cluster."""

Show = Callable[[str, OutputRow, Sequence[OutputColumn]], None]
"""Prints a row: of which event, and in which columns."""


async def follow(server: Server, kind: OutputKind, query: Query, found: Found, show: Show) -> None:
    """Shows what changes from now on; `found` is what was shown."""
    if isinstance(kind, SnapshotKind):
        await _follow_snapshot(server, kind, query, found, show)
    elif isinstance(kind, PlainKind):
        await _follow_objects(server, kind, query, found, show)


async def _follow_objects(
    server: Server, kind: PlainKind, query: Query, found: Found, show: Show
) -> None:
    scopes = [
        WatchScope(
            info,
            query.namespace if info.namespaced else "",
            kind.selected(query),
            query.fields,
            optional=len(kind.infos) > 1,
        )
        for info in kind.infos
    ]
    shown = [row.object for row in found.rows]
    at = [column.name for column in kind.columns].index(kind.status)
    async for change in changes(server, scopes, shown, warn_of_lost_watch):
        raw = change.raw
        if change.event == LISTED:
            continue
        if query.names and raw["metadata"]["name"] not in query.names:
            continue
        (cells,) = await kind.filled(server, [raw], time.time())
        if change.event == DELETED:
            cells[at] = "Deleted"
        show(change.event, OutputRow(raw, cells), kind.columns)


async def _follow_snapshot(
    server: Server, kind: SnapshotKind, query: Query, found: Found, show: Show
) -> None:
    from holdfast.cli.live_snapshot import LiveSnapshot
    from holdfast.snapshot.reader import running_setup

    live = LiveSnapshot((await running_setup(server)).setup)
    rows, columns = {_uid(row.object): row for row in found.rows}, found.columns
    scopes = live.scopes(kind.reads)
    unlisted = {scope.info.resource for scope in scopes}
    async for batch in _batches(changes(server, scopes, [], warn_of_lost_watch)):
        for change in batch:
            if change.event == LISTED:
                unlisted.discard(change.info.resource)
            else:
                live.feed(change)
        if unlisted:
            continue
        fresh = kind.rows(live.snapshot, query)
        for row in fresh.rows:
            before = rows.pop(_uid(row.object), None)
            if before is None:
                show(ADDED, row, fresh.columns)
            elif kind.is_changed(_by_name(before, columns), _by_name(row, fresh.columns)):
                show(MODIFIED, row, fresh.columns)
        for row in rows.values():
            at = [column.name for column in columns].index(kind.status)
            cells = [*row.cells]
            cells[at] = kind.last_status(live.snapshot, row.object)
            show(DELETED, OutputRow(row.object, cells), columns)
        rows, columns = {_uid(row.object): row for row in fresh.rows}, fresh.columns


def _by_name(row: OutputRow, columns: Sequence[OutputColumn]) -> dict[str, str]:
    """The cells of a row, by the names of their columns, which may be others in the next batch."""
    return dict(zip((column.name for column in columns), row.cells, strict=True))


async def _batches(source: AsyncIterator[WatchedChange]) -> AsyncIterator[list[WatchedChange]]:
    """Changes that come soon after each other, together."""
    waiting: asyncio.Task[WatchedChange] | None = None
    try:
        while True:
            batch = [await (waiting or anext(source))]
            waiting = None
            until = asyncio.get_running_loop().time() + _TOGETHER
            while (left := until - asyncio.get_running_loop().time()) > 0:
                waiting = waiting or asyncio.ensure_future(anext(source))
                done, _ = await asyncio.wait({waiting}, timeout=left)
                if not done:
                    break
                batch.append(waiting.result())
                waiting = None
            yield batch
    finally:
        if waiting is not None:
            waiting.cancel()


def _uid(raw: Raw) -> str:
    return str(raw["metadata"].get("uid") or "")


def warn_of_lost_watch(info: KindInfo, why: str) -> None:
    typer.echo(f"warning: lost the watch of {info.plural} ({why}); retrying", err=True)
