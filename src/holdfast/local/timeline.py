"""The timeline of a cluster: what happened to objects, in order; and the names of its events."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.api.raw_objects import Key, Raw
from holdfast.local.clock import LocalClock
from holdfast.scheduler.actions.reserve import RESERVED, STARVING
from holdfast.scheduler.cluster.records import FINISHED
from holdfast.scheduler.framework.gang_permit import READY
from holdfast.scheduler.reservations.calendar import DRAINING, PLANNED

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
ABORTED = "Aborted"
JOB_EVENTS = (STARVING, RESERVED, READY)
"""Events about pod groups and pods that are in the timeline, too."""
EVENTS = (
    CREATED,
    BOUND,
    RUNNING,
    SUCCEEDED,
    FAILED,
    DELETED,
    UNSCHEDULABLE,
    PREEMPTED,
    EVICTED,
    AVAILABLE,
    WAITING,
    COLLECTED,
    ABORTED,
    PLANNED,
    DRAINING,
    *JOB_EVENTS,
)
"""All of them."""


class TimelineRecorder(Protocol):
    def __call__(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None: ...


def no_timeline(
    key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
) -> None:
    """A TimelineRecorder that records nothing."""


def deletion_event(reservation: Raw) -> str:
    """The timeline event of a reservation's deletion."""
    ended = (reservation.get("status") or {}).get("phase") in FINISHED
    return COLLECTED if ended else DELETED


class TimelineEntry(msgspec.Struct, frozen=True):
    """One entry. Fields that do not apply are empty, never omitted."""

    t: float
    object: str
    event: str
    node: str = ""
    reservation: str = ""
    message: str = ""


class Timeline:
    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self.entries: list[TimelineEntry] = []

    def record(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None:
        self.entries.append(TimelineEntry(self._clock.t, str(key), event, node, reservation, message))
