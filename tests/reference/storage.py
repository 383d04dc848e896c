"""Claims and volumes as the volume plugins look at them, one object at a time."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.meta import ObjectReference
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from reference.node_affinity import matches
from reference.quantities import exact
from reference.state import ReferenceState

WAITS = "WaitForFirstConsumer"


class Use(NamedTuple):
    """A claim a pod uses."""

    name: str
    ephemeral: bool


def uses(pod: Pod) -> list[Use]:
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(Use(volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            found.append(Use(f"{pod.metadata.name}-{volume.name}", True))
    return found


def claim_of(world: ReferenceState, pod: Pod, use: Use) -> PersistentVolumeClaim | None:
    found: PersistentVolumeClaim | None
    found = world.find("PersistentVolumeClaim", pod.metadata.namespace, use.name)
    return found


def volume_named(world: ReferenceState, name: str) -> PersistentVolume | None:
    found: PersistentVolume | None = world.find("PersistentVolume", "", name)
    return found


def class_named(world: ReferenceState, name: str) -> StorageClass | None:
    found: StorageClass | None = world.find("StorageClass", "", name)
    return found


def class_name(claim: PersistentVolumeClaim) -> str:
    old = claim.metadata.annotations.get("volume.beta.kubernetes.io/storage-class")
    return claim.spec.storage_class_name or "" if old is None else old


def owned_by(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    return any(o.controller and o.uid == pod.metadata.uid for o in claim.metadata.owner_references)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    done = "pv.kubernetes.io/bind-completed" in claim.metadata.annotations
    return done and bool(claim.spec.volume_name)


def waits_for_pod(claim: PersistentVolumeClaim, world: ReferenceState) -> bool:
    if claim.spec.volume_name:
        return False
    cls = class_named(world, class_name(claim))
    return cls is not None and cls.volume_binding_mode == WAITS


def size(amounts: dict[str, str | int | float]) -> Fraction:
    return exact(amounts.get(names.STORAGE, 0))


def usable_from(volume: PersistentVolume, node: Node) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(matches(term, node) for term in affinity.required.node_selector_terms)


def is_for(ref: ObjectReference | None, claim: PersistentVolumeClaim) -> bool:
    meta = claim.metadata
    return (
        ref is not None
        and (ref.namespace, ref.name) == (meta.namespace, meta.name)
        and ref.uid in ("", meta.uid)
    )
