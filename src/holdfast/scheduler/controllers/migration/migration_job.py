"""One migration job: its object, its progress, and its writes that are in progress."""

from typing import Final

import msgspec

from holdfast.api import names
from holdfast.api.errors import DurationError, TimeError
from holdfast.api.meta import Condition, ObjectReference, condition
from holdfast.api.reservation import (
    DEFAULT_MIGRATION_TTL,
    MigrationMode,
    MigrationPhase,
    MigrationStep,
    PodMigrationJob,
    PodMigrationJobStatus,
)
from holdfast.api.times import format_time, parse_duration, parse_time
from holdfast.scheduler.cluster.decisions import ObjectRef

ENDED: Final = (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED, MigrationPhase.ABORTED)
RETRY_FIRST, RETRY_MOST = 1.0, 10.0
"""Back-off in seconds after a refused write; it doubles up to the second value."""


class Attempt:
    """A write that is tried at most once at a time, and after a refusal with back-off."""

    __slots__ = ("due", "tries", "under_way")

    def __init__(self) -> None:
        self.under_way = False
        self.tries = 0
        self.due: float | None = None
        """When it can be tried again after a refusal."""

    def may_begin(self, now: float) -> bool:
        return not self.under_way and (self.due is None or self.due <= now)

    def begin(self) -> None:
        self.under_way = True
        self.due = None

    def done(self) -> None:
        self.under_way = False
        self.tries = 0
        self.due = None

    def refused(self, now: float) -> None:
        self.under_way = False
        self.due = now + min(RETRY_FIRST * 2**self.tries, RETRY_MOST)
        self.tries += 1


class Move:
    """The state of one job."""

    def __init__(self, job: PodMigrationJob, now: float) -> None:
        meta = job.metadata
        self.job = job
        self.ref = ObjectRef("PodMigrationJob", "", meta.name, meta.uid)
        try:
            self.created = parse_time(meta.creation_timestamp or "")
        except TimeError:
            self.created = now
        self.status = job.status
        """The status as decided; the object's follows when it is written."""
        self.last_status: PodMigrationJobStatus | None = None
        """The status last written, until the watch delivers it."""
        self.pod = job.spec.pod_ref.uid if job.spec.pod_ref is not None else ""
        """The uid of the pod to move, once it is known."""
        self.pod_ref: ObjectRef | None = None
        """The pod to move, once it was seen."""
        self.old_node = ""
        """The node where it was last seen."""
        self.specified: tuple[str, ...] = ()
        """The uids of the pod, the reservation and the earlier owners that were last written into the
        object."""
        self.reservation_uid = ""
        """The uid of the reservation, once it was seen."""
        self.reservation_dropped = False
        self.writing = Attempt()
        self.creation = Attempt()
        self.eviction = Attempt()
        self.budgets = -1
        """The version of the PodDisruptionBudgets when an eviction was last tried."""
        self.earlier_owners = self.recorded_owners
        """The uids of pods that were allocated from the reservation before the pod was evicted."""
        self.eviction_reported = False
        self.deleted = False
        """Whether the job's object was deleted."""

    @property
    def name(self) -> str:
        return self.ref.name

    @property
    def evicts_directly(self) -> bool:
        return self.job.spec.mode == MigrationMode.EVICT_DIRECTLY

    @property
    def ended(self) -> bool:
        return self.status.phase in ENDED

    @property
    def pod_name(self) -> str:
        """The pod's name in messages."""
        reference = self.job.spec.pod_ref
        if self.pod_ref is not None:
            return f'"{self.pod_ref.namespace}/{self.pod_ref.name}"'
        if reference is None:
            return '"/"'
        return f'"{reference.namespace or names.DEFAULT_NAMESPACE}/{reference.name or reference.uid}"'

    @property
    def deadline(self) -> float | None:
        """When the job fails by its TTL; None for never."""
        try:
            ttl = parse_duration(
                self.job.spec.ttl if self.job.spec.ttl is not None else DEFAULT_MIGRATION_TTL
            )
        except DurationError:
            ttl = parse_duration(DEFAULT_MIGRATION_TTL)
        return self.created + ttl if ttl > 0 else None

    @property
    def reservation_ref(self) -> ObjectReference | None:
        """The reservation its spec names."""
        options = self.job.spec.reservation_options
        reference = options.reservation_ref if options is not None else None
        return reference if reference is not None and reference.name else None

    @property
    def recorded_owners(self) -> frozenset[str]:
        """The earlier owners that the object names."""
        text = self.job.metadata.annotations.get(names.EARLIER_OWNERS, "")
        return frozenset(text.split(",") if text else ())

    @property
    def why(self) -> str:
        annotations = self.job.metadata.annotations
        return annotations.get(names.EVICT_REASON) or annotations.get(names.EVICT_TRIGGER) or "NotSet"

    def next_timer(self, after: float) -> float | None:
        times: tuple[float | None, ...] = (self.writing.due,)
        if not (self.ended or self.job.spec.paused):
            times = (*times, self.deadline, self.creation.due, self.eviction.due)
        return min((time for time in times if time is not None and time > after), default=None)

    # Conditions

    def condition(self, step: MigrationStep) -> Condition | None:
        return condition(self.status.conditions, step)

    def is_true(self, step: MigrationStep) -> bool:
        found = self.condition(step)
        return found is not None and found.status == "True"

    def set_condition(
        self, step: MigrationStep, true: bool, now: float, reason: str = "", message: str = ""
    ) -> bool:
        """Sets the condition of a step and makes it the job's current step. Returns whether it
        changed."""
        if not self.note(step, true, now, reason, message):
            return False
        self.status = msgspec.structs.replace(
            self.status, status=str(step), reason=str(reason), message=message
        )
        return True

    def note(
        self, step: MigrationStep, true: bool, now: float, reason: str = "", message: str = ""
    ) -> bool:
        """Sets the condition of a step only. Returns whether it changed."""
        known, status = self.condition(step), "True" if true else "False"
        if known is not None and (known.status, known.reason, known.message) == (
            status,
            reason,
            message,
        ):
            return False
        since = known.last_transition_time if known is not None and known.status == status else None
        new = Condition(
            type=str(step),
            status=status,
            reason=str(reason),
            message=message,
            last_transition_time=since or format_time(now),
        )
        conditions = self.status.conditions
        if known is None:
            conditions = [*conditions, new]
        else:
            conditions = [new if each.type == step else each for each in conditions]
        self.status = msgspec.structs.replace(self.status, conditions=conditions)
        return True
