"""What the core asks the outside to do. A backend carries these out and feeds back what happened."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.api.jobs import PodGroupStatus, QueueStatus
from holdfast.api.kinds import api_version_of
from holdfast.api.meta import ObjectReference
from holdfast.api.migration import PodMigrationJobStatus
from holdfast.api.names import VOLCANO_API
from holdfast.api.reservation import Reservation, ReservationStatus

_NOTHING: Mapping[str, str] = MappingProxyType({})


class ObjectRef(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = ""
    """Given for kinds that several API groups have; empty where the kind alone says it."""

    def __str__(self) -> str:
        parts = (self.kind, self.namespace, self.name) if self.namespace else (self.kind, self.name)
        return "/".join(parts)

    def reference(self) -> dict[str, str]:
        """As an Event refers to the object: `involvedObject`, or `regarding`."""
        fields = {
            "apiVersion": self.api_version or api_version_of(self.kind),
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {field: value for field, value in fields.items() if value}


class Bind(msgspec.Struct, frozen=True):
    """Bind the pod to the node. Answered by BindConfirmed or BindRefused."""

    pod: ObjectRef
    node: str
    annotations: Mapping[str, str] = _NOTHING
    """Written on the pod together with its node."""


class BindVolume(msgspec.Struct, frozen=True):
    """Set the volume's claimRef to the claim. Unless the volume named the claim before, it also gets
    the annotation pv.kubernetes.io/bound-by-controller: "yes". Comes before the Bind of the pod it is
    for; if it fails, so must that."""

    volume: ObjectRef
    claim: ObjectRef


class SelectNode(msgspec.Struct, frozen=True):
    """Set the claim's annotation volume.kubernetes.io/selected-node, so that a volume is made that can
    be used from the node. Comes before the Bind of the pod it is for; if it fails, so must that."""

    claim: ObjectRef
    node: str


class SetPodScheduled(msgspec.Struct, frozen=True):
    """Set the pod's condition PodScheduled to False."""

    pod: ObjectRef
    reason: str
    message: str


class Nominate(msgspec.Struct, frozen=True):
    """Set the pod's status.nominatedNodeName; an empty name clears it."""

    pod: ObjectRef
    node: str


class Preempt(msgspec.Struct, frozen=True):
    """Delete the pod, gracefully, to make room: first its condition DisruptionTarget, then it. If that
    fails, the pod as it is must be fed again: until then it counts as being on its way out; and then
    WriteRefused, so that the preemptor is tried again."""

    pod: ObjectRef
    preemptor: ObjectRef
    node: str
    message: str
    """The condition's."""
    job: str = ""
    """The pod's job, if it has one: none of its pods is deleted while another that is to go has no
    condition yet."""
    reservation: str = ""
    """The uid of the reservation the pod is allocated from, if any: what is decided of its status is
    written before the pod is deleted."""


class AnnotatePod(msgspec.Struct, frozen=True):
    """Set annotations of the pod; those that are None are removed. Comes before the Bind of the pod.
    Answered by WriteRefused if it could not be written."""

    pod: ObjectRef
    annotations: Mapping[str, str | None]


class Evict(msgspec.Struct, frozen=True):
    """Ask the eviction API to let the pod go, which minds disruption budgets. Answered by WriteRefused
    if it does not, now; otherwise the pod is seen to go."""

    pod: ObjectRef
    message: str
    """Why, for whoever keeps a record."""
    options: Mapping[str, Any] = _NOTHING
    """As DeleteOptions on the wire."""


class CreateReservation(msgspec.Struct, frozen=True):
    """Create the reservation, which has its name. That it is there is seen as an object, and if one of
    the name is there already, nothing is done. Answered by WriteRefused if it could not be
    created."""

    reservation: Reservation


class AnnotateReservation(msgspec.Struct, frozen=True):
    """Set annotations of the reservation; an empty value takes one away."""

    reservation: ObjectRef
    annotations: Mapping[str, str]


class SetReservationStatus(msgspec.Struct, frozen=True):
    """Write the reservation's status as a whole. Where it gives the reservation its node (`binds`),
    answered by BindConfirmed or BindRefused; otherwise by WriteRefused if it could not be written."""

    reservation: ObjectRef
    status: ReservationStatus
    binds: bool = False
    annotations: Mapping[str, str] = _NOTHING
    """Written on the reservation before its status; an empty value takes one away."""


class DeleteReservation(msgspec.Struct, frozen=True):
    """Delete the reservation: its time is over, or nobody wants it any more."""

    reservation: ObjectRef
    message: str


class PreemptReservation(msgspec.Struct, frozen=True):
    """Write on the reservation that it has to go for another, or answer by WriteRefused."""

    reservation: ObjectRef
    preemptor: ObjectRef
    node: str
    labels: Mapping[str, str] = _NOTHING
    annotations: Mapping[str, str] = _NOTHING


class SetMigrationStatus(msgspec.Struct, frozen=True):
    """Write the status of a PodMigrationJob as a whole. Answered by WriteRefused if that fails."""

    job: ObjectRef
    status: PodMigrationJobStatus


class SpecifyMigration(msgspec.Struct, frozen=True):
    """Write into the spec of a PodMigrationJob which pod and which reservation it is about. What is
    None stays as it is. Answered by WriteRefused if that fails."""

    job: ObjectRef
    pod: ObjectReference | None = None
    reservation: ObjectReference | None = None


class SetPodGroupStatus(msgspec.Struct, frozen=True):
    """Write the PodGroup's status as a whole. Answered by WriteRefused if that fails."""

    group: ObjectRef
    api_version: str
    status: PodGroupStatus


class SetQueueStatus(msgspec.Struct, frozen=True):
    """Write the queue's status as a whole. Answered by WriteRefused if that fails."""

    queue: ObjectRef
    status: QueueStatus
    api_version: str = VOLCANO_API


class Emit(msgspec.Struct, frozen=True):
    """Record a Kubernetes Event about an object."""

    about: ObjectRef
    type: str
    reason: str
    message: str
    action: str = ""


Decision = (
    Bind
    | BindVolume
    | SelectNode
    | SetPodScheduled
    | Nominate
    | Preempt
    | AnnotatePod
    | Evict
    | CreateReservation
    | AnnotateReservation
    | SetReservationStatus
    | DeleteReservation
    | PreemptReservation
    | SetPodGroupStatus
    | SetQueueStatus
    | SetMigrationStatus
    | SpecifyMigration
    | Emit
)


def preemption(
    victim: ObjectRef,
    preemptor: ObjectRef,
    node: str,
    scheduler: str,
    job: str = "",
    reservation: str = "",
) -> list[Decision]:
    """A pod, of that job and allocated from that reservation if any, has to go for another, and is told
    so."""
    condition = f"{scheduler}: preempting to accommodate a higher priority pod"
    text = f"Preempted by pod {preemptor.uid} on node {node}"
    return [
        Preempt(victim, preemptor, node, condition, job, reservation),
        Emit(victim, "Normal", "Preempted", text, "Preempting"),
    ]


# Decisions as they are written, where every backend writes them alike.


def specification(decision: SpecifyMigration) -> dict[str, Any]:
    """What changes in the job's spec, as a merge patch."""
    changes: dict[str, Any] = {}
    if decision.pod is not None:
        changes["podRef"] = msgspec.to_builtins(decision.pod)
    if decision.reservation is not None:
        reference = msgspec.to_builtins(decision.reservation)
        changes["reservationOptions"] = {"reservationRef": reference}
    return changes
