"""Decisions: the output of the scheduler, writes that an executor carries out.

An executor (`kube`, `local`, `sim`) feeds the result back as an event; see `events`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.api.jobs import PodGroupStatus, QueueStatus
from holdfast.api.kinds import api_version_of
from holdfast.api.meta import ObjectReference
from holdfast.api.names import BOUND_BY_CONTROLLER_ANNOTATION, SELECTED_NODE_ANNOTATION, VOLCANO_API
from holdfast.api.pod import ContainerExtendedResourceRequest
from holdfast.api.pod_groups import CorePodGroupStatus
from holdfast.api.reservation import PodMigrationJobStatus, Reservation, ReservationStatus
from holdfast.api.reservation_schedules import ReservationScheduleStatus
from holdfast.api.resource_claims import AllocationResult, ResourceClaim

_NOTHING: Mapping[str, str] = MappingProxyType({})


class ObjectRef(msgspec.Struct, frozen=True):
    """A reference to an object."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = ""
    """Set for kinds that occur in several API groups; empty where the kind is unique."""

    def __str__(self) -> str:
        parts = (self.kind, self.namespace, self.name) if self.namespace else (self.kind, self.name)
        return "/".join(parts)

    def reference(self) -> dict[str, str]:
        """The reference in an Event: `involvedObject`, or `regarding`."""
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
    keeps_place: bool = False
    """Whether other pods are bound with it, which need it: while a failed bind is retried, the pod has
    the node as its nominatedNodeName, so that a scheduler that takes over knows its place."""


class BindVolume(msgspec.Struct, frozen=True):
    """Set the volume's claimRef to the claim. Unless the volume named the claim before, it also gets
    the annotation pv.kubernetes.io/bound-by-controller: "yes". Precedes the Bind of the pod that uses
    the claim; if it fails, the Bind must fail too."""

    volume: ObjectRef
    claim: ObjectRef


class SelectNode(msgspec.Struct, frozen=True):
    """Set the claim's annotation volume.kubernetes.io/selected-node, so that a volume is provisioned
    for the node. Precedes the Bind of the pod that uses the claim; if it fails, the Bind must fail
    too."""

    claim: ObjectRef
    node: str


class ReserveClaim(msgspec.Struct, frozen=True):
    """Reserve a ResourceClaim for the pod: add the pod to its `reservedFor` and, if it is not
    allocated, the finalizer and this allocation. Precedes the Bind of the pod; if it fails, the Bind
    must fail too. Answered by WriteRefused if it fails and `waits` is set."""

    claim: ObjectRef
    pod: ObjectRef
    allocation: AllocationResult | None = None
    """None if the claim is allocated already. A claim that has this allocation meanwhile is accepted:
    several pods that share a claim write the same one."""
    waits: bool = False
    """Whether the Bind is decided later, when the devices are ready (binding conditions)."""
    group: ObjectRef | None = None
    """The PodGroup that shares the claim, if one does: it is reserved for the group, not the pod."""
    expected: AllocationResult | None = None
    """The allocation that the claim has already. With another one it may be of another node."""

    @property
    def consumer(self) -> ObjectRef:
        return self.pod if self.group is None else self.group


class CreateClaim(msgspec.Struct, frozen=True):
    """Create a ResourceClaim for a pod's extended resources with its allocation, reserve it for the pod
    and set the pod's `extendedResourceClaimStatus`. Precedes the Bind of the pod; if it fails, the Bind
    must fail too."""

    claim: ResourceClaim
    allocation: AllocationResult
    pod: ObjectRef
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    """Which request of the claim serves which resource of which container."""


class CreateHolder(msgspec.Struct, frozen=True):
    """Create the ResourceClaim with which a reservation holds devices, or bring the one of this name in
    line that the reservation owns. Answered by WriteRefused if it fails, unless `before_bind` is
    set."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    """The devices of it that nobody else uses; None if all are in use."""
    reservation: ObjectRef
    before_bind: bool = False
    """Whether the SetReservationStatus that assigns the reservation's node follows, and must fail if
    this does."""


class HoldDevices(msgspec.Struct, frozen=True):
    """Replace the allocation of a ResourceClaim with which a reservation holds devices: clear it, then
    write the new one, if any. Precedes the Bind of the pod whose claim gets the devices that are
    missing in it. Answered by WriteRefused if it fails, unless `before_bind` is set."""

    claim: ObjectRef
    allocation: AllocationResult | None
    before_bind: bool = False
    """Whether a Bind follows that depends on it."""


class UnreserveClaim(msgspec.Struct, frozen=True):
    """Remove the pod from the `reservedFor` of a ResourceClaim: it will not be bound after all."""

    claim: ObjectRef
    pod: ObjectRef


class DeallocateClaim(msgspec.Struct, frozen=True):
    """Clear the allocation of a ResourceClaim, unless it is reserved for others than the pod and its
    PodGroup, so that other devices can be allocated. Answered by WriteRefused if it fails."""

    claim: ObjectRef
    pod: ObjectRef
    group: ObjectRef | None = None
    """The PodGroup that shares the claim and of which no pod has a node."""

    def is_consumer(self, uid: str) -> bool:
        return uid == self.pod.uid or (self.group is not None and uid == self.group.uid)


class DeleteClaim(msgspec.Struct, frozen=True):
    """Delete a ResourceClaim that the scheduler created, with its finalizer. Answered by WriteRefused
    if it fails."""

    claim: ObjectRef
    reservation: str = ""
    """The uid of the reservation that held devices with it, if one did."""


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
    """Set the victim's condition DisruptionTarget, then delete it gracefully. If that fails, the
    executor feeds the pod's current object, because until then the pod counts as being preempted, and
    then WriteRefused, so that the preemptor is requeued."""

    pod: ObjectRef
    preemptor: ObjectRef
    node: str
    message: str
    """The message of the condition."""
    job: str = ""
    """The victim's job, if it has one. No victim of a job is deleted before all victims of the job have
    their condition."""
    reservation: str = ""
    """The uid of the reservation the victim is allocated from, if any. A decided status of that
    reservation is written before the pod is deleted."""


class AnnotatePod(msgspec.Struct, frozen=True):
    """Set annotations of the pod; an annotation whose value is None is removed. Precedes the Bind of
    the pod. Answered by WriteRefused if it fails."""

    pod: ObjectRef
    annotations: Mapping[str, str | None]


class Evict(msgspec.Struct, frozen=True):
    """Evict the pod through the eviction API, which respects disruption budgets. Answered by
    WriteRefused if the API refuses; if it succeeds, the deletion of the pod is seen as an event."""

    pod: ObjectRef
    message: str
    """The reason, for a log or audit."""
    options: Mapping[str, Any] = _NOTHING
    """DeleteOptions, as in JSON."""
    event: "Emit | None" = None
    """Recorded if the eviction is accepted."""


class CreateReservation(msgspec.Struct, frozen=True):
    """Create the reservation, unless one of its name exists. The created object is seen as an event.
    Answered by WriteRefused if it fails."""

    reservation: Reservation


class AnnotateReservation(msgspec.Struct, frozen=True):
    """Set annotations of the reservation; an annotation whose value is empty is removed."""

    reservation: ObjectRef
    annotations: Mapping[str, str]


class SetReservationStatus(msgspec.Struct, frozen=True):
    """Replace the reservation's status. If that sets the reservation's node (`binds`), it is answered
    by BindConfirmed or BindRefused; otherwise by WriteRefused if it fails."""

    reservation: ObjectRef
    status: ReservationStatus
    binds: bool = False
    annotations: Mapping[str, str] = _NOTHING
    """Written on the reservation before its status; an annotation whose value is empty is removed."""


class DeleteReservation(msgspec.Struct, frozen=True):
    """Delete the reservation: it has expired, or is no longer needed."""

    reservation: ObjectRef
    message: str


class PreemptReservation(msgspec.Struct, frozen=True):
    """Mark the reservation as preempted, by labels and annotations. Answered by WriteRefused if it
    fails."""

    reservation: ObjectRef
    preemptor: ObjectRef
    node: str
    labels: Mapping[str, str] = _NOTHING
    annotations: Mapping[str, str] = _NOTHING


class SetMigrationStatus(msgspec.Struct, frozen=True):
    """Replace the status of a PodMigrationJob. Answered by WriteRefused if it fails."""

    job: ObjectRef
    status: PodMigrationJobStatus


class SpecifyMigration(msgspec.Struct, frozen=True):
    """Set the pod and the reservation in the spec of a PodMigrationJob, where None leaves a field
    unchanged, and annotations. Answered by WriteRefused if it fails."""

    job: ObjectRef
    pod: ObjectReference | None = None
    reservation: ObjectReference | None = None
    annotations: Mapping[str, str] = {}


class SetPodGroupStatus(msgspec.Struct, frozen=True):
    """Replace the PodGroup's status; of one of `scheduling.k8s.io` the conditions only, because the
    names of its claims are written by the claim controller. Answered by WriteRefused if it fails."""

    group: ObjectRef
    api_version: str
    status: PodGroupStatus

    @property
    def is_part(self) -> bool:
        return isinstance(self.status, CorePodGroupStatus)

    def written(self) -> dict[str, Any]:
        """The status, or the part of it that is replaced."""
        status: dict[str, Any] = msgspec.to_builtins(self.status)
        return {"conditions": status.get("conditions", [])} if self.is_part else status


class SetQueueStatus(msgspec.Struct, frozen=True):
    """Replace the queue's status. Answered by WriteRefused if it fails."""

    queue: ObjectRef
    status: QueueStatus
    api_version: str = VOLCANO_API


class SetScheduleStatus(msgspec.Struct, frozen=True):
    """Replace the status of a ReservationSchedule."""

    schedule: ObjectRef
    status: ReservationScheduleStatus


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
    | ReserveClaim
    | CreateClaim
    | CreateHolder
    | HoldDevices
    | UnreserveClaim
    | DeallocateClaim
    | DeleteClaim
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
    | SetScheduleStatus
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
    """The decisions that preempt a victim: its deletion and its event. `job` and `reservation` are the
    victim's."""
    condition = f"{scheduler}: preempting to accommodate a higher priority pod"
    text = f"Preempted by pod {preemptor.uid} on node {node}"
    return [
        Preempt(victim, preemptor, node, condition, job, reservation),
        Emit(victim, "Normal", "Preempted", text, "Preempting"),
    ]


def for_group(decision: Decision, group: ObjectRef, scheduler: str) -> Decision:
    """The decision about a victim, in the words for a preemptor that is a PodGroup."""
    if isinstance(decision, Preempt):
        condition = f"{scheduler}: preempting to accommodate a higher priority podgroup"
        return msgspec.structs.replace(decision, message=condition)
    if isinstance(decision, Emit) and decision.reason == "Preempted":
        text = f"Preempted by podgroup {group.uid} on node cluster"
        return msgspec.structs.replace(decision, message=text)
    return decision


# What a decision writes. Every executor writes this, each in its own way: as a patch it sends or as a
# new version of an object it stores.


def pod_scheduled_condition(decision: SetPodScheduled) -> dict[str, Any]:
    """The condition, without its times."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": decision.reason,
        "message": decision.message,
    }


def disruption_condition(decision: Preempt) -> dict[str, Any]:
    """The condition of the victim, without its times."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": decision.message,
    }


def volume_patch(decision: BindVolume, is_referenced: bool) -> dict[str, Any]:
    """The merge patch of the volume. `is_referenced`: whether it already has a claimRef."""
    claim = decision.claim
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
    }
    patch: dict[str, Any] = {"spec": {"claimRef": reference}}
    if not is_referenced:
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}}
    return patch


def extended_resource_claim_status(name: str, decision: CreateClaim) -> dict[str, Any]:
    """The part of the pod's status about the claim that serves its extended resources."""
    mappings = [msgspec.to_builtins(each) for each in decision.mappings]
    return {"extendedResourceClaimStatus": {"requestMappings": mappings, "resourceClaimName": name}}


def metadata_patch(
    decision: SelectNode
    | AnnotatePod
    | AnnotateReservation
    | SetReservationStatus
    | PreemptReservation,
) -> dict[str, Any]:
    """The merge patch of the object's metadata: labels and annotations. None removes one."""
    match decision:
        case SelectNode():
            return {"annotations": {SELECTED_NODE_ANNOTATION: decision.node}}
        case AnnotatePod():
            return {"annotations": dict(decision.annotations)}
        case PreemptReservation():
            return {"labels": dict(decision.labels), "annotations": dict(decision.annotations)}
        case AnnotateReservation() | SetReservationStatus():
            return {"annotations": {key: value or None for key, value in decision.annotations.items()}}


def specification(decision: SpecifyMigration) -> dict[str, Any]:
    """The merge patch of the job, without its identity."""
    changes: dict[str, Any] = {}
    if decision.pod is not None:
        changes["podRef"] = msgspec.to_builtins(decision.pod)
    if decision.reservation is not None:
        reference = msgspec.to_builtins(decision.reservation)
        changes["reservationOptions"] = {"reservationRef": reference}
    return {"metadata": {"annotations": dict(decision.annotations)}, "spec": changes}
