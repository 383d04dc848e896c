from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.storage import Volume
from reference.plugin import Nowhere, ReferencePlugin, Unfit
from reference.state import ReferenceState
from reference.storage import claim_of, uses

_DISK = Unfit(("node(s) had no available disk",), True)
_IN_USE = Unfit(
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
    ),
    True,
)


class VolumeRestrictions(ReferencePlugin):
    name = "VolumeRestrictions"

    def only(self, pod: Pod, world: ReferenceState) -> set[str] | Nowhere | None:
        for use in uses(pod):
            if not use.ephemeral and claim_of(world, pod, use) is None:
                return Nowhere(f'persistentvolumeclaim "{use.name}" not found')
        return None

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        for other in world.on(node.metadata.name):
            for ours in pod.spec.volumes:
                for theirs in other.spec.volumes:
                    if _clash(ours, theirs):
                        return _DISK
        for use in uses(pod):
            claim = claim_of(world, pod, use)
            if use.ephemeral or claim is None or "ReadWriteOncePod" not in claim.spec.access_modes:
                continue
            for other in world.pods.values():
                same = other.metadata.namespace == pod.metadata.namespace and use in uses(other)
                if same and other.spec.node_name in world.nodes:
                    return _IN_USE
            if any(use in uses(other) for other in _needing_first(pod, world)):
                return _IN_USE
        return None


def _needing_first(pod: Pod, world: ReferenceState) -> list[Pod]:
    """Nominated pods of the same or higher priority: a claim has no node, so it is kept for them on all
    nodes. (kube-scheduler keeps it on their nominated node only.)"""
    return [
        other
        for other in world.nominated.values()
        if other.metadata.uid != pod.metadata.uid
        and other.metadata.namespace == pod.metadata.namespace
        and (other.spec.priority or 0) >= (pod.spec.priority or 0)
        and not _are_alike(pod, other)
    ]


def _are_alike(one: Pod, other: Pod) -> bool:
    """Whether nothing but their names tells two pods apart."""
    return one.spec == other.spec and one.metadata.labels == other.metadata.labels


def _clash(a: Volume, b: Volume) -> bool:
    if a.gce_persistent_disk and b.gce_persistent_disk:
        one, other = a.gce_persistent_disk, b.gce_persistent_disk
        return one.pd_name == other.pd_name and not (one.read_only and other.read_only)
    if a.aws_elastic_block_store and b.aws_elastic_block_store:
        return a.aws_elastic_block_store.volume_id == b.aws_elastic_block_store.volume_id
    if a.iscsi and b.iscsi:
        return a.iscsi.iqn == b.iscsi.iqn and not (a.iscsi.read_only and b.iscsi.read_only)
    if a.rbd and b.rbd:
        same = (a.rbd.pool, a.rbd.image) == (b.rbd.pool, b.rbd.image)
        overlap = bool(set(a.rbd.monitors) & set(b.rbd.monitors))
        return same and overlap and not (a.rbd.read_only and b.rbd.read_only)
    return False
