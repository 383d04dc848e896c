"""The volumes of a pod, as far as they decide where it may run."""

from __future__ import annotations

from typing import Any

from msgspec import field

from holdfast.api.meta import LabelSelector, ObjectMeta, ResourceList, Struct


class VolumeResourceRequirements(Struct):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class PersistentVolumeClaimSpec(Struct):
    access_modes: list[str] = field(default_factory=list)
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = field(default_factory=VolumeResourceRequirements)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    data_source: dict[str, Any] | None = None


class PersistentVolumeClaimTemplate(Struct):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)


class PersistentVolumeClaimVolumeSource(Struct):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Struct):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class GCEPersistentDisk(Struct):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Struct):
    volume_id: str = field(default="", name="volumeID")
    read_only: bool = False


class ISCSIVolume(Struct):
    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    read_only: bool = False


class RBDVolume(Struct):
    monitors: list[str] = field(default_factory=list)
    pool: str = ""
    image: str = ""
    read_only: bool = False


class AzureDisk(Struct):
    disk_name: str = ""
    disk_uri: str = field(default="", name="diskURI")
    kind: str | None = None
    read_only: bool = False


class CSIVolume(Struct):
    """Inline in a pod, or the source of a persistent volume (then with a handle)."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    volume_attributes: dict[str, str] = field(default_factory=dict)


class Volume(Struct):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    iscsi: ISCSIVolume | None = None
    rbd: RBDVolume | None = None
    azure_disk: AzureDisk | None = None
    csi: CSIVolume | None = None
