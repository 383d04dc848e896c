"""The columns of pod classes, made when they are first asked for."""

from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.framework.column import Column
from holdfast.framework.narrowed import Narrowed
from holdfast.framework.owned import OwnedColumn
from holdfast.framework.profile import Profile
from holdfast.framework.trial import ClassContest

_CELLS = 12 * 1024**2
"""How many cells all columns may have between them; a cell takes about 20 bytes."""
_FEWEST = 64


class Columns:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._specs = cluster.promises.specs
        self._columns: dict[tuple[int, int], Column] = {}
        self._profiles_seen: set[int] = set()
        cluster.classes.on_dropped.append(self._class_dropped)

    def column(self, profile: Profile, cls: PodClass) -> Column:
        """The class's column, up to date. Those used longest ago are dropped if there are many."""
        key = (profile.index, cls.id)
        columns = self._columns
        column = columns.get(key)
        if column is None:
            column = columns[key] = self._new_column(profile, cls)
            if len(columns) > self._most():
                del columns[next(iter(columns))]
        elif column.specs_seen != self._specs.version and self._is_mistaken(profile, column):
            column = columns[key] = self._new_column(profile, cls)
        elif len(columns) > _FEWEST // 2 and len(columns) > self._most() // 2:
            columns[key] = columns.pop(key)  # to the end of the line
        column.refresh()
        if column.unscorable is not None:
            column.judge_unscorable()
        return column

    def _most(self) -> int:
        return max(_FEWEST, _CELLS // self._table.capacity)

    def _is_mistaken(self, profile: Profile, column: Column) -> bool:
        """Whether reservations came to matter to the class, or do so no more."""
        column.specs_seen = self._specs.version
        concerned = bool(profile.drawing_name) and self._cluster.promises.concerns(column.cls)
        return concerned != column.owned

    def _new_column(self, profile: Profile, cls: PodClass) -> Column:
        self._profiles_seen.add(profile.index)
        if profile.drawing_name and self._cluster.promises.concerns(cls):
            return OwnedColumn(self._cluster, profile, cls)
        if cls.plain is None or profile.scores_volumes:
            column = Column(self._cluster, profile, cls)
        else:
            column = Narrowed(self._cluster, profile, cls, self.column(profile, cls.plain))
        column.diagnosis.contest = ClassContest(self._cluster, column)
        return column

    def _class_dropped(self, cls: PodClass) -> None:
        for index in self._profiles_seen:
            self._columns.pop((index, cls.id), None)
