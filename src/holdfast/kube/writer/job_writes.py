"""Writes the status of PodGroups, Queues, ReservationSchedules and PodMigrationJobs, and evictions."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import HOLDFAST_API, RESERVATION_API
from holdfast.kube.client import JSON_PATCH, MERGE, POD, path_of
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.writer.status_writes import StatusWriter
from holdfast.kube.writer.write_queue import (
    TRANSIENT,
    ApiWriter,
    Lane,
    Write,
    WriteQueue,
    WriteResult,
    persistent,
    wait_after,
)
from holdfast.scheduler.cluster.decisions import (
    Decision,
    Emit,
    Evict,
    ObjectRef,
    SetMigrationStatus,
    SetPodGroupStatus,
    SetQueueStatus,
    SetScheduleStatus,
    SpecifyMigration,
    specification,
)
from holdfast.scheduler.cluster.events import Event, write_refused
from holdfast.scheduler.controllers.migration.migration_job import ENDED

_ATTEMPTS = 8
_NOT_THERE = (404, 422)
"""Deleted, or recreated under the same name: nothing is left to write."""


StatusDecision = SetPodGroupStatus | SetQueueStatus | SetScheduleStatus


class JobStatuses:
    """Writes the last wanted status of each PodGroup, Queue and ReservationSchedule.

    A PodGroup's status is a subresource on some servers and part of the object on others. It is written
    as part of the object; if the response lacks it, as a subresource.
    """

    def __init__(self, api: ApiWriter, queue: WriteQueue, feed: Callable[[Event], None]) -> None:
        self._api = api
        self._queue = queue
        self._feed = feed
        self._wanted: dict[str, StatusDecision] = {}

    def set_status(self, decision: StatusDecision) -> None:
        ref, api_version = _named_in(decision)
        new = ref.uid not in self._wanted
        self._wanted[ref.uid] = decision
        if new:
            info = KINDS[api_version, ref.kind]
            self._queue.submit(Lane.STATUS, ref.uid, self._status_write(info, ref))

    def _status_write(self, info: KindInfo, ref: ObjectRef) -> Write:
        backoff = self._api.backoff(0.2, 10.0)

        async def write() -> WriteResult:
            wanted = self._wanted.pop(ref.uid, None)
            if wanted is None:
                return None
            try:
                if isinstance(wanted, SetPodGroupStatus) and wanted.is_part:
                    await self._write_part(info, ref, wanted.written())
                else:
                    await self._write(info, ref, msgspec.to_builtins(wanted.status))
            except LeadershipLost:
                return None
            except TRANSIENT as error:
                if isinstance(error, ApiError) and error.status in _NOT_THERE:
                    return None
                if isinstance(error, ApiError) and error.status == 409 and _is_part(wanted):
                    return None  # recreated: the uid is another one
                wait = wait_after(error, backoff)
                if wait is not None and backoff.tries < _ATTEMPTS:
                    self._wanted.setdefault(ref.uid, wanted)
                    return wait
                self._feed(write_refused(wanted, str(error)))
            return None

        return write

    async def _write_part(self, info: KindInfo, ref: ObjectRef, status: dict[str, Any]) -> None:
        """Replaces fields of the status, and leaves those of other controllers alone."""
        patch = {"metadata": {"uid": ref.uid}, "status": status}
        path = path_of(info, ref.namespace, ref.name, "status")
        await self._api.write("PATCH", path, patch, MERGE)

    async def _write(self, info: KindInfo, ref: ObjectRef, status: dict[str, Any]) -> None:
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": ref.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        if not info.has_status:
            path = path_of(info, ref.namespace, ref.name)
            answer = await self._api.write("PATCH", path, patch, JSON_PATCH)
            if _status_in(answer) == status:
                return
        path = path_of(info, ref.namespace, ref.name, "status")
        try:
            await self._api.write("PATCH", path, patch, JSON_PATCH)
        except ApiError as error:
            if info.has_status or error.status != 404:
                raise  # else what could be written was


def _is_part(decision: StatusDecision) -> bool:
    return isinstance(decision, SetPodGroupStatus) and decision.is_part


def _named_in(decision: StatusDecision) -> tuple[ObjectRef, str]:
    """The object of a decision, and its apiVersion."""
    if isinstance(decision, SetScheduleStatus):
        return decision.schedule, HOLDFAST_API
    if isinstance(decision, SetPodGroupStatus):
        return decision.group, decision.api_version
    return decision.queue, decision.api_version


def _status_in(answer: bytes) -> object:
    try:
        return msgspec.json.decode(answer).get("status")
    except (msgspec.DecodeError, AttributeError):
        return None


_INFO = KINDS[RESERVATION_API, "PodMigrationJob"]
_GONE_OR_RECREATED = (404, 409)
_NOT_NOW = (429,)


class MigrationWriter:
    """Writes the status of PodMigrationJobs and the evictions they request.

    A refused eviction is not retried here: the controller gets the refusal and asks again when that may
    help.
    """

    def __init__(
        self,
        api: ApiWriter,
        queue: WriteQueue,
        feed: Callable[[Event], None],
        emit: Callable[[Emit], None],
        statuses: StatusWriter,
    ) -> None:
        """`emit` records the events of evictions that are accepted."""
        self._api = api
        self._queue = queue
        self._feed = feed
        self._emit = emit
        self._statuses = statuses

    def set_status(self, decision: SetMigrationStatus) -> None:
        status = msgspec.to_builtins(decision.status)
        send = partial(self._statuses.write, _INFO, decision.job, status, ENDED)
        self._submit(decision.job.uid, decision, send)

    def specify(self, decision: SpecifyMigration) -> None:
        job = decision.job
        body = specification(decision)
        body["metadata"]["uid"] = job.uid

        async def send() -> None:
            answer = await self._api.write("PATCH", path_of(_INFO, "", job.name), body, MERGE)
            self._statuses.answered(job, answer)

        self._submit(job.uid, decision, send)

    def evict(self, decision: Evict) -> None:
        pod, options = decision.pod, dict(decision.options)
        conditions = {**(options.get("preconditions") or {}), "uid": pod.uid}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {**options, "preconditions": conditions},
        }
        path = path_of(POD, pod.namespace, pod.name, "eviction")

        async def send() -> None:
            await self._api.write("POST", path, body)
            if decision.event is not None:
                self._emit(decision.event)

        self._submit(pod.uid, decision, send, final=_NOT_NOW)

    def _submit(
        self,
        uid: str,
        decision: Decision,
        send: Callable[[], Awaitable[None]],
        final: tuple[int, ...] = (),
    ) -> None:
        def refused(error: Exception) -> None:
            if isinstance(error, ApiError):
                self._feed(write_refused(decision, error.message, " ".join(error.causes)))
            else:
                self._feed(write_refused(decision, str(error)))

        write = persistent(self._api, send, refused, _GONE_OR_RECREATED, final)
        self._queue.submit(Lane.STATUS, uid, write)
