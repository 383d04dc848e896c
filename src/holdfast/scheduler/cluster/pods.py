"""The record of a pod: its phase, its row, and its scheduling state.

                 decided            confirmed, or seen on its node
    PENDING ───────────────► ASSUMED ──────────────────────────────► ASSIGNED
       ▲                        │                                        │
       └────────────────────────┘  refused                               │
                                                  ended or deleted ──► forgotten

An assumed pod claims its requests on its node like an assigned one. A pod that another scheduler bound
is assigned without having been pending here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from holdfast.api.times import TimeError, parse_time
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.pod_classes import PodClass

if TYPE_CHECKING:
    from holdfast.scheduler.jobs.job import Job
    from holdfast.scheduler.reservations.reservation_info import ReservationInfo


_WATCH_DELAY = 2.0
"""Seconds from an object's creationTimestamp, which has whole seconds, until the watch delivers it."""


class Phase:
    """The phase of a pod in the scheduler. A plain class, because `enum.Enum` is too slow for code that
    runs for every pod."""

    __slots__ = ("value",)

    PENDING: ClassVar[Phase]
    ASSUMED: ClassVar[Phase]
    ASSIGNED: ClassVar[Phase]

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<Phase {self.value}>"


Phase.PENDING, Phase.ASSUMED, Phase.ASSIGNED = Phase("pending"), Phase("assumed"), Phase("assigned")


class PodRecord:
    """A pod, or the reserve pod of a reservation."""

    __slots__ = (
        "attempts",
        "being_preempted",
        "bind_decided",
        "bound_at",
        "cls",
        "condition_message",
        "created",
        "deletion_pending",
        "errors",
        "estimate",
        "evictions_refused",
        "first_seen",
        "gates",
        "gone",
        "job",
        "name",
        "namespace",
        "nominated",
        "nominated_reservation",
        "phase",
        "pinned_node",
        "preempted",
        "previous_nomination",
        "queue",
        "queued_since",
        "ready",
        "ref",
        "rejected_by",
        "reservation",
        "reservation_uid",
        "row",
        "scheduler",
        "started",
        "uid",
        "wakes_on",
    )

    def __init__(
        self,
        ref: ObjectRef,
        cls: PodClass,
        scheduler: str,
        first_seen: float,
    ) -> None:
        self.ref = ref
        self.uid = ref.uid
        self.namespace = ref.namespace
        self.name = ref.name
        self.cls = cls
        self.scheduler = scheduler
        self.first_seen = first_seen
        self.queued_since = first_seen
        """The timestamp by which the queue orders it; see the function `queued_since`."""
        self.phase = Phase.PENDING
        self.row = -1
        """Its row in the node table; -1 while it is pending."""
        self.pinned_node: str | None = None
        """Of a DaemonSet pod: the node its affinity names, which is not part of its class."""
        self.gates: tuple[str, ...] = ()
        """The names of its scheduling gates."""
        self.gone = False
        """Whether its object was deleted, or the pod has ended."""
        self.deletion_pending = False
        """Of a pod without a node: whether it is being deleted, or is a victim of preemption."""
        self.attempts = 0
        """How many scheduling attempts found no node."""
        self.errors = 0
        """How many binds in a row failed, for reasons other than the node."""
        self.condition_message = ""
        """The message of the PodScheduled condition written last."""
        self.wakes_on = 0
        """The kinds of change that may make it schedulable, as of the last attempt with a diagnosis."""
        self.rejected_by: Collection[str] = ()
        """The plugins that rejected nodes in the last attempt."""
        self.bind_decided = False
        """Of an assumed pod: whether its bind is decided; until then it waits in Permit."""
        self.previous_nomination = ""
        """Of an assumed pod: its nominated node before it was assumed."""
        self.nominated = ""
        """The name of its nominated node."""
        self.nominated_reservation = ""
        """The uid of the reservation on its nominated node that it will be allocated from, if known."""
        self.bound_at: float | None = None
        """Of a member of a job: when it was bound, by its PodScheduled condition."""
        self.started: float | None = None
        """Its status.startTime."""
        self.reservation_uid = ""
        """The uid of the reservation it is allocated from; no effect unless both are on one node."""
        self.reservation: ReservationInfo | None = None
        """Of a reserve pod: its reservation."""
        self.being_preempted = False
        """Whether it is a victim: from the decision on, until it is gone or the decision is refused."""
        self.preempted = False
        """Whether it has the condition DisruptionTarget of preemption, and is not being deleted yet."""
        self.evictions_refused = 0
        """How many evictions of it as a victim were refused."""
        self.ready = False
        """Whether its condition Ready is True."""
        self.created: str | None = None
        """Its creationTimestamp."""
        self.job: Job | None = None
        """The job it is a member of; None for a pod without a group."""
        self.queue = ""
        """The queue its annotation names; the queue of its job takes precedence."""
        self.estimate: float | None = None
        """Its own run-time estimate in seconds; see `Jobs.estimate`."""

    @property
    def since(self) -> float:
        """When it was created, or first seen if its object has no valid timestamp."""
        try:
            return parse_time(self.created or "")
        except TimeError:
            return self.first_seen

    @property
    def job_name(self) -> str:
        """The name of its job; empty for a pod without a group."""
        return str(self.job.name) if self.job is not None else ""

    def __repr__(self) -> str:
        return f"<{self.ref} {self.phase.value}>"


def queued_since(created: str | None, first_seen: float) -> float:
    """The timestamp by which the queue orders an object: when it was first seen, or, if it was created
    clearly before that, its creation. So the order is the same after a restart of the scheduler."""
    try:
        since = parse_time(created) if created else first_seen
    except TimeError:
        return first_seen
    return since if since + _WATCH_DELAY < first_seen else first_seen
