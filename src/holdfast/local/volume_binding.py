"""The volume controller's binding rules.

A claim with a volumeName gets that volume or none. A volume with a claimRef is for that claim only. A
WaitForFirstConsumer claim is bound once its pod has a node; any other gets the smallest suitable
volume. If none is suitable, a provisioner creates one that is accessible from the node.

If the volume of a bound claim is deleted, the claim is Lost; if the claim of a volume is deleted, the
volume is Released, or deleted by its reclaim policy.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.node import Node
from holdfast.api.quantity import parse
from holdfast.api.selectors import match_node_selector, matches
from holdfast.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.scheduler.managers.volumes.volume_objects import (
    claim_class,
    references_claim,
    volume_class,
)

WAIT = "WaitForFirstConsumer"
FAILED = "FailedBinding"


class BindingObstacle(NamedTuple):
    """The reason and message of the event that says why a claim is not bound."""

    reason: str
    message: str
    type: str = "Warning"


_FILESYSTEM = "Filesystem"


def volume_for(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    node: Node | None = None,
    waits: bool = False,
) -> PersistentVolume | None:
    """The volume to bind the claim to now. `waits` if it waits for a pod that has no node yet."""
    there = list(volumes)
    if claim.spec.volume_name:
        named = [v for v in there if v.metadata.name == claim.spec.volume_name]
        return next((v for v in named if volume_obstacle(claim, v) is None), None)
    meant = [
        v
        for v in there
        if references_claim(v.spec.claim_ref, claim) and not _unsuitable(claim, v, of_its_class=False)
    ]
    if meant:
        return next((v for v in meant if _reaches(v, node)), None)
    if waits:
        return None
    fitting = [v for v in there if _is_free(v) and _fits(claim, v) and _reaches(v, node)]
    return min(fitting, key=lambda v: (_size(v), v.metadata.name), default=None)


def reach_of_new(
    cls: StorageClass, node: Node | None, csi_node: CSINode | None
) -> list[NodeSelectorTerm]:
    """The node affinity of a volume provisioned for a claim of the class: the node's topology by the
    labels of its driver; without a node, the class's allowed topologies. Empty if it is accessible
    everywhere.
    """
    allowed = cls.allowed_terms()
    if node is None:
        return allowed
    drivers = csi_node.spec.drivers if csi_node is not None else []
    keys: Sequence[str] = next((d.topology_keys for d in drivers if d.name == cls.provisioner), [])
    if not keys:
        keys = sorted({e.key for term in allowed for e in term.match_expressions})
    place = [
        NodeSelectorRequirement(key=key, operator="In", values=[node.metadata.labels[key]])
        for key in keys
        if key in node.metadata.labels
    ]
    return [NodeSelectorTerm(match_expressions=place)] if place else []


def volume_obstacle(claim: PersistentVolumeClaim, volume: PersistentVolume) -> BindingObstacle | None:
    """Why a claim with a volumeName cannot be bound to that volume; None if it can."""
    name = volume.metadata.name
    if volume.spec.claim_ref is not None:
        if references_claim(volume.spec.claim_ref, claim):
            return None
        return BindingObstacle(FAILED, f'volume "{name}" already bound to a different claim.')
    why = _unsuitable(claim, volume, of_its_class=True)
    message = f'Cannot bind to requested volume "{name}": {why}'
    return BindingObstacle("VolumeMismatch", message) if why else None


def _unsuitable(claim: PersistentVolumeClaim, volume: PersistentVolume, of_its_class: bool) -> str:
    """Which requirement does not hold; empty if all do. A volume whose claimRef is the claim can be of
    another class."""
    wanted, offer = claim.spec, volume.spec
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if _size(volume) < parse(wanted.resources.requests.get(names.STORAGE, 0)):
        return "requested PV is too small"
    if of_its_class and volume_class(volume) != claim_class(claim):
        return "storageClassName does not match"
    if (offer.volume_attributes_class_name or "") != (wanted.volume_attributes_class_name or ""):
        return "volumeAttributesClassName does not match"
    if (offer.volume_mode or _FILESYSTEM) != (wanted.volume_mode or _FILESYSTEM):
        return "incompatible volumeMode"
    if not set(wanted.access_modes) <= set(offer.access_modes):
        return "incompatible accessMode"
    return ""


def _fits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    selector = claim.spec.selector
    if selector is not None and not matches(selector, volume.metadata.labels):
        return False
    return not _unsuitable(claim, volume, of_its_class=True)


def _is_free(volume: PersistentVolume) -> bool:
    return volume.spec.claim_ref is None and volume.status.phase in ("", "Available")


def _reaches(volume: PersistentVolume, node: Node | None) -> bool:
    affinity = volume.spec.node_affinity
    required: NodeSelector | None = affinity.required if affinity is not None else None
    if node is None or required is None:
        return True
    return match_node_selector(required, node.metadata.labels, node.metadata.name)


def _size(volume: PersistentVolume) -> int:
    return parse(volume.spec.capacity.get(names.STORAGE, 0))
