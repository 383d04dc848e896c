"""Attach limits: volumes per CSI driver and row, their limit, and what reservations hold of it.

A reservation reserves one attachment of a CSI driver for each volume of its template. Owners use these
for any volume of that driver:

    reserved    the volumes the template names, and one for each of its generic ephemeral volumes
    allocated   volumes of pods that were allocated from it
    remaining   reserved, less those allocated, less one for each other volume allocated

A volume is attached to a node once, so it counts once, however many pods and reservations use it. An
owner's other volume replaces first a reserved volume that no one else counts, so that the total of the
row does not grow.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import MIGRATED_PLUGINS_ANNOTATION
from holdfast.api.storage import CSINode, PersistentVolume, VolumeAttachment
from holdfast.scheduler.cluster.columns import RowColumn
from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.managers.volumes.assume_cache import RowUse
from holdfast.scheduler.managers.volumes.csi_translation import Migrated

Spare = Mapping[str, frozenset[Migrated]]
"""By the uid of a reservation, the reserved volumes that other volumes of its owners can replace."""


class Reserved(NamedTuple):
    """The volumes of one reservation on a row."""

    uid: str
    volumes: frozenset[Migrated]
    allocated: frozenset[Migrated]
    waiting: bool = False
    """Whether the reservation is Waiting: then its volumes do not count as attached yet."""


class CountedVolumes(NamedTuple):
    """The volumes of the pods and reservations on a row."""

    all: set[Migrated]
    spare: Spare
    awaited: frozenset[Migrated] = frozenset()
    """Volumes that only Waiting reservations count: they are not attached yet."""


def settle(
    used: Iterable[Migrated], attached: Iterable[Migrated], reservations: Iterable[Reserved]
) -> CountedVolumes:
    """The volumes that count on a row besides those attached, and what is left of reservations."""
    there = list(reservations)
    here = set(used)
    elsewhere = here.union(attached)
    reserving = Counter(volume for each in there for volume in each.volumes)
    spare: dict[str, frozenset[Migrated]] = {}
    present = set(elsewhere)
    for uid, volumes, allocated, waiting in there:
        others = Counter(volume.driver for volume in allocated - volumes)
        order = sorted((v in elsewhere or reserving[v] > 1, v) for v in volumes - allocated)
        left = []
        for is_shared, volume in order:
            if others[volume.driver] > 0:
                others[volume.driver] -= 1
                continue
            here.add(volume)
            if not waiting:
                present.add(volume)
            if not is_shared:
                left.append(volume)
        if left:
            spare[uid] = frozenset(left)
    return CountedVolumes(here, spare, frozenset(here - present))


# Volumes per driver on each row, and the limit of the row.
#
# A volume that several pods of a row use counts once. Reservations count with what is left of them. A
# VolumeAttachment counts too, unless a pod of the row uses the volume. Rows that changed are counted
# again when they are asked for.


NO_LIMIT = 2**31 - 1

Column = NDArray[np.int64]


class Attached:
    """The volumes attached to each row by CSI driver, and how many more the limit allows."""

    def __init__(
        self,
        nodes: NodeTable,
        nodes_changed: RowLog,
        settle: Callable[[int, Iterable[Migrated]], CountedVolumes],
        volume: Callable[[str], PersistentVolume | None],
    ) -> None:
        self._nodes = nodes
        self._nodes_changed = nodes_changed
        self._settle = settle
        """Computes the volumes that count on a row with these attachments, and what is left there of
        reservations for other volumes of their owners."""
        self._volume = volume
        self.volumes: RowUse[Migrated] = RowUse(nodes)
        """Volumes that pods and reservations use, by row."""
        self.spare: dict[int, Spare] = {}
        """What is left of reservations for volumes of their owners, by row."""
        self.awaited: dict[int, frozenset[Migrated]] = {}
        """Volumes that only Waiting reservations use, by row."""
        self._limits: dict[str, RowColumn[np.int64]] = {}
        self._counts: dict[str, RowColumn[np.int64]] = {}
        self._left: dict[str, RowColumn[np.int64]] = {}
        """Limit less count by row, of drivers that were asked for."""
        self._migrated: dict[str, RowColumn[np.int64]] = {}
        self._installed: dict[str, RowColumn[np.int64]] = {}
        self._csi_nodes: dict[str, CSINode] = {}
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}
        self._nodes_of: dict[str, Counter[str]] = {}
        self._stale: set[int] = set()
        self._stale_nodes: set[int] = set()
        """Rows whose CSINode changed."""
        self._seen = 0

    # Queries

    def refresh(self) -> None:
        """Counts rows that changed again. Callers do this before they read columns."""
        log = self._nodes_changed
        if log.end != self._seen:
            changed = log.since(self._seen)
            rows = range(self._nodes.size) if changed is None else changed.tolist()
            self._stale.update(rows)
            self._stale_nodes.update(rows)
            self._seen = log.end
        if self._stale:
            for row in self._stale:
                self._recount(row)
            for row in self._stale_nodes:
                self._reread(row)
            for driver, left in self._left.items():
                limit, count = self._limits[driver].cells, self._counts.get(driver)
                for row in self._stale:
                    left.cells[row] = limit.item(row) - (count.cells.item(row) if count else 0)
            self._stale.clear()
            self._stale_nodes.clear()

    def left(self, driver: str) -> Column | None:
        """How many more volumes of the driver can be attached to each row; None if no row has a
        limit."""
        limit = self._limits.get(driver)
        if limit is None:
            return None
        left = self._left.get(driver)
        if left is None:
            count = self._counts.get(driver)
            left = self._left[driver] = self._nodes.columns.new(np.int64, NO_LIMIT)
            left.cells[:] = limit.cells - (0 if count is None else count.cells)
        return left.cells

    def migrated(self, plugin: str) -> Column | None:
        """The rows where an in-tree plugin is migrated to CSI; None if there is no such row."""
        column = self._migrated.get(plugin)
        return column.cells if column is not None else None

    def installed(self, driver: str) -> Column | None:
        """The rows where a driver is installed; None if there is no such row."""
        column = self._installed.get(driver)
        return column.cells if column is not None else None

    # Changes

    def stale(self, rows: Iterable[int]) -> None:
        """Marks rows to be counted again."""
        self._stale.update(rows)

    def put_csi_node(self, name: str, csi_node: CSINode | None) -> int | None:
        """Sets the CSINode of a node, or removes it. Returns the node's row if it has one."""
        if csi_node is None:
            self._csi_nodes.pop(name, None)
        else:
            self._csi_nodes[name] = csi_node
        row = self._stale_node(name)
        if row is not None:
            self._stale_nodes.add(row)
        return row

    def put_attachment(
        self, before: VolumeAttachment | None, after: VolumeAttachment | None
    ) -> list[int]:
        """Follows a VolumeAttachment. Returns the rows whose count changed."""
        rows = []
        for attachment, sign in ((before, -1), (after, 1)):
            if attachment is None:
                continue
            node, name = attachment.spec.node_name, attachment.metadata.name
            there = self._attachments.setdefault(node, {})
            if sign > 0:
                there[name] = attachment
            else:
                del there[name]
                if not there:
                    del self._attachments[node]
            volume = attachment.spec.source.persistent_volume_name or ""
            nodes = self._nodes_of.setdefault(volume, Counter())
            nodes[node] += sign
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._nodes_of[volume]
            row = self._stale_node(node)
            if row is not None:
                rows.append(row)
        return rows

    def put_volume(self, name: str) -> list[int]:
        """Follows a change of a volume. Returns the rows with attachments of it."""
        rows = (self._stale_node(node) for node in self._nodes_of.get(name, ()))
        return [row for row in rows if row is not None]

    def _stale_node(self, name: str) -> int | None:
        row = self._nodes.row(name)
        if row is not None:
            self._stale.add(row)
        return row

    # Counting

    def _recount(self, row: int) -> None:
        node = self._nodes.name(row)
        attached = self._attached(node) if node in self._attachments else set()
        here, spare, awaited = self._settle(row, attached)
        if spare:
            self.spare[row] = spare
        else:
            self.spare.pop(row, None)
        if awaited:
            self.awaited[row] = awaited
        else:
            self.awaited.pop(row, None)
        before = self.volumes.on(row)
        for volume in sorted(before.keys() - here):
            self.volumes.add(volume, row, -1)
        for volume in sorted(here - before.keys()):
            self.volumes.add(volume, row, 1)
        here |= attached
        counts: dict[str, int] = {}
        for volume in sorted(here):
            counts[volume.driver] = counts.get(volume.driver, 0) + 1
        self._write(self._counts, row, counts, 0)

    def _reread(self, row: int) -> None:
        csi_node = self._csi_nodes.get(self._nodes.name(row))
        limits: dict[str, int] = {}
        plugins: dict[str, int] = {}
        drivers: dict[str, int] = {}
        if csi_node is not None:
            for driver in csi_node.spec.drivers:
                drivers[driver.name] = 1
                if driver.allocatable is not None and driver.allocatable.count is not None:
                    limits[driver.name] = min(max(0, driver.allocatable.count), NO_LIMIT)
            listed = csi_node.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION, "")
            plugins = dict.fromkeys(listed.split(","), 1) if listed else {}
        self._write(self._limits, row, limits, NO_LIMIT)
        self._write(self._migrated, row, plugins, 0)
        self._write(self._installed, row, drivers, 0)

    def expected(self, row: int) -> set[Migrated]:
        """The volumes of the pods and reservations on a row, computed from scratch."""
        return self._settle(row, self._attached(self._nodes.name(row))).all

    def attachments(self) -> list[VolumeAttachment]:
        return [each for there in self._attachments.values() for each in there.values()]

    def _attached(self, node: str) -> set[Migrated]:
        found: set[Migrated] = set()
        for attachment in self._attachments.get(node, {}).values():
            spec = attachment.spec
            volume = self._volume(spec.source.persistent_volume_name or "")
            if spec.attacher and volume is not None and volume.spec.csi is not None:
                found.add(Migrated(spec.attacher, volume.spec.csi.volume_handle))
        return found

    def _write(
        self, columns: dict[str, RowColumn[np.int64]], row: int, cells: dict[str, int], rest: int
    ) -> None:
        for name, column in columns.items():
            if name not in cells:
                column.cells[row] = rest
        for name, value in cells.items():
            if name not in columns:
                columns[name] = self._nodes.columns.new(np.int64, rest)
            columns[name].cells[row] = value
