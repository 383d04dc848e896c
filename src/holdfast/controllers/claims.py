"""Which volume a claim gets, and what becomes of both: the volume controller's rules.

A claim that names a volume gets that one or none. A volume that names a claim is for no other. A claim
that waits for its first pod gets nothing else until the pod has a node; any other takes the smallest
volume that will do. Where none will do a provisioner makes one, within reach of the node.

Where the volume of a bound claim is gone the claim is lost; where the claim of a volume is gone the
volume is released, or deleted if its policy says so.
"""

from collections.abc import Iterable, Sequence

from holdfast.api import names
from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.node import Node
from holdfast.api.quantity import parse
from holdfast.api.selectors import match_node_selector, matches
from holdfast.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.core.volumes.objects import claim_class, is_meant_for, volume_class

_FILESYSTEM = "Filesystem"


def volume_for(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    node: Node | None = None,
    waits: bool = False,
) -> PersistentVolume | None:
    """The volume to bind the claim to now. `waits` if it waits for a pod, which has no node yet."""
    there = list(volumes)
    if claim.spec.volume_name:
        named = [v for v in there if v.metadata.name == claim.spec.volume_name]
        return next((v for v in named if _may_have(claim, v)), None)
    meant = [v for v in there if is_meant_for(v.spec.claim_ref, claim) and _suits(claim, v)]
    if meant:
        return next((v for v in meant if _reaches(v, node)), None)
    if waits:
        return None
    fitting = [v for v in there if _is_free(v) and _fits(claim, v) and _reaches(v, node)]
    return min(fitting, key=lambda v: (_size(v), v.metadata.name), default=None)


def reach_of_new(
    cls: StorageClass, node: Node | None, csi_node: CSINode | None
) -> list[NodeSelectorTerm]:
    """The node affinity of a volume made for a claim of the class: the place of the node, by the labels
    its driver goes by; without a node, wherever the class allows. Empty if it can be used anywhere."""
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


def _may_have(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether a claim that names a volume may have it."""
    if volume.spec.claim_ref is not None:
        return is_meant_for(volume.spec.claim_ref, claim)
    return _suits(claim, volume) and volume_class(volume) == claim_class(claim)


def _suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """What must hold even of a volume that is meant for the claim."""
    wish, offer = claim.spec, volume.spec
    return (
        volume.metadata.deletion_timestamp is None
        and _size(volume) >= parse(wish.resources.requests.get(names.STORAGE, 0))
        and (offer.volume_mode or _FILESYSTEM) == (wish.volume_mode or _FILESYSTEM)
        and set(wish.access_modes) <= set(offer.access_modes)
        and (offer.volume_attributes_class_name or "") == (wish.volume_attributes_class_name or "")
    )


def _fits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    selector = claim.spec.selector
    return (
        _suits(claim, volume)
        and volume_class(volume) == claim_class(claim)
        and (selector is None or matches(selector, volume.metadata.labels))
    )


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
