"""What was decided of jobs and queues: their status; the last one wanted is the one that is written.

The status of a PodGroup is a subresource on some servers and a part of the object on others. It is
written as a part; where the answer does not have it, as a subresource.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.backends.kubernetes.errors import ApiError, Deposed
from holdfast.backends.kubernetes.http.client import JSON_PATCH
from holdfast.backends.kubernetes.http.paths import path_of
from holdfast.backends.kubernetes.writing.queue import Job, Lane, Outcome, WriteQueue
from holdfast.backends.kubernetes.writing.sender import Passing, Sender, wait_after
from holdfast.core.decisions import ObjectRef, SetPodGroupStatus, SetQueueStatus
from holdfast.core.events import Event, WriteRefused

_ATTEMPTS = 8
_NOT_THERE = (404, 422)
"""Gone, or another has the name: there is nothing left to say."""


class JobStatuses:
    def __init__(self, sender: Sender, queue: WriteQueue, feed: Callable[[Event], None]) -> None:
        self._sender = sender
        self._queue = queue
        self._feed = feed
        self._wanted: dict[str, SetPodGroupStatus | SetQueueStatus] = {}

    def set_status(self, decision: SetPodGroupStatus | SetQueueStatus) -> None:
        ref = decision.group if isinstance(decision, SetPodGroupStatus) else decision.queue
        new = ref.uid not in self._wanted
        self._wanted[ref.uid] = decision
        if new:
            info = KINDS[decision.api_version, ref.kind]
            self._queue.submit(Lane.STATUS, ref.uid, self._job(info, ref))

    def _job(self, info: KindInfo, ref: ObjectRef) -> Job:
        backoff = self._sender.backoff(0.2, 10.0)

        async def write() -> Outcome:
            wanted = self._wanted.pop(ref.uid, None)
            if wanted is None:
                return None
            try:
                await self._write(info, ref, msgspec.to_builtins(wanted.status))
            except Deposed:
                return None
            except Passing as error:
                if isinstance(error, ApiError) and error.status in _NOT_THERE:
                    return None
                wait = wait_after(error, backoff)
                if wait is not None and backoff.tries < _ATTEMPTS:
                    self._wanted.setdefault(ref.uid, wanted)
                    return wait
                self._feed(WriteRefused(wanted, str(error)))
            return None

        return write

    async def _write(self, info: KindInfo, ref: ObjectRef, status: dict[str, Any]) -> None:
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": ref.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        if not info.has_status:
            path = path_of(info, ref.namespace, ref.name)
            answer = await self._sender.write("PATCH", path, patch, JSON_PATCH)
            if _status_in(answer) == status:
                return
        path = path_of(info, ref.namespace, ref.name, "status")
        try:
            await self._sender.write("PATCH", path, patch, JSON_PATCH)
        except ApiError as error:
            if info.has_status or error.status != 404:
                raise  # else what could be written was


def _status_in(answer: bytes) -> object:
    try:
        return msgspec.json.decode(answer).get("status")
    except (msgspec.DecodeError, AttributeError):
        return None
