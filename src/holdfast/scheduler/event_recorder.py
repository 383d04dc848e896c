"""Turns Emit decisions into writes of Kubernetes Events, and repeats of an event into a count.

There are two encodings of an Event:

    CoreEvents    v1, which local clusters store. A repeat raises `count` at once, as in events of the
                  controllers of Kubernetes
    SeriesEvents  events.k8s.io/v1, which is sent to API servers. Warnings are counted, in a series:
                  the first repeat is written at once, later ones when the series ends, six minutes
                  after the last occurrence, as in events of kube-scheduler

The recorder writes nothing itself: its user stores or sends each `EventWrite`.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from holdfast.api.names import DEFAULT_NAMESPACE
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

SERIES_ENDS = 360.0
_NAME_LIMIT = 253
_NOTE_LIMIT = 1024
_INSTANCE_LIMIT = 128

Body = dict[str, Any]


class EventWrite(NamedTuple):
    namespace: str
    name: str
    body: Body
    """A new Event, or a merge patch of one."""
    is_new: bool


class EventEncoding(Protocol):
    delays_repeats: bool
    """Whether repeats after the first are written when the series ends."""

    def counts(self, event: Emit) -> bool:
        """Whether repeats of the event are counted in one Event."""

    def event(self, event: Emit, component: str, regarding: Body, metadata: Body, now: float) -> Body:
        """A new Event."""

    def repeat(self, count: int, now: float) -> Body:
        """The merge patch for an Event that has occurred so often, last at that time."""


class CoreEvents:
    delays_repeats = False

    def counts(self, event: Emit) -> bool:
        return True

    def event(self, event: Emit, component: str, regarding: Body, metadata: Body, now: float) -> Body:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": regarding,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "action": event.action,
            "count": 1,
            "firstTimestamp": format_time(now),
            "lastTimestamp": format_time(now),
            "source": {"component": component},
            "reportingComponent": component,
        }

    def repeat(self, count: int, now: float) -> Body:
        return {"count": count, "lastTimestamp": format_time(now)}


class SeriesEvents:
    delays_repeats = True

    def __init__(self, host: str) -> None:
        """`host` is part of the reporting instance."""
        self._host = host

    def counts(self, event: Emit) -> bool:
        return event.type != "Normal"

    def event(self, event: Emit, component: str, regarding: Body, metadata: Body, now: float) -> Body:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": metadata,
            "eventTime": _micro_time(now),
            "reportingController": component,
            "reportingInstance": f"{component}-{self._host}"[:_INSTANCE_LIMIT],
            "action": event.action or "Scheduling",
            "type": event.type,
            "reason": event.reason,
            "regarding": regarding,
            "note": event.message[:_NOTE_LIMIT],
        }

    def repeat(self, count: int, now: float) -> Body:
        return {"series": {"count": count, "lastObservedTime": _micro_time(now)}}


class _Occurrences:
    """The occurrences of one event."""

    __slots__ = ("count", "last_at", "name", "namespace", "written")

    def __init__(self, namespace: str, name: str, last_at: float) -> None:
        self.namespace, self.name = namespace, name
        self.last_at = last_at
        self.count = self.written = 1


class EventRecorder:
    """`version` gives the resourceVersion an object was last seen in, which Events refer to as those of
    client-go do. At most `limit` events are counted; the least recent is forgotten first."""

    def __init__(
        self, encoding: EventEncoding, version: Callable[[ObjectRef], str], limit: int
    ) -> None:
        self._encoding = encoding
        self._version = version
        self._limit = limit
        self._last_number = 0
        self._known: OrderedDict[Emit, _Occurrences] = OrderedDict()
        """Events that are counted, the least recent first."""
        self._named: dict[tuple[str, str], Emit] = {}
        """The same by namespace and name of the Event."""

    def __len__(self) -> int:
        """The number of events that are counted."""
        return len(self._known)

    def record(self, event: Emit, component: str, now: float) -> EventWrite | None:
        """The write that an event requires, if any. `component` is the one that reports it."""
        known = self._known.get(event)
        if known is None:
            return self._first(event, component, now)
        known.count += 1
        known.last_at = now
        self._known.move_to_end(event)
        if self._encoding.delays_repeats and known.written > 1:
            return None
        return self._repeat(known)

    def ended(self, now: float) -> list[EventWrite]:
        """The last writes of series in which nothing has occurred for a while; those are forgotten."""
        writes: list[EventWrite] = []
        while self._known:
            event, known = next(iter(self._known.items()))
            if known.last_at > now - SERIES_ENDS:
                break
            self._drop(event)
            if known.count > known.written:
                writes.append(self._repeat(known))
        return writes

    def forget(self, namespace: str, name: str) -> None:
        """An Event was deleted: a repeat is written as a new one."""
        event = self._named.get((namespace, name))
        if event is not None:
            self._drop(event)

    def _first(self, event: Emit, component: str, now: float) -> EventWrite:
        # A microsecond is the resolution of the time; names must differ even within one.
        self._last_number = max(self._last_number + 1, int(now * 1_000_000) * 1000)
        suffix = f".{self._last_number:016x}"
        name = event.about.name[: _NAME_LIMIT - len(suffix)] + suffix
        namespace = event.about.namespace or DEFAULT_NAMESPACE
        if self._encoding.counts(event):
            self._known[event] = _Occurrences(namespace, name, now)
            self._named[namespace, name] = event
            if len(self._known) > self._limit:
                self._drop(next(iter(self._known)))
        regarding: Body = dict(event.about.reference())
        if version := self._version(event.about):
            regarding["resourceVersion"] = version
        metadata = {"name": name, "namespace": namespace}
        body = self._encoding.event(event, component, regarding, metadata, now)
        return EventWrite(namespace, name, body, is_new=True)

    def _repeat(self, known: _Occurrences) -> EventWrite:
        known.written = known.count
        patch = self._encoding.repeat(known.count, known.last_at)
        return EventWrite(known.namespace, known.name, patch, is_new=False)

    def _drop(self, event: Emit) -> None:
        known = self._known.pop(event)
        del self._named[known.namespace, known.name]


def _micro_time(now: float) -> str:
    return f"{format_time(now)[:-1]}.{int((now - int(now)) * 1_000_000):06d}Z"
