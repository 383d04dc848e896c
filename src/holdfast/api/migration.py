"""Moving a pod: first the room, then the move."""

from __future__ import annotations

from typing import Any

from msgspec import field

from holdfast.api.meta import Condition, Object, ObjectReference, Struct
from holdfast.api.reservation import ReservationTemplateSpec


class ReservationOptions(Struct):
    reservation_ref: ObjectReference | None = None
    template: ReservationTemplateSpec | None = None


class PodMigrationJobSpec(Struct):
    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    pod_ref: ObjectReference | None = None
    reservation_options: ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class PodMigrationJobStatus(Struct):
    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = field(default_factory=list)
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    preempted_pods_ref: list[ObjectReference] = field(default_factory=list)


class PodMigrationJob(Object):
    spec: PodMigrationJobSpec = field(default_factory=PodMigrationJobSpec)
    status: PodMigrationJobStatus = field(default_factory=PodMigrationJobStatus)
