"""NodeVolumeLimits: a node has no more volumes of a CSI driver than its CSINode object allows, and has
the drivers of the pod's volumes installed if they demand it."""

from collections import Counter
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
    Version,
)
from holdfast.scheduler.managers.volumes import queueing_hints as stamps
from holdfast.scheduler.managers.volumes.assume_cache import Marks
from holdfast.scheduler.managers.volumes.csi_translation import Migrated
from holdfast.scheduler.managers.volumes.volume_objects import claim_class, is_for_pod
from holdfast.scheduler.plugins.volume_binding import not_for_pod, not_found

REASON = "node(s) exceed max volume count"
_NONE: frozenset[Migrated] = frozenset()


class NodeVolumeLimits(ClusterPlugin):
    name = "NodeVolumeLimits"
    wakes_on = (
        Change.NODE_ADDED
        | Change.POD_LEFT
        | Change.CLAIMS
        | Change.PERSISTENT_VOLUMES
        | Change.STORAGE_CLASSES
        | Change.CSI_NODES
        | Change.CSI_DRIVERS
        | Change.ATTACHMENTS
    )
    reads_volumes = True

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        volumes = self.cluster.volumes
        wanted = volumes.wanted(cls)
        if not wanted.claims and not wanted.inline and not wanted.reserved:
            return None
        version = self._version(cls)
        new = dict.fromkeys(wanted.inline)
        for use in wanted.claims:
            if not use.key.name:
                return _nowhere("PersistentVolumeClaim had no name", version)
            claim = volumes.claim(use.key)
            if claim is None:
                missing = not_found("persistentvolumeclaim", use.key.name)
                return _nowhere(f"looking up PVC {use.key}: {missing}", version)
            if use.ephemeral and not is_for_pod(claim, cls):
                return _nowhere(not_for_pod(cls, use.key), version)
            volume = volumes.identity(use.key)
            if volume is not None:
                new[volume] = None
        reserved = Counter(volumes.driver_of(volumes.class_of(use)) for use in wanted.reserved)
        return self._limited(list(new), reserved, version)

    def _limited(self, new: list[Migrated], reserved: Counter[str], version: Version) -> Filter:
        """`reserved` counts, by driver, volumes that a reserve pod reserves and that do not exist
        yet."""
        attached = self.cluster.volumes.attached
        by_driver: dict[str, list[Migrated]] = {driver: [] for driver in reserved if driver}
        for volume in new:
            by_driver.setdefault(volume.driver, []).append(volume)
        if not by_driver:
            return Filter.nothing(version)
        demanded = [driver for driver in by_driver if self._is_demanded(driver)]
        there: dict[Migrated, Marks] = {}

        def on_row(volume: Migrated, view: View) -> Cells:
            """Whether pods on the rows use the volume already; None if no pod uses it anywhere."""
            if volume not in there:
                if not attached.volumes.rows(volume):
                    return None
                there[volume] = attached.volumes.marks(volume)
            return view.take(there[volume].cells)

        def lacking(driver: str, view: View) -> Cells:
            there = attached.installed(driver)
            return view.full(True) if there is None else view.take(there) == 0

        def installed(view: View) -> Cells:
            attached.refresh()
            ok = view.full(True)
            for driver in demanded:
                ok = ok & view.negate(lacking(driver, view))
            return ok

        def passes(view: View) -> Cells:
            attached.refresh()
            ok: Cells = installed(view) if demanded else None
            for driver, volumes in by_driver.items():
                left = attached.left(driver)
                if left is None:
                    continue
                used = [on_row(volume, view) for volume in volumes]
                there_already = [cells for cells in used if cells is not None]
                more = len(volumes) + reserved[driver] - sum(there_already)
                free = view.take(left)
                if view.entries is not None:
                    free = free + self._left_to_owner(view, driver, volumes, more)
                enough = free >= more
                if there_already:
                    nothing_new = more == 0
                    if attached.awaited:
                        nothing_new = nothing_new & view.negate(self._awaits(view, volumes))
                    enough = enough | nothing_new
                ok = enough if ok is None else ok & enough
            return view.full(True) if ok is None else ok

        def reasons(view: View) -> list[Reason]:
            rejected = view.negate(passes(view))
            found = []
            for driver in demanded:
                absent = lacking(driver, view) & rejected
                found.append(Reason(f"{driver} CSI driver is not installed on the node", absent))
                rejected = rejected & view.negate(absent)
            return [*found, Reason(REASON, rejected)]

        return Filter(passes, reasons, Scope.USAGE, version=version, lasting=installed)

    def _is_demanded(self, name: str) -> bool:
        """Whether pods with volumes of the driver fit only nodes where it is installed."""
        driver = self.cluster.volumes.driver(name)
        return driver is not None and bool(driver.spec.prevent_pod_scheduling_if_missing)

    def _left_to_owner(self, view: View, driver: str, volumes: list[Migrated], more: Cells) -> Cells:
        """How many new volumes an owner can attach in place of those its reservation reserves."""
        spare = self.cluster.volumes.spare
        if view.single:
            return min(more, spare(view.rows, view.entries, driver, volumes))
        left = np.zeros(len(view.rows), dtype=np.int64)
        for at in np.flatnonzero(
            np.isin(view.rows, list(self.cluster.volumes.attached.spare))
        ).tolist():
            left[at] = spare(int(view.rows[at]), int(view.entries[at]), driver, volumes)
        return np.minimum(more, left)

    def _awaits(self, view: View, volumes: list[Migrated]) -> Cells:
        """Whether any of the volumes counts only for a Waiting reservation, and so is not attached."""
        awaited = self.cluster.volumes.attached.awaited
        if view.single:
            return not awaited.get(view.rows, _NONE).isdisjoint(volumes)
        found = np.zeros(len(view.rows), dtype=np.bool_)
        for at in np.flatnonzero(np.isin(view.rows, list(awaited))).tolist():
            found[at] = not awaited[int(view.rows[at])].isdisjoint(volumes)
        return found

    def watches(self, cls: PodClass) -> list[Hashable]:
        drivers = self._drivers(cls)
        return [
            *self._identities(cls),
            *map(stamps.of_limits, drivers),
            *map(stamps.of_driver, drivers),
            *map(stamps.of_attached, drivers),
        ]

    def _version(self, cls: PodClass) -> Version:
        drivers = map(stamps.of_driver, self._drivers(cls))
        return self.cluster.volumes.stamps([*self._identities(cls), *drivers])

    def _drivers(self, cls: PodClass) -> list[str]:
        """The drivers of the pod's volumes."""
        volumes = self.cluster.volumes
        wanted = volumes.wanted(cls)
        found = [*wanted.inline, *(volumes.identity(use.key) for use in wanted.claims)]
        drivers = dict.fromkeys(volume.driver for volume in found if volume is not None)
        drivers |= dict.fromkeys(volumes.driver_of(volumes.class_of(use)) for use in wanted.reserved)
        return list(drivers)

    def _identities(self, cls: PodClass) -> list[Hashable]:
        """What the identity of the pod's volumes depends on."""
        volumes = self.cluster.volumes
        keys: list[Hashable] = []
        wanted = volumes.wanted(cls)
        for each in wanted.reserved:
            keys += [stamps.of_class(volumes.class_of(each)), stamps.DEFAULT_CLASS]
        for use in wanted.claims:
            keys.append(stamps.of_claim(use.key))
            claim = volumes.claim(use.key)
            if claim is not None:
                keys.append(stamps.of_volume(claim.spec.volume_name))
                keys.append(stamps.of_class(claim_class(claim)))
        return keys


def _nowhere(text: str, version: Version) -> Filter:
    """No node is feasible; each has this reason."""
    return Filter(
        lambda view: view.full(False),
        lambda view: [Reason(text, view.full(True), resolvable=False)],
        Scope.NODE,
        version=version,
    )
