"""CSI translation: in-tree volumes as volumes of the CSI drivers that replaced their plugins.

Only names are translated: the driver and handle, by which attached volumes are counted, and the zones
of the node affinity. A volume whose name cannot be translated counts for no driver.
"""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.api import names
from holdfast.api.affinity import NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.storage import PersistentVolume, PersistentVolumeSpec, Volume

AWS = "kubernetes.io/aws-ebs"
GCE = "kubernetes.io/gce-pd"
AZURE = "kubernetes.io/azure-disk"
CINDER = "kubernetes.io/cinder"

DRIVERS = {
    AWS: "ebs.csi.aws.com",
    GCE: "pd.csi.storage.gke.io",
    AZURE: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
}
"""The in-tree plugins that are migrated on every node, and their CSI drivers."""

NOT_COUNTED = frozenset(
    ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume", "kubernetes.io/portworx-volume")
)
"""In-tree plugins whose volumes do not count towards attach limits."""

_ZONE_KEYS = {AWS: "topology.ebs.csi.aws.com/zone", GCE: "topology.gke.io/zone"}
_ZONES = "__"
"""Separates the zones in a label value."""
_UNSPECIFIED = "UNSPECIFIED"
_EBS_VOLUME = re.compile(r"vol-[^/]*")


class Migrated(NamedTuple):
    """A volume by CSI driver and handle."""

    driver: str
    handle: str


def migrated_inline(volume: Volume) -> Migrated | None:
    """An inline in-tree volume of a pod, translated; None if it is not one."""
    if (gce := volume.gce_persistent_disk) is not None:
        return Migrated(DRIVERS[GCE], _gce_handle("zones", _UNSPECIFIED, gce.pd_name))
    return _by_name(volume)


def plugin_of(spec: PersistentVolumeSpec) -> str:
    """The in-tree plugin of a volume; empty if it has none that is migrated."""
    if spec.gce_persistent_disk is not None:
        return GCE
    if spec.aws_elastic_block_store is not None:
        return AWS
    return AZURE if spec.azure_disk is not None else ""


def migrated_volume(volume: PersistentVolume) -> Migrated | None:
    """An in-tree persistent volume, translated; None if it is not one, or is invalid."""
    gce = volume.spec.gce_persistent_disk
    if gce is None:
        return _by_name(volume.spec)
    labels = volume.metadata.labels
    zones = (labels.get(names.OLD_ZONE_LABEL) or labels.get(names.ZONE_LABEL, "")).split(_ZONES)
    if len(zones) == 1:
        return Migrated(DRIVERS[GCE], _gce_handle("zones", zones[0] or _UNSPECIFIED, gce.pd_name))
    regions = {zone.rpartition("-")[0] for zone in zones if zone.count("-") == 2}
    if len(regions) != 1 or not all(zone.count("-") == 2 for zone in zones):
        return None
    return Migrated(DRIVERS[GCE], _gce_handle("regions", regions.pop(), gce.pd_name))


def migrated_terms(volume: PersistentVolume) -> list[NodeSelectorTerm] | None:
    """The node affinity of a volume on nodes where its plugin is migrated; None if it has none.

    Zones use the driver's own label there. They are taken from the affinity or, if it has none, from
    the volume's labels.
    """
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else None
    new_key = _ZONE_KEYS.get(plugin_of(volume.spec))
    if new_key is None:
        return terms
    zone_key = _zone_key(volume, terms or [])
    if any(e.values for term in terms or () for e in term.match_expressions if e.key == zone_key):
        terms = _renamed(terms or [], zone_key, new_key)
    elif (label := volume.metadata.labels.get(zone_key)) is not None:
        zones = sorted({zone.strip() for zone in label.split(_ZONES)} - {""})
        if zones:
            more = NodeSelectorRequirement(key=new_key, operator="In", values=zones)
            terms = [
                NodeSelectorTerm(
                    match_expressions=[*term.match_expressions, more], match_fields=term.match_fields
                )
                for term in terms or [NodeSelectorTerm()]
            ]
    if zone_key == names.OLD_ZONE_LABEL and terms is not None:
        terms = _renamed(terms, names.OLD_REGION_LABEL, names.REGION_LABEL)
    return terms


def _zone_key(volume: PersistentVolume, terms: list[NodeSelectorTerm]) -> str:
    """The zone label that this volume uses, the current or the deprecated one."""
    in_terms = {e.key for term in terms for e in term.match_expressions}
    for places in (in_terms, volume.metadata.labels):
        for key in (names.ZONE_LABEL, names.OLD_ZONE_LABEL):
            if key in places:
                return key
    return names.ZONE_LABEL


def _renamed(terms: list[NodeSelectorTerm], old: str, new: str) -> list[NodeSelectorTerm]:
    return [
        NodeSelectorTerm(
            match_expressions=[
                NodeSelectorRequirement(key=new, operator=e.operator, values=e.values)
                if e.key == old
                else e
                for e in term.match_expressions
            ],
            match_fields=term.match_fields,
        )
        for term in terms
    ]


def _by_name(source: Volume | PersistentVolumeSpec) -> Migrated | None:
    """Volumes whose disk name is the handle."""
    if (aws := source.aws_elastic_block_store) is not None:
        handle = _ebs_handle(aws.volume_id)
        return Migrated(DRIVERS[AWS], handle) if handle else None
    azure = source.azure_disk
    if azure is None or (azure.kind is not None and azure.kind.lower() != "managed"):
        return None
    return Migrated(DRIVERS[AZURE], azure.disk_uri) if azure.disk_uri else None


def _gce_handle(kind: str, place: str, disk: str) -> str:
    return f"projects/{_UNSPECIFIED}/{kind}/{place}/disks/{disk}"


def _ebs_handle(name: str) -> str:
    """`aws://zone/vol-1` and `vol-1` are the same volume; empty if it is neither."""
    if not name.startswith("aws://"):
        return name
    try:
        handle = urlsplit(name).path.strip("/")
    except ValueError:
        return ""
    return handle if _EBS_VOLUME.fullmatch(handle) else ""
