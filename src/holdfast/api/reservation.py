"""Reservations: capacity reserved for pods that may not exist yet.

Wire-compatible with `scheduling.koordinator.sh/v1alpha1`. The template is kept raw: it is a
pod template, decoded as a pod when the reserve pod is made from it, and it must come back out
of Holdfast as it went in.
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
