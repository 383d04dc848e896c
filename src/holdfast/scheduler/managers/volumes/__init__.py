"""Claims, volumes and what hangs on them, as scheduling needs them.

    objects       what a claim or a volume says, and what a pod class wants of them
    migration     in-tree disks by the names of the CSI drivers that replaced them
    uses          which rows use a thing, kept sparsely
    attached      volumes per driver on each row, and how many it can have
    pool          the free volumes of a storage class, and which of them a row can reach
    capacities    how much storage drivers say is left, and for which rows
    assumed       what has been promised to claims but is not on the objects yet
    stamps        the names under which it is watched
    hints         what a change could help
    state         all of it, kept in step with objects and pods

`VolumeManager` is the way in; a cluster has one.
"""

from holdfast.scheduler.managers.volumes.queueing_hints import hint
from holdfast.scheduler.managers.volumes.volume_manager import STORAGE_KINDS, VolumeManager
from holdfast.scheduler.managers.volumes.volume_objects import ClaimKey, ClaimUse

__all__ = ["STORAGE_KINDS", "ClaimKey", "ClaimUse", "VolumeManager", "hint"]
