"""The view that browsers follow: one snapshot, then changes with a sequence number.

    first browser ─► refresh ─► snapshot (stream, sequence) ─► changes after that sequence …
                        ▲                                            │ at most every quarter second,
                        └────────────── something changed ◄──────────┘ if there are browsers at all

All browsers follow the same changes, of which the latest are kept. One that was away for longer than
that, or that follows an earlier stream (another process, another scheduler, other columns), starts with
a snapshot again. So a slow browser costs no memory. Reading is cut into slices of some milliseconds.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast import __version__
from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.scheduler import Scheduler
from holdfast.web.event_log import EventLog
from holdfast.web.node_columns import NodeColumns
from holdfast.web.row_tables import PastReservations, PendingRows, QueueRows, ReservationRows

MAX_VIEWERS = 16
"""Browsers that follow at the same time. Well below the connections that the health port accepts, so
that health checks are always answered."""
_PAUSE = 0.25
"""Seconds between two refreshes."""
_SHARE = 20
"""The pause is at least this many times as long as the refresh took."""
_SLICE = 0.005
"""Seconds of reading before other tasks run."""
_KEPT_CHANGES = 64
_KEPT_BYTES = 4 * 1024**2
_KEEP_ALIVE = 15.0
_FORGET = 30.0
"""Seconds without a browser after which the view is dropped."""

Json = dict[str, Any]


def no_role() -> str:
    return ""


@dataclass(slots=True)
class WatchedScheduler:
    """What the dashboard shows. `attach` is called with each new scheduler, and with None before the
    old one is dropped."""

    name: str
    """The cluster, for the heading."""
    now: Callable[[], float] = time.time
    role: Callable[[], str] = no_role
    """Leading or standby; empty where there is no election."""
    takes_decisions: bool = True
    """Whether events come from the scheduler's decisions; else from the store."""
    events: EventLog = field(default_factory=EventLog)
    past: PastReservations = field(default_factory=PastReservations)
    scheduler: Scheduler | None = None

    def attach(self, scheduler: Scheduler | None) -> None:
        self.scheduler = scheduler
        if scheduler is None:
            return
        cluster, past = scheduler.cluster, self.past
        cluster.reservations.on_dropped.append(lambda info: past.add(cluster, info))
        if self.takes_decisions:
            scheduler.decision_listeners.append(self._decided)

    def _decided(self, decisions: list[Decision], now: float) -> None:
        self.events.decided(decisions, now)


class TooManyViewers(HoldfastError):
    """There are `MAX_VIEWERS` already."""


class _State:
    """The view of one scheduler."""

    def __init__(self, scheduler: Scheduler, watched: WatchedScheduler) -> None:
        self.scheduler = scheduler
        self._watched = watched
        self.stream = uuid.uuid4().hex[:12]
        self.sequence = 0
        self.nodes = NodeColumns(scheduler.cluster)
        self.reservations = ReservationRows(scheduler.cluster, watched.past)
        self.pending = PendingRows(scheduler)
        self.queues = QueueRows(scheduler)
        self._events_sent = watched.events.count
        self._counts: dict[str, int] = {}
        self._role = watched.role()
        self._version: tuple[int, ...] = ()

    def version(self) -> tuple[int, ...]:
        """Moves with everything that is shown; cheap to compute."""
        scheduler, epoch = self.scheduler, self.scheduler.cluster.epoch
        return (
            epoch.usage.end,
            epoch.nodes.end,
            epoch.reservations.end,
            epoch.objects,
            epoch.inputs,
            epoch.queues,
            *self.nodes.devices.version,
            sum(scheduler.queue.entered.values()),
            scheduler.queue.refusals,
            len(scheduler.queue),
            self._watched.events.count,
            self._watched.past.count,
        )

    def changes(self) -> Iterator[Json | None]:
        """Yields None between slices of work, and in the end what changed, if anything."""
        version = self.version()
        role = self._watched.role()
        if version == self._version and role == self._role:
            return
        self._version = version
        found: Json = {}
        for part, refresh in (
            ("nodes", self.nodes.refresh()),
            ("reservations", self.reservations.refresh()),
        ):
            for changes in refresh:
                if changes is None:
                    yield None
                else:
                    found[part] = changes
        if (pending := self.pending.refresh()) is not None:
            found["pending"] = pending
            self._counts = self.scheduler.queue.counts()
            found["counts"] = self._counts
        yield None
        if (queues := self.queues.refresh()) is not None:
            found["queues"] = queues
        if events := self._watched.events.since(self._events_sent):
            found["events"] = events
        self._events_sent = self._watched.events.count
        if role != self._role:
            self._role = found["role"] = role
        if found:
            self.sequence += 1
            yield {"sequence": self.sequence, "now": self._watched.now(), **found}

    def snapshot(self) -> Json:
        return {
            "stream": self.stream,
            "sequence": self.sequence,
            "now": self._watched.now(),
            "version": __version__,
            "cluster": self._watched.name,
            "role": self._role,
            "resources": self.nodes.resources,
            "nodes": self.nodes.snapshot(),
            "reservations": self.reservations.snapshot(),
            "pending": {**self.pending.snapshot(), "total": self.pending.total},
            "counts": self._counts,
            "queues": self.queues.snapshot(),
            "events": self._watched.events.since(0),
        }


class Changes(NamedTuple):
    """The changes of one refresh, as JSON."""

    sequence: int
    text: bytes


class LiveView:
    """The views that all browsers of one dashboard follow."""

    def __init__(self, watched: WatchedScheduler) -> None:
        self.watched = watched
        self.viewers = 0
        self._state: _State | None = None
        self._kept: deque[Changes] = deque()
        self._bytes = 0
        self._moved = asyncio.Event()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._encode = msgspec.json.Encoder().encode

    async def snapshot(self) -> bytes:
        """The whole view as JSON, up to date; empty if there is no scheduler yet."""
        async with self._lock:
            await self._refresh()
            self._start()
            if self._state is None:
                return b""
            return self._encode(self._state.snapshot())

    async def follow(self, stream: str, after: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Changes after a sequence number, each with its own; number 0 and nothing to keep the
        connection alive. Ends when the stream has ended: a new snapshot is needed; and on `close`.
        Raises TooManyViewers."""
        if self.viewers >= MAX_VIEWERS:
            raise TooManyViewers
        self.viewers += 1
        self._start()
        try:
            yield 0, b""
            while True:
                moved = self._moved
                behind = self.changes_after(stream, after)
                if behind is None:
                    return
                for change in behind:
                    yield change.sequence, change.text
                    after = change.sequence
                if not behind:
                    try:
                        async with asyncio.timeout(_KEEP_ALIVE):
                            await moved.wait()
                    except TimeoutError:
                        yield 0, b""
        finally:
            self.viewers -= 1

    def changes_after(self, stream: str, after: int) -> list[Changes] | None:
        """What followed this sequence number so far; None if that is no longer known."""
        state = self._state
        if state is None or state.stream != stream or after > state.sequence:
            return None
        behind = [change for change in self._kept if change.sequence > after]
        if state.sequence > after and (not behind or behind[0].sequence != after + 1):
            return None
        return behind

    @property
    def is_idle(self) -> bool:
        """Whether nothing is read or kept."""
        return self._state is None and (self._task is None or self._task.done())

    async def close(self) -> None:
        self._drop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Refreshes while there are browsers, and drops the view some time after the last has gone."""
        idle_since: float | None = None
        while True:
            start = time.perf_counter()
            if self.viewers:
                idle_since = None
                async with self._lock:
                    await self._refresh()
            elif idle_since is None:
                idle_since = start
            elif start - idle_since > _FORGET:
                self._drop()
                return
            await asyncio.sleep(max(_PAUSE, _SHARE * (time.perf_counter() - start)))

    async def _refresh(self) -> None:
        state, scheduler = self._state, self.watched.scheduler
        if state is not None and (state.scheduler is not scheduler or state.nodes.is_outdated()):
            self._drop()
            state = None
        if scheduler is None:
            return
        if state is None:
            state = _State(scheduler, self.watched)
        until = time.perf_counter() + _SLICE
        for change in state.changes():
            if change is not None and self._state is state:
                self._put(state.sequence, self._encode(change))
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _SLICE
        if self._state is None and self.watched.scheduler is scheduler:
            self._state = state

    def _put(self, sequence: int, text: bytes) -> None:
        self._kept.append(Changes(sequence, text))
        self._bytes += len(text)
        while len(self._kept) > _KEPT_CHANGES or self._bytes > _KEPT_BYTES:
            self._bytes -= len(self._kept.popleft().text)
        self._wake()

    def _drop(self) -> None:
        self._state = None
        self._kept.clear()
        self._bytes = 0
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
