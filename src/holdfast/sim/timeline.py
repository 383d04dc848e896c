"""What happened, in the order it did."""

import msgspec

CREATED = "Created"
BOUND = "Bound"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
DELETED = "Deleted"
UNSCHEDULABLE = "Unschedulable"
PREEMPTED = "Preempted"


class Entry(msgspec.Struct, frozen=True):
    """One line. What does not apply is left empty, never out."""

    t: float
    object: str
    event: str
    node: str = ""
    reservation: str = ""
    message: str = ""


class Timeline:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(
        self,
        t: float,
        object: str,
        event: str,
        *,
        node: str = "",
        reservation: str = "",
        message: str = "",
    ) -> None:
        self.entries.append(Entry(t, object, event, node, reservation, message))
