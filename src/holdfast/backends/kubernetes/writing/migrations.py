"""What was decided of jobs that move pods, and the evictions they ask for.

A refused eviction is not insisted on here: the core is told, and asks again when that may help.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESERVATION_API
from holdfast.backends.kubernetes.errors import ApiError
from holdfast.backends.kubernetes.http.client import JSON, JSON_PATCH, MERGE
from holdfast.backends.kubernetes.http.paths import POD, path_of
from holdfast.backends.kubernetes.writing.persisting import persistent
from holdfast.backends.kubernetes.writing.queue import Lane, WriteQueue
from holdfast.backends.kubernetes.writing.sender import Sender
from holdfast.backends.wire import specification
from holdfast.core.decisions import Decision, Evict, SetMigrationStatus, SpecifyMigration
from holdfast.core.events import Event, WriteRefused

_INFO = KINDS[RESERVATION_API, "PodMigrationJob"]
_NOT_THERE = (404, 409)
_NOT_NOW = (429,)


class Migrations:
    def __init__(self, sender: Sender, queue: WriteQueue, feed: Callable[[Event], None]) -> None:
        self._sender = sender
        self._queue = queue
        self._feed = feed

    def set_status(self, decision: SetMigrationStatus) -> None:
        job = decision.job
        body = [
            {"op": "test", "path": "/metadata/uid", "value": job.uid},
            {"op": "add", "path": "/status", "value": msgspec.to_builtins(decision.status)},
        ]
        path = path_of(_INFO, "", job.name, "status")
        self._submit(job.uid, decision, "PATCH", path, body, JSON_PATCH)

    def specify(self, decision: SpecifyMigration) -> None:
        job = decision.job
        body = {"metadata": {"uid": job.uid}, "spec": specification(decision)}
        self._submit(job.uid, decision, "PATCH", path_of(_INFO, "", job.name), body, MERGE)

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
        self._submit(pod.uid, decision, "POST", path, body, JSON, insists=False)

    def _submit(
        self,
        uid: str,
        decision: Decision,
        method: str,
        path: str,
        body: Any,
        type_: str,
        insists: bool = True,
    ) -> None:

        def refused(error: Exception) -> None:
            said = error.message if isinstance(error, ApiError) else str(error)
            self._feed(WriteRefused(decision, said))

        send = partial(self._sender.write, method, path, body, type_)
        job = persistent(
            self._sender, send, refused, settled=_NOT_THERE, final=() if insists else _NOT_NOW
        )
        self._queue.submit(Lane.STATUS, uid, job)
