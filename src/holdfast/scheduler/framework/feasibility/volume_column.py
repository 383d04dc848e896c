"""The column of a class with volumes.

Pods of a StatefulSet differ only in the claims they name, so that each is a class of its own. They
share the column of the same class without volumes; a column with volumes is that one, narrowed to the
rows where the volume filters pass, which is cheap to make.

Normalised scores and topology scores depend on which rows are feasible. Where the volumes rule out a
row that is feasible without them, or nodes are scored by volumes, a complete column is computed for the
class. It does not count in the column store's limit of memory.

`refresh` first brings the column without volumes up to date, then the answers of the volume plugins,
and then the volume filters of the rows in `Epoch.nodes` and `Epoch.usage`; of all rows if a log has
more than 6 new ones.
"""

from itertools import chain

import numpy as np

from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import All, One
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.compiled_class import add_planned_volumes_filter
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE, Bools, Ints
from holdfast.scheduler.framework.guarded import guarded_filters
from holdfast.scheduler.framework.interface import Filter, Need, Scope, everywhere
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.state.cluster import Cluster

_FEW = 6
"""With more changed rows than this, the volume filters are computed for every row."""


class VolumeColumn(ClassColumn):
    """It has no parts of its own but the answers of the volume plugins. What `ClassColumn` says of the
    parts (`fits_with`, `topology_allows`) is not to be asked: `needs` is None and `is_local` false."""

    shares_corrections = False

    def __init__(
        self, cluster: Cluster, profile: Profile, cls: PodClass, without_volumes: ClassColumn
    ) -> None:
        self._without_volumes = without_volumes
        self._joined_version = -1
        """The `answers_version` of the other column when filters of both were joined."""
        self._allowed: Bools = np.zeros(0, dtype=np.bool_)
        """The rows where the volume filters pass."""
        self._everywhere = False
        self._whole: ClassColumn | None = None
        self._has_own_scores = False
        """Whether volume plugins score nodes for the class."""
        self._own: list[tuple[str, Filter]] = []
        self._checked: list[Filter] = []
        """The volume filters that can fail on some row."""
        self._guarded_own: list[tuple[str, Filter]] | None = None
        self._is_new = True
        super().__init__(cluster, profile, cls)

    def totals(self) -> Ints:
        if self._has_own_scores:
            return self._complete().totals()
        totals = self._without_volumes.totals()
        if self._everywhere:
            return totals
        allowed = self._allowed[: self._size]
        if self._without_volumes.is_absolute or not (self._without_volumes.fits > allowed).any():
            return np.where(allowed, totals, INFEASIBLE)
        return self._complete().totals()

    def _complete(self) -> ClassColumn:
        """The column of all plugins, up to date. It is not counted in the column store."""
        if self._whole is None:
            self._whole = ClassColumn(self._cluster, self._profile, self.cls)
        self._whole.refresh()
        return self._whole

    def best(self, among: Bools | None = None) -> int:
        row = super().best(among)
        if self._whole is not None and row >= 0:
            if self._whole.has_checked_scores:
                self._whole.check_scores()
            if self.has_failed():
                self.decide_rejection()
        return row if self.rejected is None else -1

    def best_of(self, among: Bools) -> int:
        if self.is_absolute or self.rejected is not None:
            return self.best(among)
        row = self._complete().best_of(among)
        if self.has_failed():
            self.decide_rejection()
        return row if self.rejected is None else -1

    @property
    def fits(self) -> Bools:
        return self._without_volumes.fits & self._allowed[: self._size]

    def passes_node_filters(self, row: int) -> bool:
        view = One(self._table, row)
        return (
            self.rejected is None
            and self._without_volumes.passes_node_filters(row)
            and all(f.passes(view) for _, f in self._own_guarded() if f.scope is Scope.NODE)
        )

    def fits_row(self, row: int) -> bool:
        return (
            self.rejected is None and bool(self._allowed[row]) and self._without_volumes.fits_row(row)
        )

    @property
    def is_absolute(self) -> bool:
        return self._without_volumes.is_absolute and not self._has_own_scores

    @property
    def is_local(self) -> bool:
        """A ReadWriteOncePod claim in use on any row makes all rows infeasible."""
        return False

    @property
    def needs(self) -> tuple[Need, ...] | None:
        return None

    def _guard(self) -> list[tuple[str, Filter]]:
        return self._in_order(self._without_volumes.guarded_filters, self._own_guarded())

    def _own_guarded(self) -> list[tuple[str, Filter]]:
        if self._guarded_own is None:
            self._guarded_own = guarded_filters(self._own, self._profile.plugins, self._fail)
        return self._guarded_own

    def _in_order(self, *filters: list[tuple[str, Filter]]) -> list[tuple[str, Filter]]:
        """Filters in the profile's order."""
        order = self._profile.filter_order
        return sorted(chain(*filters), key=lambda named: order[named[0]])

    def _compile(self) -> None:
        answers = self._ask(self._profile.volume_filters)
        planned = add_planned_volumes_filter(self._cluster, self._profile, self.cls, answers.filters)
        answers.versions += [(None, version) for version in planned]
        answers.score_by(self._profile.volume_scorers)
        self._keep_answers(answers)
        self._has_own_scores = answers.scores
        self._own = list(self.filters)
        self._guarded_own = None
        self._checked = [own for _, own in self._own if own.passes is not everywhere]
        self._own_rejection = self.plugin_rejection
        self._joined_version = -1
        self._size = 0

    def ask_again(self) -> None:
        now = self._cluster.plugin_errors.round
        if 0 <= self._without_volumes.failed_in != now:
            self._without_volumes.ask_again()
        self._whole = None
        super().ask_again()

    def refresh(self) -> None:
        try:
            self._refresh()
        except RAISED as error:
            self.recover(error)
        without_volumes, whole = self._without_volumes, self._whole
        if without_volumes.has_checked_scores:
            without_volumes.check_scores()
        if whole is not None and whole.has_checked_scores:
            whole.check_scores()
        if without_volumes.failed_in >= 0 or whole is not None:
            self.has_failed()

    def has_failed(self) -> bool:
        """A failure in a column that this one is made of is a failure of this one."""
        for other in (self._without_volumes, self._whole):
            if other is not None and other.failed_in >= 0:
                self.failed_in = other.failed_in
                self.filter_failure = self.filter_failure or other.filter_failure
                self.score_failure = self.score_failure or other.score_failure
        return super().has_failed()

    def _refresh(self) -> None:
        if self._is_new:
            self._is_new = False  # both columns are up to date
        else:
            self._without_volumes.refresh()
            if self._is_outdated():
                self._compile()
        if self._without_volumes.answers_version != self._joined_version:
            self._join()
        table, nodes, usage = self._table, self._cluster.epoch.nodes, self._cluster.epoch.usage
        if not self._without_volumes.is_local:
            self.diagnosis.reset()
        if self._size != table.size or len(self._allowed) != table.capacity:
            self._filter_rows()
            return
        if nodes.end == self._nodes_seen and usage.end == self._usage_seen:
            return
        for log, seen in ((nodes, self._nodes_seen), (usage, self._usage_seen)):
            changed = log.since(seen)
            if changed is None or len(changed) > _FEW:
                self._filter_rows()
                return
            self.diagnosis.outdated(changed)
            for row in changed.tolist():
                view = One(table, row)
                self._allowed[row] = all(own.passes(view) for own in self._checked)
        self._everywhere = bool(self._allowed[: self._size].all())
        self._nodes_seen, self._usage_seen = nodes.end, usage.end

    def _join(self) -> None:
        """Joins the filters and rejections of both columns, in the profile's order."""
        self._joined_version = self._without_volumes.answers_version
        self.constant = self._without_volumes.constant
        order = self._profile.filter_order
        self.filters[:] = self._in_order(self._without_volumes.filters, self._own)
        self._guarded_filters = None
        self.score_failure = self._without_volumes.score_failure
        found = [
            r for r in (self._own_rejection, self._without_volumes.plugin_rejection) if r[0] is not None
        ]
        # What no plugin answered (the profile schedules no reservations) comes first.
        found.sort(key=lambda rejection: order.get(rejection[1], -1))
        self.plugin_rejection = found[0] if found else (None, "")
        self.rejected, self.rejected_by = self.plugin_rejection
        self.diagnosis.reset()

    def _filter_rows(self) -> None:
        """Computes the volume filters for every row."""
        table = self._table
        self._size = table.size
        self._nodes_seen = self._cluster.epoch.nodes.end
        self._usage_seen = self._cluster.epoch.usage.end
        allowed = np.ones(table.capacity, dtype=np.bool_)
        view = All(table)
        for own in self._checked:
            allowed[: self._size] &= own.passes(view)
        self._allowed = allowed
        self._everywhere = not self._checked or bool(allowed.all())
        self.diagnosis.reset()
