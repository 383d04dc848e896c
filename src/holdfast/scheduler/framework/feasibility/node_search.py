"""Finds a pod's node: the column store hands out the columns of classes, the node search takes the best
row of one for a pod.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.diagnosis import NOT_PINNED, NodeRejection
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_column import ReservationColumn
from holdfast.scheduler.framework.feasibility.volume_column import VolumeColumn
from holdfast.scheduler.framework.nominated_pods import NominatedPodsCheck
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster

_CELLS = 12 * 1024**2
"""How many cells all columns together may have; a cell takes about 20 bytes."""
_FEWEST = 64
"""The lowest limit, however many rows there are: as many cells as this many columns without a topology
part have."""


class ColumnStore:
    """Makes the column of a class when it is first asked for, and bounds the memory of all of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._epoch = cluster.epoch
        self._errors = cluster.plugin_errors
        self._columns: dict[tuple[int, int], ClassColumn] = {}
        self._memory = 0
        """The memory of all columns together, as in `ClassRows.memory`."""
        self._profiles_seen: set[int] = set()
        cluster.classes.on_dropped.append(self._class_dropped)

    def column(self, profile: Profile, cls: PodClass) -> ClassColumn:
        """The class's column, up to date. Drops the least recently used ones if all together exceed the
        limit."""
        key = (profile.index, cls.id)
        columns = self._columns
        column = columns.get(key)
        if column is None or column.failed_in >= 0 or column.owners_seen != self._epoch.owners:
            column = self._column_of_right_type(key, profile, cls, column)
        elif len(columns) > 1 and self._memory > self._most() // 2:
            columns[key] = columns.pop(key)  # most recently used
        column.refresh()
        if column.memory_counted != column.memory:
            self._count_memory(column)
            while self._memory > self._most() and len(columns) > 1:
                self._forget(next(iter(columns)))
        if column.has_checked_scores:
            column.check_scores()
        if column.score_failure is not None or column.failed_in >= 0:
            column.decide_rejection()
        return column

    def _column_of_right_type(
        self, key: tuple[int, int], profile: Profile, cls: PodClass, column: ClassColumn | None
    ) -> ClassColumn:
        """The column if it is still of the right type for the class, else a new one. Asks plugins again
        that failed for the class in an earlier round."""
        if column is not None and 0 <= column.failed_in != self._errors.round:
            column.ask_again()
        if column is None or (
            column.owners_seen != self._epoch.owners and self._is_wrong_type(profile, column)
        ):
            column = self._new_column(profile, cls)
            self._put(key, column)
        return column

    def _most(self) -> int:
        return max(_FEWEST, _CELLS // self._table.capacity)

    def _is_wrong_type(self, profile: Profile, column: ClassColumn) -> bool:
        """Whether the class matches reservations now and did not before, or the other way round."""
        column.owners_seen = self._epoch.owners
        concerned = bool(profile.reservation_plugin) and self._cluster.reservations.concerns(column.cls)
        return concerned != column.owned

    def _new_column(self, profile: Profile, cls: PodClass) -> ClassColumn:
        self._profiles_seen.add(profile.index)
        if profile.reservation_plugin and self._cluster.reservations.concerns(cls):
            return ReservationColumn(self._cluster, profile, cls)
        if cls.without_volumes is None or profile.has_foreign_volume_scorers:
            column = ClassColumn(self._cluster, profile, cls)
        else:
            column = VolumeColumn(
                self._cluster, profile, cls, self.column(profile, cls.without_volumes)
            )
        column.diagnosis.nominated_check = NominatedPodsCheck(self._cluster, column)
        return column

    def _put(self, key: tuple[int, int], column: ClassColumn) -> None:
        """Stores a column as the most recently used one."""
        self._forget(key)
        self._columns[key] = column

    def _count_memory(self, column: ClassColumn) -> None:
        self._memory += column.memory - column.memory_counted
        column.memory_counted = column.memory

    def _forget(self, key: tuple[int, int]) -> None:
        column = self._columns.pop(key, None)
        if column is not None:
            self._memory -= column.memory_counted
            column.memory_counted = 0

    def _class_dropped(self, cls: PodClass) -> None:
        for index in self._profiles_seen:
            self._forget((index, cls.id))


class NodeSearch:
    """Finds the best node for one pod. The column of its class has the feasible nodes and their scores;
    what nominated pods, a nominated node and a pinned node change for this pod comes on top."""

    def __init__(self, cluster: Cluster, columns: ColumnStore, failures: FailureHandler) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._columns = columns
        self._failures = failures
        self._preemption_holds = cluster.reservations.preemption_holds
        self.placement: NDArray[np.bool_] | None = None
        """The only rows to be considered; None for all. See `within`."""

    @contextmanager
    def within(self, rows: NDArray[np.bool_] | None) -> Iterator[None]:
        """Considers these rows only: a topology domain in which a whole job is tried."""
        before, self.placement = self.placement, rows
        try:
            yield
        finally:
            self.placement = before

    def find_row(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The best row for the pod, or -1. Its nominated node comes before all others."""
        if not self._cluster.nominator and pod.pinned_node is None:
            return column.best() if self.placement is None else column.best_of(self.placement)
        if column.rejected is not None:
            return -1
        row = self._find_row_with_nominations(profile, pod, column)
        if column.is_rejected_by_failure():
            self._failures.note_failed_dry_run(pod, column.verdict())
            return -1
        return row

    def _find_row_with_nominations(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """As `find_row`, where pods have nominated nodes or the pod is pinned to a node."""
        table, nominations = self._table, self._cluster.nominator
        pinned, among = profile.pins(pod), self.placement
        possible = table.alive if among is None else among
        dry_run = DryRun(self._cluster, column, pod, pinned)
        if pod.nominated and not (pinned and pod.nominated != pod.pinned_node):
            row = table.row(pod.nominated)
            if row is not None and possible[row] and dry_run.fits(row):
                return row
        if pinned:
            row = table.row(pod.pinned_node or "")
            return row if row is not None and possible[row] and dry_run.fits(row) else -1
        row = column.best() if among is None else column.best_of(among)
        if row < 0 or (column.is_absolute and table.name(row) not in nominations):
            return row
        if column.is_local and column.diagnosis.nominated_check is not None:
            # The pod's own nominated node was tried above.
            feasible = column.diagnosis.feasible()
            feasible[dry_run.rows_of_other_queues()] = False
            if among is not None:
                feasible &= among
            return column.best_of(feasible)
        left = np.ones(table.size, dtype=np.bool_) if among is None else among.copy()
        if column.is_absolute:
            while row >= 0 and table.name(row) in nominations and not dry_run.fits(row):
                left[row] = False
                row = column.best(left)
            return row
        nominated_rows = [at for name in nominations if (at := table.row(name)) is not None]
        left[[at for at in nominated_rows if column.fits_row(at) and not dry_run.fits(at)]] = False
        return column.best_of(left)

    def nominate_reservation(
        self, profile: Profile, pod: PodRecord, column: ClassColumn, row: int
    ) -> None:
        """Sets the reservation that the pod is allocated from on the row, if any."""
        if column.owned:
            pod.reservation_uid = column.reservation_uid(row)
        if self._preemption_holds and (hold := self._preemption_holds.of(pod, row)) is not None:
            pod.reservation_uid = self._hold_or_reservation(profile, pod, row, column, hold)

    def _hold_or_reservation(
        self, profile: Profile, pod: PodRecord, row: int, column: ClassColumn, hold: ReservationInfo
    ) -> str:
        """The reservation that a preemptor is allocated from on the row of its hold: the hold, unless
        it is too small and another reservation is enough. A hold that is Waiting is not used."""
        enough = all(hold.amounts.get(slot, 0) >= amount for slot, amount in pod.cls.requests)
        if not hold.waiting and (enough or not column.owned):
            return hold.uid
        dry_run = DryRun(self._cluster, column, pod, profile.pins(pod))
        return dry_run.reservation_uid(row, ()) or ("" if hold.waiting else hold.uid)

    def dry_run(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> DryRun:
        """A dry run of the pod that also leads to those of other pods."""
        return DryRun(
            self._cluster,
            column,
            pod,
            profile.pins(pod),
            partial(self._other_dry_run, profile),
            self.placement,
        )

    def _other_dry_run(self, profile: Profile, other: PodRecord) -> tuple[int, DryRun]:
        column = self._columns.column(profile, other.cls)
        return self.find_row(profile, other, column), self.dry_run(profile, other, column)

    def rejections(
        self, profile: Profile, pod: PodRecord, column: ClassColumn
    ) -> dict[str, NodeRejection]:
        """The rejection of each node by name, for questions about one pod."""
        table = self._table
        found: dict[str, NodeRejection] = {}
        dry_run = DryRun(self._cluster, column, pod, profile.pins(pod))
        for name, row in table.names():
            if not table.alive[row]:
                continue
            if column.rejected is not None:
                rejected = column.rejected
                found[name] = NodeRejection(
                    column.rejected_by, (rejected.message,), rejected.resolvable
                )
            elif profile.pins(pod) and name != pod.pinned_node:
                found[name] = NOT_PINNED
            else:
                found[name] = dry_run.rejection(row)
        return found
