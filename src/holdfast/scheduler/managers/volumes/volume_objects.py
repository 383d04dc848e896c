"""What claims, volumes and pods say of each other."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.errors import QuantityError
from holdfast.api.meta import ObjectReference, ResourceList, controller_of
from holdfast.api.quantity import parse
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.managers.volumes.csi_translation import Migrated, migrated_inline

FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
WAIT_FOR_POD = "WaitForFirstConsumer"
AVAILABLE = "Available"
LOST = "Lost"


class ClaimKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimUse(NamedTuple):
    """A volume of a pod that is a claim."""

    key: ClaimKey
    ephemeral: bool
    """The claim is made for this pod, and named after it."""


class DiskUse(NamedTuple):
    """An in-tree disk a pod names itself, and how it is mounted."""

    disk: tuple[str, ...]
    read_only: bool


class ReservedUse(NamedTuple):
    """A generic ephemeral volume in the template of a reservation."""

    volume: str
    """Its name in the template."""
    storage_class: str | None


class WantedVolume(NamedTuple):
    """What pods of a class want of storage.

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
            # Not even reading is shared.
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
    """The storage class a claim asks for; the annotation of old comes first."""
    given = claim.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION)
    return given if given is not None else claim.spec.storage_class_name or ""


def default_class(classes: Iterable[StorageClass]) -> str:
    """The class of claims that name none: the default one, the newest if there are several."""
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
    """Whether claim and volume have found each other for good. The phase does not count."""
    return bool(claim.spec.volume_name) and (
        names.BIND_COMPLETED_ANNOTATION in claim.metadata.annotations
    )


def is_for_pod(claim: PersistentVolumeClaim, cls: PodClass) -> bool:
    """Whether an ephemeral volume's claim was made for the pod of the class."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == cls.pod.metadata.uid


def is_meant_for(ref: ObjectReference | None, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume's reference means this claim, by someone's wish or bound already."""
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
    """How much storage a list names, in nano units; none if it makes no sense."""
    try:
        return parse(amounts.get(names.STORAGE, 0))
    except QuantityError:
        return 0


def is_free(volume: PersistentVolume) -> bool:
    """Whether any claim may have the volume. No phase at all is a volume no controller has seen,
    which the API server does not leave so."""
    return (
        volume.spec.claim_ref is None
        and volume.metadata.deletion_timestamp is None
        and volume.status.phase in (AVAILABLE, "")
    )
