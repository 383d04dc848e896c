"""Sends Events to the API server; repeated ones as a series."""

import socket
from collections.abc import Callable

import msgspec

from holdfast.kube.client import MERGE
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.flow_control import Backoff
from holdfast.kube.writer.write_queue import TRANSIENT, ApiWriter, Job, Outcome, wait_after
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from holdfast.scheduler.event_recorder import EventRecorder, EventWrite, SeriesEvents

_MOST_SERIES = 10_000
_ATTEMPTS = 6
_ALREADY_EXISTS = 409


class EventWriter:
    def __init__(
        self, api: ApiWriter, wall: Callable[[], float], version: Callable[[ObjectRef], str]
    ) -> None:
        self._api = api
        self._wall = wall
        self._recorder = EventRecorder(SeriesEvents(socket.gethostname()), version, _MOST_SERIES)

    def job(self, event: Emit, controller: str) -> Job | None:
        """The next write; None if there is none."""
        write = self._recorder.record(event, controller, self._wall())
        return self._job(write) if write is not None else None

    def ended(self) -> list[Job]:
        """The last writes of series that have ended."""
        return [self._job(write) for write in self._recorder.ended(self._wall())]

    def _job(self, write: EventWrite) -> Job:
        path = events_path(write.namespace)
        body = msgspec.Raw(msgspec.json.encode(write.body))
        if write.is_new:
            return _Writing(self._api, "POST", path, body)
        return _Writing(self._api, "PATCH", f"{path}/{write.name}", body)


def events_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


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
