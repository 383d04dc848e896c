"""Queueing hints of storage objects: which pending pods a change can make schedulable.

An answer about volumes depends on named stamps (`of_pool`, `of_limits`, …). `hint` returns for a change
of an object the kinds of change (`Change`) and the stamps it can help. A pending pod is requeued only
if the kind can help it and its plugins watch one of the stamps. A change that cannot make a pod
schedulable requeues none: a volume deleted, a limit lowered, an update without effect.
"""

from collections.abc import Callable, Hashable
from typing import Any

from holdfast.api.meta import Object
from holdfast.api.names import MIGRATED_PLUGINS_ANNOTATION
from holdfast.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.managers.volumes.csi_translation import DRIVERS, migrated_volume
from holdfast.scheduler.managers.volumes.storage_capacity import largest_volume
from holdfast.scheduler.managers.volumes.volume_objects import ClaimKey, is_free, volume_class

MIGRATED: Hashable = ("migrated",)
"""Which in-tree plugins are migrated on which nodes."""


DEFAULT_CLASS: Hashable = ("default class",)
"""The default storage class."""


def of_claim(key: ClaimKey) -> Hashable:
    return "claim", key


def of_volume(name: str) -> Hashable:
    return "volume", name


def of_class(name: str) -> Hashable:
    return "class", name


def of_driver(name: str) -> Hashable:
    return "driver", name


def of_pool(storage_class: str) -> Hashable:
    """The available volumes of a class."""
    return "pool", storage_class


def of_capacities(storage_class: str) -> Hashable:
    """The storage capacity for volumes of a class."""
    return "capacities", storage_class


def of_limits(driver: str) -> Hashable:
    """The attach limits of a driver."""
    return "limits", driver


def of_attached(driver: str) -> Hashable:
    """The attached volumes of a driver."""
    return "attached", driver


# Hints


Hint = tuple[int, list[Hashable]]

_UNLIMITED = 2**31
_NOTHING: Hint = (Change.NONE, [])


def hint(before: Object | None, after: Object | None) -> Hint:
    """The kinds of change that adding, changing or deleting an object is, and the stamps it can
    help."""
    changes, touched = _HINTS[type(after if after is not None else before)](before, after)
    return (changes if touched else Change.NONE) | Change.STORAGE, touched


def _claim(before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> Hint:
    if after is None or not _differs(before, after):
        return _NOTHING
    key = ClaimKey(after.metadata.namespace, after.metadata.name)
    return Change.CLAIMS, [of_claim(key)]


def _volume(before: PersistentVolume | None, after: PersistentVolume | None) -> Hint:
    touched: list[Hashable] = []
    changes = Change.PERSISTENT_VOLUMES
    if before is not None and _driver(before) and (after is None or before.spec != after.spec):
        touched.append(of_attached(_driver(before)))
        changes |= Change.ATTACHMENTS
    if after is not None and _differs(before, after):
        touched.append(of_volume(after.metadata.name))
        if is_free(after):
            touched.append(of_pool(volume_class(after)))
        ref = after.spec.claim_ref
        if ref is not None:
            touched.append(of_claim(ClaimKey(ref.namespace, ref.name)))
    return changes, touched


def _class(before: StorageClass | None, after: StorageClass | None) -> Hint:
    touched: list[Hashable] = [DEFAULT_CLASS]
    changes = Change.STORAGE_CLASSES
    if before is not None and (after is None or before.provisioner != after.provisioner):
        touched.append(of_attached(DRIVERS.get(before.provisioner, before.provisioner)))
        changes |= Change.ATTACHMENTS
    if after is not None and (
        before is None
        or before.provisioner != after.provisioner
        or before.volume_binding_mode != after.volume_binding_mode
        or before.allowed_topologies != after.allowed_topologies
    ):
        touched.append(of_class(after.metadata.name))
    return changes, touched


def _csi_driver(before: CSIDriver | None, after: CSIDriver | None) -> Hint:
    """A driver can help that no longer checks storage capacity, or that nodes need no more."""
    if before is None:
        return _NOTHING
    spec = None if after is None else after.spec
    if (before.spec.storage_capacity and not (spec and spec.storage_capacity)) or (
        before.spec.prevent_pod_scheduling_if_missing
        and not (spec and spec.prevent_pod_scheduling_if_missing)
    ):
        return Change.CSI_DRIVERS, [of_driver(before.metadata.name)]
    return _NOTHING


def _capacity(before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> Hint:
    if after is None:
        return _NOTHING
    if (
        before is not None
        and before.node_topology == after.node_topology
        and before.storage_class_name == after.storage_class_name
        and largest_volume(before) >= largest_volume(after)
    ):
        return _NOTHING
    return Change.CAPACITIES, [of_capacities(after.storage_class_name)]


def _csi_node(before: CSINode | None, after: CSINode | None) -> Hint:
    then, now = _limits(before), _limits(after)
    touched = [of_limits(name) for name in then if now.get(name, _UNLIMITED) > then[name]]
    touched += map(of_limits, sorted(_drivers(after) - _drivers(before) - then.keys()))
    if _migrated(before) != _migrated(after):
        touched.append(MIGRATED)
    return Change.CSI_NODES, touched


def _attachment(before: VolumeAttachment | None, after: VolumeAttachment | None) -> Hint:
    if before is None or (after is not None and before.spec == after.spec):
        return _NOTHING
    return Change.ATTACHMENTS, [of_attached(before.spec.attacher)]


_HINTS: dict[type, Callable[[Any, Any], Hint]] = {
    PersistentVolumeClaim: _claim,
    PersistentVolume: _volume,
    StorageClass: _class,
    CSIDriver: _csi_driver,
    CSIStorageCapacity: _capacity,
    CSINode: _csi_node,
    VolumeAttachment: _attachment,
}


def _differs(
    before: PersistentVolumeClaim | PersistentVolume | None,
    after: PersistentVolumeClaim | PersistentVolume,
) -> bool:
    """Whether a field that a plugin reads changed."""
    if before is None:
        return True
    was, now = before.metadata, after.metadata
    return (
        was.uid != now.uid
        or before.spec != after.spec
        or before.status.phase != after.status.phase
        or was.labels != now.labels
        or was.annotations != now.annotations
        or was.deletion_timestamp != now.deletion_timestamp
        or was.owner_references != now.owner_references
    )


def _driver(volume: PersistentVolume) -> str:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver
    migrated = migrated_volume(volume)
    return "" if migrated is None else migrated.driver


def _limits(csi_node: CSINode | None) -> dict[str, int]:
    drivers = csi_node.spec.drivers if csi_node is not None else []
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _drivers(csi_node: CSINode | None) -> set[str]:
    return {driver.name for driver in csi_node.spec.drivers} if csi_node is not None else set()


def _migrated(csi_node: CSINode | None) -> str:
    if csi_node is None:
        return ""
    return csi_node.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION, "")
