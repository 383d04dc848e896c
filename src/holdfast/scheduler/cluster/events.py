"""Events: the input of the scheduler, and the kinds of change by which they wake up pending pods.

Objects in events are decoded; the time is passed along with each event.
"""

from typing import Any

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    CreateHolder,
    CreateReservation,
    DeallocateClaim,
    Decision,
    DeleteClaim,
    DeleteReservation,
    Evict,
    HoldDevices,
    Preempt,
    PreemptReservation,
    ReserveClaim,
    SetMigrationStatus,
    SetPodGroupStatus,
    SetReservationStatus,
    SpecifyMigration,
)


class Added(msgspec.Struct, frozen=True):
    """An object exists. For a known object this is the same as `Updated`."""

    object: Any


class Updated(msgspec.Struct, frozen=True):
    """An object changed."""

    object: Any


class Deleted(msgspec.Struct, frozen=True):
    """An object was deleted. No effect for an unknown object."""

    object: Any


class Malformed(msgspec.Struct, frozen=True):
    """An object cannot be decoded. Its last valid version no longer counts."""

    kind: str
    namespace: str
    name: str
    uid: str
    error: InvalidObject
    api_version: str = ""
    """Set for kinds that only plugins read."""


class BindConfirmed(msgspec.Struct, frozen=True):
    """A decided bind was carried out."""

    uid: str


class BindRefused(msgspec.Struct, frozen=True):
    """A decided bind was not carried out; the pod is unchanged."""

    uid: str
    message: str
    transient: bool = False
    """Whether the same bind may succeed later: the server failed, or the pod changed meanwhile."""


class WriteRefused(msgspec.Struct, frozen=True):
    """A decision other than a bind was not carried out; it may be decided again. Executors make it by
    `write_refused`, whose result has the type of what was refused."""

    decision: Decision
    message: str
    detail: str = ""
    """What refused it, such as a disruption budget, if the message does not say so."""


class CreateRefused(WriteRefused, frozen=True):
    """A reservation was not created."""

    decision: CreateReservation


class ReservationWriteRefused(WriteRefused, frozen=True):
    """The status, the deletion or the preemption of a reservation was not written."""

    decision: SetReservationStatus | DeleteReservation | PreemptReservation


class AnnotateRefused(WriteRefused, frozen=True):
    """The annotations of a pod were not written."""

    decision: AnnotatePod


class EvictRefused(WriteRefused, frozen=True):
    """A pod was not evicted, because of a disruption budget or an error."""

    decision: Evict


class PreemptRefused(WriteRefused, frozen=True):
    """A victim was not deleted."""

    decision: Preempt


class GroupStatusRefused(WriteRefused, frozen=True):
    """The status of a PodGroup was not written."""

    decision: SetPodGroupStatus


class MigrationWriteRefused(WriteRefused, frozen=True):
    """The status or the spec of a PodMigrationJob was not written."""

    decision: SetMigrationStatus | SpecifyMigration


class ClaimWriteRefused(WriteRefused, frozen=True):
    """A ResourceClaim was not reserved for a pod that waits for its devices, or not deallocated; or one
    with which a reservation holds devices was not written."""

    decision: ReserveClaim | DeallocateClaim | CreateHolder | HoldDevices | DeleteClaim


_REFUSALS: dict[type, type[WriteRefused]] = {
    CreateReservation: CreateRefused,
    SetReservationStatus: ReservationWriteRefused,
    DeleteReservation: ReservationWriteRefused,
    PreemptReservation: ReservationWriteRefused,
    AnnotatePod: AnnotateRefused,
    Evict: EvictRefused,
    Preempt: PreemptRefused,
    SetPodGroupStatus: GroupStatusRefused,
    SetMigrationStatus: MigrationWriteRefused,
    SpecifyMigration: MigrationWriteRefused,
    ReserveClaim: ClaimWriteRefused,
    CreateHolder: ClaimWriteRefused,
    HoldDevices: ClaimWriteRefused,
    DeleteClaim: ClaimWriteRefused,
    DeallocateClaim: ClaimWriteRefused,
}


def write_refused(decision: Decision, message: str, detail: str = "") -> WriteRefused:
    """The event that answers a decision, other than a bind, that was not carried out."""
    return _REFUSALS.get(type(decision), WriteRefused)(decision, message, detail)


Event = Added | Updated | Deleted | Malformed | BindConfirmed | BindRefused | WriteRefused


class Change:
    """The kinds of change that can wake up pending pods (kube-scheduler: cluster events).

    A plugin names the kinds that may make a pod it rejected schedulable (`wakes_on`); no other kind
    wakes that pod up. Plain numbers to be or-ed, because `enum.Flag` is too slow for code that runs for
    every pod."""

    NONE = 0
    NODE_ADDED = 1
    NODE_REMOVED = 2
    NODE_ALLOCATABLE = 4
    NODE_LABELS = 8
    NODE_TAINTS = 16
    """Taints, or `spec.unschedulable`."""
    NODE_OTHER = 32
    """Annotations, images, declared features."""
    POD_PLACED = 64
    """A pod was assigned to a node."""
    POD_LEFT = 128
    """A pod on a node ended, was deleted, or claims less than before."""
    POD_LABELS = 256
    """A pod on a node changed its labels or is being deleted, so selectors may count it differently."""
    OTHER = 512
    """Any other object Holdfast reads itself: namespaces, services, disruption budgets."""
    STORAGE = 1024
    """Any storage object; for plugins that do not name the kinds they depend on."""
    CLAIMS = 2048
    PERSISTENT_VOLUMES = 4096
    STORAGE_CLASSES = 8192
    CSI_NODES = 16384
    CSI_DRIVERS = 32768
    CAPACITIES = 65536
    ATTACHMENTS = 131072
    """Volumes that are attached to nodes, or used by pods there."""
    OBJECTS = 262144
    """An object of a kind that a plugin declares in `reads_objects`. It wakes up pods that a plugin
    with such a declaration rejected, even if its `wakes_on` does not name it."""

    DEVICES = 524288
    """A ResourceClaim lost its allocation, or a resource slice or a taint of devices changed."""
    DEVICE_CLASSES = 1048576

    ANY_NODE = 63
    ANY_POD = POD_PLACED | POD_LEFT | POD_LABELS
    ABOUT_STORAGE = 262144 - 2048
    """The kinds of storage changes: they wake up a pod only if they are about an object its plugins
    watch."""
    ASSUMED_VOLUMES = STORAGE | CLAIMS | PERSISTENT_VOLUMES
    """A volume that was assumed for a claim is free again."""
    ANY = 2097152 - 1
