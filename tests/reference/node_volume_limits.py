from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.storage import PersistentVolumeClaim
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState
from reference.storage import claim_of, class_name, class_named, owned_by, uses, volume_named

Attached = tuple[str, str]
"""A driver, and what it calls the volume."""

_TOO_MANY = Unfit(("node(s) exceed max volume count",), True)
_GCE, _AWS = "pd.csi.storage.gke.io", "ebs.csi.aws.com"


class NodeVolumeLimits(ReferencePlugin):
    name = "NodeVolumeLimits"

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        problem = _problem(pod, world)
        if problem:
            return Unfit((problem,), False)
        drivers = sorted({driver for driver, _ in _volumes(pod, world)})
        for name in drivers:
            driver = world.find("CSIDriver", "", name)
            if driver is not None and driver.spec.prevent_pod_scheduling_if_missing:
                csi_node = world.find("CSINode", "", node.metadata.name)
                if csi_node is None or all(each.name != name for each in csi_node.spec.drivers):
                    return Unfit((f"{name} CSI driver is not installed on the node",), True)
        limits = _limits(node.metadata.name, world)
        there: set[Attached] = set()
        for other in world.on(node.metadata.name):
            there |= _volumes(other, world)
        new = _volumes(pod, world) - there
        more = _attachments(node.metadata.name, world) - there
        for driver, limit in limits.items():
            added = [volume for volume in new if volume[0] == driver]
            used = [volume for volume in (*there, *more) if volume[0] == driver]
            if added and len(used) + len(added) > limit:
                return _TOO_MANY
        return None


def _problem(pod: Pod, world: ReferenceState) -> str:
    for use in uses(pod):
        claim = claim_of(world, pod, use)
        key = f"{pod.metadata.namespace}/{use.name}"
        if claim is None:
            return f'looking up PVC {key}: persistentvolumeclaim "{use.name}" not found'
        if use.ephemeral and not owned_by(claim, pod):
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            return f"PVC {key} was not created for pod {name} (pod is not owner)"
    return ""


def _volumes(pod: Pod, world: ReferenceState) -> set[Attached]:
    found = set()
    for use in uses(pod):
        claim = claim_of(world, pod, use)
        volume = _identity(claim, world) if claim is not None else None
        if volume is not None:
            found.add(volume)
    for inline in pod.spec.volumes:
        if inline.gce_persistent_disk is not None:
            found.add((_GCE, f"unspecified zone/{inline.gce_persistent_disk.pd_name}"))
        elif inline.aws_elastic_block_store is not None:
            found.add((_AWS, inline.aws_elastic_block_store.volume_id))
    return found


def _identity(claim: PersistentVolumeClaim, world: ReferenceState) -> Attached | None:
    volume = volume_named(world, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        cls = class_named(world, class_name(claim))
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        return (cls.provisioner, f"to be made for {key}") if cls and cls.provisioner else None
    csi = volume.spec.csi
    return (csi.driver, csi.volume_handle) if csi is not None else None


def _limits(node: str, world: ReferenceState) -> dict[str, int]:
    csi_node = world.find("CSINode", "", node)
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _attachments(node: str, world: ReferenceState) -> set[Attached]:
    found = set()
    for attachment in world.of_kind("VolumeAttachment"):
        volume = volume_named(world, attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.node_name == node and volume is not None and volume.spec.csi is not None:
            found.add((attachment.spec.attacher, volume.spec.csi.volume_handle))
    return found
