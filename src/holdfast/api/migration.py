"""Moving a pod: capacity is reserved first, then the pod is evicted.

Wire-compatible with `scheduling.koordinator.sh/v1alpha1`, phases, conditions and reasons included.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import field

from holdfast.api.meta import Condition, Object, ObjectReference, Struct
from holdfast.api.reservation import ReservationTemplateSpec

DEFAULT_TTL = "5m"


class MigrationMode(StrEnum):
    RESERVATION_FIRST = "ReservationFirst"
    EVICT_DIRECTLY = "EvictDirectly"


class MigrationPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ABORTED = "Aborted"


class MigrationStep(StrEnum):
    """The types of conditions; the last one reached is also the job's `status.status`."""

    RESERVATION_CREATED = "ReservationCreated"
    RESERVATION_SCHEDULED = "ReservationScheduled"
    EVICTION = "Eviction"
    POD_SCHEDULED = "PodScheduled"
    POD_BOUND_RESERVATION = "PodBoundReservation"
    RESERVATION_BOUND = "ReservationBound"
    BOUND_POD_READY = "BoundPodReady"


class MigrationReason(StrEnum):
    TIMEOUT = "Timeout"
    FAILED_CREATE_RESERVATION = "FailedCreateReservation"
    RESERVATION_EXPIRED = "ReservationExpired"
    UNSCHEDULABLE = "Unschedulable"
    FORBIDDEN = "ForbiddenMigratePod"
    INVALID_POD_REF = "InvalidPodRef"
    MISSING_POD = "MissingPod"
    MISSING_RESERVATION = "MissingReservation"
    EVICTING = "Evicting"
    FAILED_EVICT = "FailedEvict"
    EVICT_COMPLETE = "EvictComplete"
    WAIT_FOR_BIND = "WaitForPodBindReservation"
    WAIT_FOR_READY = "WaitForBoundPodReady"


class ReservationOptions(Struct):
    reservation_ref: ObjectReference | None = None
    template: ReservationTemplateSpec | None = None
    preemption_options: dict[str, Any] | None = None


class PodMigrationJobSpec(Struct):
    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    pod_ref: ObjectReference | None = None
    reservation_options: ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class PreemptedReservation(Struct):
    """A reservation for a pod that was preempted for a migration."""

    namespace: str = ""
    name: str = ""
    node_name: str = ""
    phase: str = ""
    preempted_pod_ref: ObjectReference | None = None
    pods_ref: list[ObjectReference] = field(default_factory=list)


class PodMigrationJobStatus(Struct):
    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = field(default_factory=list)
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    preempted_pods_ref: list[ObjectReference] = field(default_factory=list)
    preempted_pods_reservation: list[PreemptedReservation] = field(default_factory=list)


class PodMigrationJob(Object):
    spec: PodMigrationJobSpec = field(default_factory=PodMigrationJobSpec)
    status: PodMigrationJobStatus = field(default_factory=PodMigrationJobStatus)
