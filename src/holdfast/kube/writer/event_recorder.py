"""Writes Events (`events.k8s.io/v1`), aggregating repeats into series.

A repeated event for the same object increments the count of one Event. The first repeat is written at
once, later ones when the series ends, six minutes after the last occurrence.
"""

import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.api.names import DEFAULT_NAMESPACE
from holdfast.api.times import format_micro_time, format_time
from holdfast.kube.client import MERGE
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.flow_control import Backoff
from holdfast.kube.writer.write_queue import TRANSIENT, ApiWriter, Job, Outcome, wait_after
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

SERIES_ENDS = 360.0
_MOST_SERIES = 10_000
_ATTEMPTS = 6
_NAME_LIMIT = 253
_NOTE_LIMIT = 1024
_ALREADY_EXISTS = 409


class _Series:
    __slots__ = ("count", "heard_at", "path", "written")

    def __init__(self, path: str, heard_at: float) -> None:
        self.path = path
        self.heard_at = heard_at
        self.count = 1
        self.written = 1


class EventWriter:
    def __init__(
        self, api: ApiWriter, wall: Callable[[], float], version: Callable[[ObjectRef], str]
    ) -> None:
        self._api = api
        self._wall = wall
        self._version = version
        """The resourceVersion an object was last seen in, which events refer to as client-go's do."""
        self._host = socket.gethostname()
        self._last_name = 0
        self._second, self._second_text = -1, ""
        self._series: OrderedDict[Emit, _Series] = OrderedDict()
        """Open series, least recently repeated first."""

    def job(self, event: Emit, controller: str) -> Job | None:
        """What is to be written, if anything."""
        now = self._wall()
        known = self._series.get(event)
        if known is not None:
            known.count += 1
            known.heard_at = now
            self._series.move_to_end(event)
            if known.written > 1:
                return None
            known.written = known.count
            return self._writing("PATCH", known.path, _series_patch(known.count, now))
        # A microsecond is the resolution of the stamp; names must differ even within one.
        self._last_name = max(self._last_name + 1, int(now * 1_000_000) * 1000)
        suffix = f".{self._last_name:x}"
        name = event.about.name[: _NAME_LIMIT - len(suffix)] + suffix
        namespace = event.about.namespace or DEFAULT_NAMESPACE
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        if event.type != "Normal":
            self._series[event] = _Series(f"{path}/{name}", now)
            if len(self._series) > _MOST_SERIES:
                self._series.popitem(last=False)
        return self._writing("POST", path, self._body(event, controller, namespace, name, now))

    def ended(self) -> list[Job]:
        """The last words of series that were not heard for a while."""
        now = self._wall()
        jobs: list[Job] = []
        while self._series:
            event, series = next(iter(self._series.items()))
            if series.heard_at > now - SERIES_ENDS:
                break
            del self._series[event]
            if series.count > series.written:
                patch = _series_patch(series.count, series.heard_at)
                jobs.append(self._writing("PATCH", series.path, patch))
        return jobs

    def _body(
        self, event: Emit, controller: str, namespace: str, name: str, now: float
    ) -> dict[str, Any]:
        regarding = event.about.reference()
        if version := self._version(event.about):
            regarding["resourceVersion"] = version
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": self._stamp(now),
            "reportingController": controller,
            "reportingInstance": f"{controller}-{self._host}"[:128],
            "action": event.action or "Scheduling",
            "type": event.type,
            "reason": event.reason,
            "regarding": regarding,
            "note": event.message[:_NOTE_LIMIT],
        }

    def _stamp(self, now: float) -> str:
        """As `format_micro_time` has it; seconds are written out once for all that happens in one."""
        second = int(now)
        if second != self._second:
            self._second, self._second_text = second, format_time(second)[:-1]
        return f"{self._second_text}.{int((now - second) * 1_000_000):06d}Z"

    def _writing(self, method: str, path: str, body: dict[str, Any]) -> Job:
        return _Writing(self._api, method, path, msgspec.Raw(msgspec.json.encode(body)))


class _Writing:
    """One write. Tens of thousands may wait while the server is slow, so it is small: encoded
    already, and without a back-off until it needs one.
    """

    __slots__ = ("_api", "_backoff", "_body", "_method", "_path")

    def __init__(self, api: ApiWriter, method: str, path: str, body: msgspec.Raw) -> None:
        self._api = api
        self._method, self._path, self._body = method, path, body
        self._backoff: Backoff | None = None

    async def __call__(self) -> Outcome:
        content_type = MERGE if self._method == "PATCH" else "application/json"
        try:
            await self._api.write(self._method, self._path, self._body, content_type)
        except LeadershipLost:
            return None
        except TRANSIENT as error:
            if isinstance(error, ApiError) and error.status in (404, _ALREADY_EXISTS):
                return None  # its namespace or series has gone; or an attempt did arrive
            if self._backoff is None:
                self._backoff = self._api.backoff(1.0, 20.0)
            wait = wait_after(error, self._backoff)
            if wait is None or self._backoff.tries >= _ATTEMPTS:
                raise
            return wait
        return None


def _series_patch(count: int, heard_at: float) -> dict[str, Any]:
    return {"series": {"count": count, "lastObservedTime": format_micro_time(heard_at)}}
