"""What is remembered of a pod.

                 decided            confirmed, or seen on its node
    PENDING ───────────────► ASSUMED ──────────────────────────────► ASSIGNED
       ▲                        │                                        │
       └────────────────────────┘  refused                               │
                                                  ended or deleted ──► forgotten

An assumed pod claims its node like an assigned one. A pod may be assigned without ever having been
pending here: others bind pods too.
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


_HEARD_WITHIN = 2.0
"""Seconds from the creation of an object, which is told in whole seconds, until it is seen."""


class Phase:
    """One of three. A plain class: this is on every pod's path, and `enum.Enum` takes its time."""

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
        """The time that decides its place in the queue; see `queued_since`."""
        self.phase = Phase.PENDING
        self.row = -1
        self.pinned_node: str | None = None
        """The only node the pod may go to, where its class leaves that open."""
        self.gates: tuple[str, ...] = ()
        self.gone = False
        """Whether its object is there no more."""
        self.deletion_pending = False
        """Of a pod without a node: whether it is being deleted, or is about to be to make room."""
        self.attempts = 0
        """How often no node was found for the pod."""
        self.errors = 0
        """How often in a row it was then not bound, by an error that has nothing to do with nodes."""
        self.condition_message = ""
        """The message of the condition the pod was last given."""
        self.wakes_on = 0
        """The kinds of change that can help, as of the last attempt that was looked into."""
        self.rejected_by: Collection[str] = ()
        """The plugins that found no node good enough at the last attempt."""
        self.bind_decided = False
        """Of an assumed pod: whether its bind is under way, rather than waiting in Permit."""
        self.previous_nomination = ""
        """Of an assumed pod: the node that was being cleared for it until then."""
        self.nominated = ""
        """The node that is being cleared for the pod."""
        self.nominated_reservation = ""
        """The uid of the reservation there that the pod will be allocated from, as far as known."""
        self.bound_at: float | None = None
        """Of a member of a job: when it was bound, as far as its condition says so."""
        self.started: float | None = None
        """When it began to run, as far as is known."""
        self.reservation_uid = ""
        """The uid of the reservation whose room it takes, if it is on that reservation's node."""
        self.reservation: ReservationInfo | None = None
        """Of a reserve pod: its reservation."""
        self.being_preempted = False
        """Whether the pod is on its way out to make room for another: from the decision on, until it is
        gone or the decision is refused."""
        self.preempted = False
        """Whether its condition says that it has to make room for another, though it is not deleted."""
        self.evictions_refused = 0
        """How often it was asked to go for others, and stayed."""
        self.ready = False
        """Whether it says that it does its work, on its node."""
        self.created: str | None = None
        """When its object was created, as that says it."""
        self.job: Job | None = None
        """The job it is a member of; None if it is one by itself."""
        self.queue = ""
        """The queue it names itself; what its job says comes first."""
        self.estimate: float | None = None
        """How long it will run, in seconds, as far as it says so."""

    @property
    def since(self) -> float:
        """When it was created, in seconds."""
        try:
            return parse_time(self.created or "")
        except TimeError:
            return self.first_seen

    @property
    def job_name(self) -> str:
        """Of the job it is a member of; empty if it is one by itself."""
        return str(self.job.name) if self.job is not None else ""

    def __repr__(self) -> str:
        return f"<{self.ref} {self.phase.value}>"


def queued_since(created: str | None, first_seen: float) -> float:
    """Since when an object waits its turn: when it was first seen, or when it was created if that is
    longer ago than it takes to hear of it. So a scheduler that is restarted keeps the order."""
    try:
        since = parse_time(created) if created else first_seen
    except TimeError:
        return first_seen
    return since if since + _HEARD_WITHIN < first_seen else first_seen
