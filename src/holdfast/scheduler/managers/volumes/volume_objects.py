"""Claims and volumes as scheduling reads them, and the volumes that a pod class uses."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.errors import QuantityError
from holdfast.api.meta import ObjectReference, ResourceList, controller_of
from holdfast.api.quantity import NANO, parse
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.managers.volumes.csi_translation import Migrated, migrated_inline

FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
WAIT_FOR_POD = "WaitForFirstConsumer"
AVAILABLE = "Available"
LOST = "Lost"
_MOST_BYTES = 2**56


class ClaimKey(NamedTuple):
    """A claim by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimUse(NamedTuple):
    """A volume of a pod with a claim."""

    key: ClaimKey
    ephemeral: bool
    """Whether it is a generic ephemeral volume: the claim is created for the pod and named after it."""


class DiskUse(NamedTuple):
    """An inline in-tree disk of a pod, and how it is mounted."""

    disk: tuple[str, ...]
    read_only: bool


class ReservedUse(NamedTuple):
    """A generic ephemeral volume in the template of a reservation."""

    volume: str
    """Its name in the template."""
    storage_class: str | None


class WantedVolume(NamedTuple):
    """The volumes of pods of a class.

    The claim of a generic ephemeral volume is created with its pod. A reserve pod never exists as an
    object, so for it there is no such claim: what a reservation reserves of such a volume is a place
    among the volumes its driver can attach to the node, and nothing else.
    """

    claims: tuple[ClaimUse, ...]
    disks: tuple[DiskUse, ...]
    inline: tuple[Migrated, ...]
    """In-tree disks that count as volumes of a CSI driver."""
    reserved: tuple[ReservedUse, ...] = ()
    """Of reserve pods: their generic ephemeral volumes."""


NOTHING = WantedVolume((), (), ())


def wanted(cls: PodClass) -> WantedVolume:
    """Reads the volumes of a pod class."""
    if not cls.volumes:
        return NOTHING
    claims: list[ClaimUse] = []
    disks: list[DiskUse] = []
    inline: list[Migrated] = []
    reserved: list[ReservedUse] = []
    for volume in cls.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            claims.append(ClaimUse(ClaimKey(cls.namespace, name), False))
            continue
        if volume.ephemeral is not None and cls.owner_spec_id >= 0:
            template = volume.ephemeral.volume_claim_template
            storage_class = template.spec.storage_class_name if template is not None else None
            reserved.append(ReservedUse(volume.name, storage_class))
            continue
        if volume.ephemeral is not None:
            name = f"{cls.pod.metadata.name}-{volume.name}"
            claims.append(ClaimUse(ClaimKey(cls.namespace, name), True))
            continue
        if (gce := volume.gce_persistent_disk) is not None:
            disks.append(DiskUse(("gce", gce.pd_name), gce.read_only))
        if (aws := volume.aws_elastic_block_store) is not None:
            # These disks cannot be shared even if all pods mount them read-only.
            disks.append(DiskUse(("aws", aws.volume_id), False))
        if (iscsi := volume.iscsi) is not None:
            disks.append(DiskUse(("iscsi", iscsi.iqn), iscsi.read_only))
        if (rbd := volume.rbd) is not None:
            disks += [
                DiskUse(("rbd", monitor, rbd.pool, rbd.image), rbd.read_only)
                for monitor in dict.fromkeys(rbd.monitors)
            ]
        disk = migrated_inline(volume)
        if disk is not None:
            inline.append(disk)
    return WantedVolume(tuple(claims), tuple(disks), tuple(inline), tuple(reserved))


def claim_class(claim: PersistentVolumeClaim) -> str:
    """The storage class of a claim; the deprecated annotation takes precedence."""
    given = claim.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION)
    return given if given is not None else claim.spec.storage_class_name or ""


def default_class(classes: Iterable[StorageClass]) -> str:
    """The default class, for claims that name none; the newest if there are several."""
    defaults = [
        (cls.metadata.creation_timestamp or "", cls.metadata.name)
        for cls in classes
        if cls.metadata.annotations.get(names.DEFAULT_STORAGE_CLASS_ANNOTATION) == "true"
    ]
    newest = max((created for created, _ in defaults), default="")
    return min((name for created, name in defaults if created == newest), default="")


def volume_class(volume: PersistentVolume) -> str:
    given = volume.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION)
    return given if given is not None else volume.spec.storage_class_name


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the binding of the claim is complete. The phase does not matter."""
    return bool(claim.spec.volume_name) and (
        names.BIND_COMPLETED_ANNOTATION in claim.metadata.annotations
    )


def is_for_pod(claim: PersistentVolumeClaim, cls: PodClass) -> bool:
    """Whether the claim of an ephemeral volume belongs to the pod of the class."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == cls.pod.metadata.uid


def references_claim(ref: ObjectReference | None, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume's claimRef is this claim, pre-bound by the user or bound."""
    meta = claim.metadata
    return (
        ref is not None
        and ref.name == meta.name
        and ref.namespace == meta.namespace
        and (not ref.uid or ref.uid == meta.uid)
    )


def reference(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def storage_of(amounts: ResourceList) -> int:
    """The storage in a resource list, in nano units; 0 if it is invalid."""
    try:
        return parse(amounts.get(names.STORAGE, 0))
    except QuantityError:
        return 0


def in_bytes(amounts: ResourceList) -> int:
    """The storage in a resource list, rounded up, and bounded so that percentages of it can be computed
    in 64 bits."""
    return min(-(-storage_of(amounts) // NANO), _MOST_BYTES)


def is_free(volume: PersistentVolume) -> bool:
    """Whether the volume is available to any claim. A volume without a phase is one that no controller
    has seen yet."""
    return (
        volume.spec.claim_ref is None
        and volume.metadata.deletion_timestamp is None
        and volume.status.phase in (AVAILABLE, "")
    )
