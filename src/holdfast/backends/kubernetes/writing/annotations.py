"""What is said on pods beside their status: the reservation asked for on their behalf, and errors."""

from collections.abc import Callable

from holdfast.backends.kubernetes.http.client import STRATEGIC
from holdfast.backends.kubernetes.http.paths import POD, path_of
from holdfast.backends.kubernetes.writing.persisting import persistent
from holdfast.backends.kubernetes.writing.queue import Job
from holdfast.backends.kubernetes.writing.sender import Sender
from holdfast.core.decisions import AnnotatePod
from holdfast.core.events import Event, WriteRefused


def annotation_job(sender: Sender, decision: AnnotatePod, feed: Callable[[Event], None]) -> Job:
    pod = decision.pod
    # The uid makes the server refuse if another pod has the name by now.
    patch = {"metadata": {"uid": pod.uid, "annotations": dict(decision.annotations)}}
    return persistent(
        sender,
        lambda: sender.write("PATCH", path_of(POD, pod.namespace, pod.name), patch, STRATEGIC),
        lambda error: feed(WriteRefused(decision, str(error))),
    )
