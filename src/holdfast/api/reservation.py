"""Reservations, which keep capacity for pods that may not exist yet, and PodMigrationJobs.

Wire-compatible with `scheduling.koordinator.sh/v1alpha1`, phases, conditions and reasons included. The
template is kept raw: it is a pod template, decoded as a pod when the reserve pod is made from it, and
it must come back out of Holdfast as it went in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import field

from holdfast.api.affinity import Taint
from holdfast.api.meta import (
    Condition,
    LabelSelector,
    Object,
    ObjectMeta,
    ObjectReference,
    ResourceList,
    Struct,
)
from holdfast.api.names import RESERVATION_ID


class ReservationPhase(StrEnum):
    PENDING = "Pending"
    AVAILABLE = "Available"
    WAITING = "Waiting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class AllocatePolicy(StrEnum):
    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


DEFAULT_TTL = "24h"
HAS_EXPIRED, NODE_GONE = "reservation has expired", "node {} is gone"
HAD_NO_OWNER = "reservation had no owner for "
"""Messages of the condition Ready of a reservation that ended, all with the reason Expired."""


def unused_for(message: str) -> str:
    """For how long a reservation was unused that was released therefore, by the message of its
    condition Ready; else empty."""
    return message.removeprefix(HAD_NO_OWNER) if message.startswith(HAD_NO_OWNER) else ""


class ReservationControllerReference(Struct):
    """An owner reference that can also name the namespace of the pods it stands for."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None
    namespace: str = ""


class ReservationOwner(Struct):
    """Given fields must all match; a reservation's owners are alternatives."""

    object: ObjectReference | None = None
    controller: ReservationControllerReference | None = None
    label_selector: LabelSelector | None = None


class PreAllocationPolicy(Struct):
    mode: str = ""
    enable_multiple: bool = False


class ReservationSpec(Struct):
    template: dict[str, Any] | None = None
    owners: list[ReservationOwner] = field(default_factory=list)
    ttl: str | None = None
    expires: str | None = None
    pre_allocation: bool = False
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)
    pre_allocation_policy: PreAllocationPolicy | None = None

    @property
    def once(self) -> bool:
        """Whether the first owner ends it; the API's default is yes."""
        return self.allocate_once is not False


class ReservationStatus(Struct):
    phase: str = ""
    conditions: list[Condition] = field(default_factory=list)
    current_owners: list[ObjectReference] = field(default_factory=list)
    node_name: str = ""
    allocatable: ResourceList = field(default_factory=dict)
    allocated: ResourceList = field(default_factory=dict)
    expires: str | None = None
    """When it expires, by its ttl or expires; None if never."""


class Reservation(Object):
    spec: ReservationSpec = field(default_factory=ReservationSpec)
    status: ReservationStatus = field(default_factory=ReservationStatus)


class ReservationTemplateSpec(Struct):
    """The metadata and spec of reservations made for someone, as in a migration job."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ReservationSpec = field(default_factory=ReservationSpec)


class DynamicReservationTemplate(Struct):
    """Value of a pod's `reservation-template` annotation."""

    owners: list[ReservationOwner] = field(default_factory=list)
    recommended_size: ResourceList = field(default_factory=dict)
    roundup: ResourceList = field(default_factory=dict)


class NewReservationRequirement(Struct):
    """Value of a pod's `new-reservation-requirement` annotation."""

    labels: dict[str, str] = field(default_factory=dict)
    resources: ResourceList = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id of the requested reservation."""
        return self.labels.get(RESERVATION_ID, "")


# PodMigrationJob: moves a pod; capacity is reserved first, then the pod is evicted


DEFAULT_MIGRATION_TTL = "5m"


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
