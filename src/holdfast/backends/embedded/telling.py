"""The names of what happens to objects, for whoever keeps a record of it."""

from typing import Protocol

from holdfast.store.objects import Key

CREATED = "Created"
BOUND = "Bound"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
DELETED = "Deleted"
UNSCHEDULABLE = "Unschedulable"
PREEMPTED = "Preempted"
EVICTED = "Evicted"
AVAILABLE = "Available"
WAITING = "Waiting"
COLLECTED = "Collected"


class Tell(Protocol):
    def __call__(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None: ...


def silent(key: Key, event: str, *, node: str = "", reservation: str = "", message: str = "") -> None:
    """For where no record is kept."""
