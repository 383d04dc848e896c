"""The volume manager: claims, volumes, attach limits and storage capacity.

volume_manager    the entry point: all of it, kept in line with objects and pods
volume_objects    claims and volumes; what a pod class needs of them
volume_pool       the available volumes of a storage class, and the nodes they are accessible from
assume_cache      bindings that were decided but are not on the objects yet
attach_limits     attached volumes per CSI driver and node, and their limit
storage_capacity  CSIStorageCapacity
csi_translation   in-tree volumes as volumes of their CSI drivers
queueing_hints    the storage objects that can make a pod schedulable
"""

from holdfast.scheduler.managers.volumes.queueing_hints import hint
from holdfast.scheduler.managers.volumes.volume_manager import STORAGE_KINDS, VolumeManager
from holdfast.scheduler.managers.volumes.volume_objects import ClaimKey, ClaimUse

__all__ = ["STORAGE_KINDS", "ClaimKey", "ClaimUse", "VolumeManager", "hint"]
