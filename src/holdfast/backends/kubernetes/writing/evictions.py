"""A victim of preemption: it is told why, then deleted, gracefully."""

from collections.abc import Callable
from typing import Any

from holdfast.api.decode import decode_pod_json
from holdfast.api.errors import InvalidObject
from holdfast.api.timestamps import format_time
from holdfast.backends.kubernetes.errors import ApiError, Deposed
from holdfast.backends.kubernetes.http.backoff import Backoff
from holdfast.backends.kubernetes.http.client import STRATEGIC
from holdfast.backends.kubernetes.http.paths import POD, path_of
from holdfast.backends.kubernetes.writing.queue import Outcome
from holdfast.backends.kubernetes.writing.sender import Passing, Sender, wait_after
from holdfast.core.decisions import Preempt
from holdfast.core.events import Event, Updated

_ATTEMPTS = 8
_NOT_THERE = (404, 409)


def eviction_job(
    sender: Sender, decision: Preempt, wall: Callable[[], float], feed: Callable[[Event], None]
) -> Callable[[], Any]:
    """`feed` is given the pod as it is where it could not be deleted: the core takes it for leaving."""
    pod = decision.pod
    path = path_of(POD, pod.namespace, pod.name)
    backoff = Backoff(first=0.2, most=10.0)
    steps: list[tuple[str, str, dict[str, Any], str]] = [
        (
            "PATCH",
            f"{path}/status",
            {
                "metadata": {"uid": pod.uid},
                "status": {
                    "conditions": [
                        {
                            "type": "DisruptionTarget",
                            "status": "True",
                            "reason": "PreemptionByScheduler",
                            "message": decision.message,
                            "lastTransitionTime": format_time(wall()),
                        }
                    ]
                },
            },
            STRATEGIC,
        ),
        (
            "DELETE",
            path,
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": pod.uid},
            },
            "application/json",
        ),
    ]

    async def evict() -> Outcome:
        try:
            while steps:
                await sender.write(*steps[0])
                del steps[0]
        except Deposed:
            return None
        except Passing as error:
            if isinstance(error, ApiError) and error.status in _NOT_THERE:
                return None
            wait = wait_after(error, backoff)
            if wait is not None and backoff.tries < _ATTEMPTS:
                return wait
            await stay()
            raise
        return None

    async def stay() -> None:
        try:
            feed(Updated(decode_pod_json(await sender.read(path))))
        except (*Passing, InvalidObject):
            return  # its reflector will tell

    return evict
