from __future__ import annotations

from math import ceil

from holdfast.api.names import STORAGE
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from reference.labels import requirements, selected
from reference.plugin import Nowhere, ReferencePlugin, Unfit
from reference.quantities import exact
from reference.state import ReferenceState
from reference.storage import (
    claim_of,
    class_name,
    class_named,
    is_bound,
    is_for,
    owned_by,
    size,
    usable_from,
    uses,
    volume_named,
    waits_for_pod,
)

_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_NO_SPACE = "node(s) did not have enough free storage"
_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

Chosen = list[tuple[PersistentVolumeClaim, PersistentVolume | None]]
"""Claims with their volumes; None for one that is to be made."""


class VolumeBinding(ReferencePlugin):
    name = "VolumeBinding"

    def only(self, pod: Pod, world: ReferenceState) -> set[str] | Nowhere | None:
        for use in uses(pod):
            claim = claim_of(world, pod, use)
            if claim is None and use.ephemeral:
                wait = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
                return Nowhere(f'{wait} "{use.name}"')
            if claim is None:
                return Nowhere(f'persistentvolumeclaim "{use.name}" not found')
            if claim.status.phase == "Lost":
                bound_to = f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
                return Nowhere(f'persistentvolumeclaim "{use.name}" {bound_to}')
            if claim.metadata.deletion_timestamp is not None:
                return Nowhere(f'persistentvolumeclaim "{use.name}" is being deleted')
            if use.ephemeral and not owned_by(claim, pod):
                key, name = f"{pod.metadata.namespace}/{use.name}", pod.metadata.name
                whose = f"pod {pod.metadata.namespace}/{name} (pod is not owner)"
                return Nowhere(f"PVC {key} was not created for {whose}")
        if any(not is_bound(c) and not waits_for_pod(c, world) for c in _claims(pod, world)):
            return Nowhere("pod has unbound immediate PersistentVolumeClaims")
        return None

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        reasons = set()
        for claim in _claims(pod, world):
            if is_bound(claim):
                volume = volume_named(world, claim.spec.volume_name)
                if volume is None:
                    reasons.add(_GONE)
                    break
                if not usable_from(volume, node):
                    reasons.add(_AFFINITY)
                    break
        chosen = choose(pod, node, world)
        if isinstance(chosen, str):
            reasons.add(chosen)
        order = (_AFFINITY, _NO_VOLUME, _NO_SPACE, _GONE)
        return Unfit(tuple(r for r in order if r in reasons), False) if reasons else None

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        chosen = choose(pod, node, world)
        if isinstance(chosen, str):
            return 0
        used: dict[str, list[tuple[int, int]]] = {}
        for claim, volume in chosen:
            if volume is not None:
                part = (ceil(size(claim.spec.resources.requests)), ceil(size(volume.spec.capacity)))
                used.setdefault(class_name(claim), []).append(part)
        if used:
            return _rounded(
                [_share(sum(r for r, _ in each), sum(c for _, c in each)) for each in used.values()]
            )
        for claim, _ in chosen:
            capacity = _capacity(claim, node, world)
            if capacity is not None:
                part = (ceil(size(claim.spec.resources.requests)), capacity)
                used.setdefault(class_name(claim), []).append(part)
        return _rounded([_share(sum(r for r, _ in each), each[-1][1]) for each in used.values()])


def _share(requested: int, capacity: int) -> int:
    """100 for nothing of it, 0 for all."""
    if capacity == 0 or requested > capacity:
        return 0
    return 100 - requested * 100 // capacity


def _rounded(parts: list[int]) -> int:
    return int(sum(parts) / len(parts) + 0.5) if parts else 0


def choose(pod: Pod, node: Node, world: ReferenceState) -> Chosen | str:
    """Volumes for the claims that wait for the pod, were it on the node; else why there are none."""
    waiting = [claim for claim in _claims(pod, world) if not is_bound(claim)]
    selected_nodes = [world.selected_node(claim) for claim in waiting]
    if any(name not in (None, node.metadata.name) for name in selected_nodes):
        return _NO_VOLUME
    to_make = [c for c, name in zip(waiting, selected_nodes, strict=True) if name is not None]
    chosen: Chosen = []
    taken: set[str] = set()
    to_match = [c for c, name in zip(waiting, selected_nodes, strict=True) if name is None]
    for claim in sorted(to_match, key=lambda c: size(c.spec.resources.requests)):
        volume = _match(claim, node, world, taken)
        if volume is None:
            to_make.append(claim)
        else:
            taken.add(volume.metadata.name)
            chosen.append((claim, volume))
    for claim in to_make:
        cls = class_named(world, class_name(claim))
        assert cls is not None
        if cls.provisioner in ("", "kubernetes.io/no-provisioner"):
            return _NO_VOLUME
        labels = node.metadata.labels
        allowed = [
            all(labels.get(e.key) in e.values for e in term.match_label_expressions)
            for term in cls.allowed_topologies
        ]
        if allowed and not any(allowed):
            return _NO_VOLUME
        if _checks_capacity(claim, world) and _capacity(claim, node, world) is None:
            return _NO_SPACE
        chosen.append((claim, None))
    return chosen


def _claims(pod: Pod, world: ReferenceState) -> list[PersistentVolumeClaim]:
    found = [claim_of(world, pod, use) for use in uses(pod)]
    return [claim for claim in found if claim is not None]


def _match(
    claim: PersistentVolumeClaim, node: Node, world: ReferenceState, taken: set[str]
) -> PersistentVolume | None:
    wanted = claim.spec
    best: PersistentVolume | None = None
    for volume in sorted(world.of_kind("PersistentVolume"), key=lambda v: v.metadata.name):
        offer, ref = volume.spec, world.claim_ref(volume)
        if volume.metadata.name in taken or offer.storage_class_name != class_name(claim):
            continue
        if ref is not None and not is_for(ref, claim):
            continue
        if size(offer.capacity) < size(wanted.resources.requests):
            continue
        if (offer.volume_mode or "Filesystem") != (wanted.volume_mode or "Filesystem"):
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if ref is not None:
            return volume if usable_from(volume, node) else None
        if volume.status.phase != "Available":
            continue
        selector = wanted.selector
        if selector is not None and not selected(requirements(selector), volume.metadata.labels):
            continue
        if not usable_from(volume, node):
            continue
        if not set(wanted.access_modes) <= set(offer.access_modes):
            continue
        if best is None or size(offer.capacity) < size(best.spec.capacity):
            best = volume
    return best


def _checks_capacity(claim: PersistentVolumeClaim, world: ReferenceState) -> bool:
    cls = class_named(world, class_name(claim))
    driver = world.find("CSIDriver", "", cls.provisioner) if cls is not None else None
    requests = claim.spec.resources.requests
    return STORAGE in requests and driver is not None and bool(driver.spec.storage_capacity)


def _capacity(claim: PersistentVolumeClaim, node: Node, world: ReferenceState) -> int | None:
    """Of the capacities that are enough, the one that allows the largest volume."""
    if not _checks_capacity(claim, world):
        return None
    found: list[tuple[int, int]] = []
    for capacity in world.of_kind("CSIStorageCapacity"):
        limit = capacity.maximum_volume_size
        limit = capacity.capacity if limit is None else limit
        if (
            capacity.storage_class_name == class_name(claim)
            and limit is not None
            and ceil(exact(limit)) >= ceil(size(claim.spec.resources.requests))
            and selected(requirements(capacity.node_topology), node.metadata.labels)
        ):
            offered = 0 if capacity.capacity is None else ceil(exact(capacity.capacity))
            found.append((ceil(exact(limit)), offered))
    return max(found)[1] if found else None
