"""What is said on pods beside their status: the reservation asked for on their behalf, and errors."""

from collections.abc import Callable

from holdfast.backends.kubernetes.errors import Deposed
from holdfast.backends.kubernetes.http.backoff import Backoff
from holdfast.backends.kubernetes.http.client import STRATEGIC
from holdfast.backends.kubernetes.http.paths import POD, path_of
from holdfast.backends.kubernetes.writing.queue import Job, Outcome
from holdfast.backends.kubernetes.writing.sender import Passing, Sender, wait_after
from holdfast.core.decisions import AnnotatePod
from holdfast.core.events import Event, WriteRefused

_ATTEMPTS = 8


def annotation_job(sender: Sender, decision: AnnotatePod, feed: Callable[[Event], None]) -> Job:
    pod = decision.pod
    backoff = Backoff(first=0.2, most=10.0)
    # The uid makes the server refuse if another pod has the name by now.
    patch = {"metadata": {"uid": pod.uid, "annotations": dict(decision.annotations)}}

    async def write() -> Outcome:
        try:
            await sender.write("PATCH", path_of(POD, pod.namespace, pod.name), patch, STRATEGIC)
        except Deposed:
            return None
        except Passing as error:
            wait = wait_after(error, backoff)
            if wait is not None and backoff.tries < _ATTEMPTS:
                return wait
            feed(WriteRefused(pod.uid, str(error)))
        return None

    return write
