"""The column store: makes the column of a class when it is first asked for, and bounds their memory."""

from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.framework.dry_run import NominatedPodsCheck
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_column import ReservationColumn
from holdfast.scheduler.framework.feasibility.volume_column import VolumeColumn
from holdfast.scheduler.framework.profile import Profile

_CELLS = 12 * 1024**2
"""How many cells all columns together may have; a cell takes about 20 bytes."""
_FEWEST = 64
"""So many columns are kept whatever their size."""


class ColumnStore:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._epoch = cluster.epoch
        self._errors = cluster.plugin_errors
        self._columns: dict[tuple[int, int], ClassColumn] = {}
        self._weight = 0
        """Of all columns together."""
        self._profiles_seen: set[int] = set()
        cluster.classes.on_dropped.append(self._class_dropped)

    def column(self, profile: Profile, cls: PodClass) -> ClassColumn:
        """The class's column, up to date. Drops the least recently used ones if all together exceed the
        limit."""
        key = (profile.index, cls.id)
        columns = self._columns
        column = columns.get(key)
        if column is None or column.failed_in >= 0 or column.owners_seen != self._epoch.owners:
            column = self._column_of_right_kind(key, profile, cls, column)
        elif len(columns) > 1 and self._weight > self._most() // 2:
            columns[key] = columns.pop(key)  # most recently used
        column.refresh()
        if column.weighed != column.weight:
            self._weigh(column)
            while self._weight > self._most() and len(columns) > 1:
                self._forget(next(iter(columns)))
        if column.has_checked_scores:
            column.check_scores()
        if column.unscorable is not None or column.failed_in >= 0:
            column.judge()
        return column

    def _column_of_right_kind(
        self, key: tuple[int, int], profile: Profile, cls: PodClass, column: ClassColumn | None
    ) -> ClassColumn:
        """The column if it is still of the right kind for the class, else a new one. Asks plugins again
        that failed for the class in an earlier round."""
        if column is not None and 0 <= column.failed_in != self._errors.round:
            column.ask_again()
        if column is None or (
            column.owners_seen != self._epoch.owners and self._is_wrong_kind(profile, column)
        ):
            column = self._new_column(profile, cls)
            self._put(key, column)
        return column

    def _most(self) -> int:
        return max(_FEWEST, _CELLS // self._table.capacity)

    def _is_wrong_kind(self, profile: Profile, column: ClassColumn) -> bool:
        """Whether the class matches reservations now and did not before, or the other way round."""
        column.owners_seen = self._epoch.owners
        concerned = bool(profile.reservation_plugin) and self._cluster.reservations.concerns(column.cls)
        return concerned != column.owned

    def _new_column(self, profile: Profile, cls: PodClass) -> ClassColumn:
        self._profiles_seen.add(profile.index)
        if profile.reservation_plugin and self._cluster.reservations.concerns(cls):
            return ReservationColumn(self._cluster, profile, cls)
        if cls.without_volumes is None or profile.scores_volumes:
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

    def _weigh(self, column: ClassColumn) -> None:
        self._weight += column.weight - column.weighed
        column.weighed = column.weight

    def _forget(self, key: tuple[int, int]) -> None:
        column = self._columns.pop(key, None)
        if column is not None:
            self._weight -= column.weighed
            column.weighed = 0

    def _class_dropped(self, cls: PodClass) -> None:
        for index in self._profiles_seen:
            self._forget((index, cls.id))
