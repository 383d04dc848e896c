"""VolumeRestrictions: a disk that cannot be shared is used once per node, and a ReadWriteOncePod claim
once in the cluster. What a reservation reserves is free for its owners and closed to others."""

from collections.abc import Hashable

import numpy as np

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import (
    ClusterPlugin,
    Filter,
    Reason,
    Rejected,
    Scope,
    everywhere,
)
from holdfast.scheduler.managers.volumes import queueing_hints as stamps
from holdfast.scheduler.managers.volumes.assume_cache import Marks
from holdfast.scheduler.managers.volumes.volume_objects import ONE_POD, ClaimKey, DiskUse, WantedVolume
from holdfast.scheduler.plugins.volume_binding import not_found
from holdfast.scheduler.reservations.reservation_index import MatchedReservations

REASON_DISK = "node(s) had no available disk"
REASON_ONE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)


class VolumeRestrictions(ClusterPlugin):
    name = "VolumeRestrictions"
    wakes_on = Change.NODE_ADDED | Change.NODE_REMOVED | Change.POD_LEFT | Change.CLAIMS
    reads_volumes = True

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        volumes = self.cluster.volumes
        wanted = volumes.wanted(cls)
        named = [claim.key for claim in wanted.claims if not claim.ephemeral]
        if not named and not wanted.disks:
            return None
        changed = volumes.stamps(stamps.of_claim(key) for key in named)
        alone = []
        for key in named:
            claim = volumes.claim(key)
            if claim is None:
                return Rejected(not_found("persistentvolumeclaim", key.name), version=changed)
            if ONE_POD in claim.spec.access_modes:
                alone.append(key)
        if not alone and not wanted.disks:
            return Filter.nothing(changed)
        conflicting = self._conflicting(wanted)
        uses = volumes.disk_uses
        conflicts: list[Marks] = [uses.marks(use) for use in conflicting]

        def in_use() -> bool:
            return any(self._is_used(key, cls) for key in alone)

        def disks_free(view: View) -> Cells:
            free = view.full(True)
            for marks in conflicts:
                free = free & view.negate(view.take(marks.cells))
            reserved = self.cluster.reservations.matched(cls) if conflicts else None
            if reserved is None or (view.single and free):
                return free
            if view.single:
                return self._is_own(conflicting, view.rows, reserved)
            own = np.zeros(self.cluster.nodes.capacity, dtype=np.bool_)
            for row in set().union(*map(uses.rows, conflicting)):
                own[row] = self._is_own(conflicting, row, reserved)
            return free | view.take(own)

        def passes(view: View) -> Cells:
            return view.full(False) if alone and in_use() else disks_free(view)

        def reasons(view: View) -> list[Reason]:
            free = disks_free(view)
            return [
                Reason(REASON_DISK, view.negate(free)),
                Reason(REASON_ONE_POD, free & in_use()),
            ]

        return Filter(
            passes,
            reasons,
            Scope.USAGE if conflicts else Scope.NODE,
            version=(lambda: (changed(), in_use())) if alone else changed,
            lasting=everywhere,
        )

    def watches(self, cls: PodClass) -> list[Hashable]:
        claims = self.cluster.volumes.wanted(cls).claims
        return [stamps.of_claim(claim.key) for claim in claims if not claim.ephemeral]

    def _is_used(self, key: ClaimKey, cls: PodClass) -> bool:
        """Whether a pod uses the claim, or is about to: it was preempted for a nominated pod. Reserve
        pods that reserve it for this class do not count, nor do pods whose node is gone."""
        if self.cluster.nominator and self._is_freed_for_others(key, cls):
            return True
        volumes, alive = self.cluster.volumes, self.cluster.nodes.alive
        uses = sum(count for row, count in volumes.claim_uses.rows(key).items() if alive[row])
        if not uses:
            return False
        for reserving in self.cluster.reservations.reserving_for(cls):
            if any(claim.key == key for claim in volumes.wanted(reserving).claims):
                uses -= sum(n for row, n in reserving.placed.items() if alive[row])
        return uses > 0

    def _is_freed_for_others(self, key: ClaimKey, cls: PodClass) -> bool:
        """Whether a nominated pod of the same or higher priority needs the claim, on whatever node. A
        claim has no node, so it is not enough to add nominated pods to theirs: another pod would take
        the claim elsewhere, and be preempted in turn, without end."""
        volumes = self.cluster.volumes
        return any(
            pod.row < 0
            and pod.cls is not cls
            and pod.cls.priority >= cls.priority
            and any(claim.key == key for claim in volumes.wanted(pod.cls).claims)
            for there in self.cluster.nominator.values()
            for pod in there.values()
        )

    def _is_own(self, conflicting: list[DiskUse], row: int, reserved: MatchedReservations) -> bool:
        """Whether only reservations that the pod can be allocated from use these disks on the row."""
        volumes = self.cluster.volumes
        uses = sum(volumes.disk_uses.rows(use).get(row, 0) for use in conflicting)
        for entry in reserved.on(row):
            uses -= sum(use in conflicting for use in volumes.wanted(entry.pod.cls).disks)
        return uses <= 0

    def _conflicting(self, wanted: WantedVolume) -> list[DiskUse]:
        """The uses that conflict with the pod's use of its disks. Read-only uses do not conflict."""
        others = []
        for mine in wanted.disks:
            others.append(DiskUse(mine.disk, read_only=False))
            if not mine.read_only:
                others.append(DiskUse(mine.disk, read_only=True))
        return list(dict.fromkeys(others))
