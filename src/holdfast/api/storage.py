"""The volumes of a pod, as far as they decide where it may run."""

from __future__ import annotations

from typing import Any

from msgspec import field

from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.meta import (
    Condition,
    LabelSelector,
    Object,
    ObjectMeta,
    ObjectReference,
    ResourceList,
    Struct,
)
from holdfast.api.quantity import Quantity


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


class ImageVolume(Struct):
    reference: str = ""


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
    image: ImageVolume | None = None


# Claims, volumes, and CSI objects of nodes.


class PersistentVolumeClaimStatus(Struct):
    phase: str = ""
    access_modes: list[str] = field(default_factory=list)
    capacity: ResourceList = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class VolumeNodeAffinity(Struct):
    required: NodeSelector | None = None


class LocalVolume(Struct):
    path: str = ""


class PersistentVolumeSpec(Struct):
    capacity: ResourceList = field(default_factory=dict)
    access_modes: list[str] = field(default_factory=list)
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    persistent_volume_reclaim_policy: str = ""
    csi: CSIVolume | None = None
    local: LocalVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    iscsi: ISCSIVolume | None = None
    rbd: RBDVolume | None = None
    azure_disk: AzureDisk | None = None


class PersistentVolumeStatus(Struct):
    phase: str = ""
    reason: str = ""
    message: str = ""


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class TopologySelectorLabelRequirement(Struct):
    key: str = ""
    values: list[str] = field(default_factory=list)


class TopologySelectorTerm(Struct):
    match_label_expressions: list[TopologySelectorLabelRequirement] = field(default_factory=list)


class StorageClass(Object):
    provisioner: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None
    allow_volume_expansion: bool | None = None
    allowed_topologies: list[TopologySelectorTerm] = field(default_factory=list)

    def allowed_terms(self) -> list[NodeSelectorTerm]:
        """The allowed topologies as terms of a node selector; none if volumes are made anywhere."""
        return [
            NodeSelectorTerm(
                match_expressions=[
                    NodeSelectorRequirement(key=e.key, operator="In", values=e.values)
                    for e in term.match_label_expressions
                ]
            )
            for term in self.allowed_topologies
        ]


class VolumeNodeResources(Struct):
    count: int | None = None


class CSINodeDriver(Struct):
    name: str = ""
    node_id: str = field(default="", name="nodeID")
    topology_keys: list[str] = field(default_factory=list)
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Struct):
    drivers: list[CSINodeDriver] = field(default_factory=list)


class CSINode(Object):
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(Struct):
    attach_required: bool | None = None
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None
    """Whether pods with volumes of the driver fit only nodes where it is installed."""


class CSIDriver(Object):
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class VolumeAttachmentSource(Struct):
    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(Struct):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachmentStatus(Struct):
    attached: bool = False


class VolumeAttachment(Object):
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
    status: VolumeAttachmentStatus = field(default_factory=VolumeAttachmentStatus)


class CSIStorageCapacity(Object):
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
