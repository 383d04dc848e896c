"""Mask and scores of one pod class over all nodes, and what can be asked of them."""

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import One
from holdfast.scheduler.framework.diagnosis import NodeRejection, Verdict, first_rejection
from holdfast.scheduler.framework.feasibility.class_rows import INFEASIBLE, Bools, ClassRows, Ints
from holdfast.scheduler.framework.interface import Need, Scope
from holdfast.scheduler.framework.profile import Profile


class ClassColumn(ClassRows):
    owned = False
    """Whether pods of the class may draw on reservations."""
    made_of_others = False
    """Whether what is said of the class depends on more than this column."""

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        self.specs_seen = -1
        """The version of who owns reservations when last asked whether that matters here."""
        self.corrected: tuple[Hashable, dict[int, NodeRejection]] = (None, {})
        """What stands against nodes that are being cleared for others, and as of when."""
        self._needs_asked = -1
        self._needs: tuple[Need, ...] | None = None
        self.needing = ""
        """The plugin whose needs these are, once they were asked for."""
        super().__init__(cluster, profile, cls)

    def best(self, among: Bools | None = None) -> int:
        """The row with the highest score, the lowest such row if there are several; -1 if none."""
        if not self._size or self.rejected is not None:
            return -1
        totals = self.totals()
        if among is not None:
            totals = np.where(among, totals, INFEASIBLE)
        row = int(totals.argmax())
        return row if totals.item(row) > INFEASIBLE // 2 else -1

    def best_of(self, among: Bools) -> int:
        """The same were there no rows but these, by which scores are normalised."""
        if self.is_absolute or self.rejected is not None or not (self.fits & ~among).any():
            return self.best(among)
        passing = self.fits & among
        try:
            totals = np.where(passing, self._rescored(passing), INFEASIBLE)
        except RAISED as error:
            self.recover(error)
            return -1
        row = int(totals.argmax())
        return row if passing.item(row) else -1

    def totals(self) -> Ints:
        """The score of each row, less what all rows have alike (`constant`); about INFEASIBLE, or less,
        where the pod cannot go."""
        if self._keys is None:
            return self._base_there
        totals = self._by_key.take(self._keys.of[: self._size])
        totals += self._base_there
        return totals

    def suits_row(self, row: int) -> bool:
        """Whether the node object suits, whatever room there is."""
        return self.rejected is None and bool(self._fits_node[row])

    def fits_row(self, row: int) -> bool:
        return self.rejected is None and bool(self._fits[row]) and self.fits_by_topology(row)

    def fits_by_topology(self, row: int) -> bool:
        """Whether topology has nothing against the row as things are."""
        return self._keys is None or bool(self._key_passes[self._keys.of[row]])

    def fits_as(self, view: One) -> bool:
        """Whether a row would fit were it as the view has it; rows must not depend on each other."""
        if self.rejected is not None or not self._fits_node[view.rows]:
            return False
        return all(test.passes(view) for _, test in self.guarded_filters if test.scope is Scope.USAGE)

    def reservation_uid(self, row: int) -> str:
        """The uid of the reservation a pod put on the row draws on."""
        return ""

    @property
    def uses_reservations(self) -> bool:
        """Whether by its profile pods draw on reservations at all."""
        return bool(self._profile.reservation_plugin)

    def verdict(self) -> Verdict:
        """Why no node will do."""
        found = self.diagnosis.verdict() if self.rejected is None else None
        if self.has_failed():
            self.judge()  # perhaps by the reasons just asked for
        if self.rejected is None:
            assert found is not None
            return found
        rejected = self.rejected
        has_failed = self.failed_in >= 0 and rejected is not self.rejection[0]
        return Verdict(rejected.message, frozenset((self.rejected_by,)), rejected.error, has_failed)

    def has_failed(self) -> bool:
        """Whether a plugin failed for the class since it was last asked about it."""
        return self.failed_in >= 0

    def fails(self) -> bool:
        """Whether the class is rejected because plugins failed."""
        if not self.has_failed():
            return False
        self.judge()
        return self.rejected is not self.rejection[0]

    def judge(self) -> None:
        """Rejects the class if plugins failed. Where at most one node will do there is no choice, and
        nobody asks for scores."""
        rejection = self.failure or self.rejection
        if rejection[0] is None and self.unscorable and np.count_nonzero(self.fits) > 1:
            rejection = self.unscorable
        self.rejected, self.rejected_by = rejection

    def ask_again(self) -> None:
        """Plugins that failed in an earlier round may not do so now."""
        self._is_guarded = False
        self._compile()

    @property
    def is_absolute(self) -> bool:
        """Whether the score of a row depends on nothing but that row."""
        return self._keys is None and not self._normalized

    @property
    def is_local(self) -> bool:
        """Whether that a row will do, or why not, depends on nothing but that row."""
        return not self._key_filters

    @property
    def needs(self) -> tuple[Need, ...] | None:
        """What must be free on a row that suits, where nothing else matters there but topology, and
        that after room."""
        if self._needs_asked != self.compiled:
            self._needs_asked = self.compiled
            others = (named for named in self.filters if named[1].scope is not Scope.NODE)
            self.needing, first = next(others, ("", None))
            single = len(self._usage_filters) == 1
            self._needs = first.needs if first is not None and single else None
        return self._needs

    def topology_allows(self) -> Bools:
        """The rows topology has nothing against."""
        if self._keys is None:
            return np.ones(self._size, dtype=np.bool_)
        return self._key_passes[self._keys.of[: self._size]]

    def against_by_topology(self, rows: NDArray[np.intp]) -> Counter[tuple[str, ...]]:
        """What topology has against rows, which is the same for all that have the same key."""
        found: Counter[tuple[str, ...]] = Counter()
        keys = self._keys.of[rows] if self._keys is not None else rows[:0]
        filters = [named for named in self.guarded_filters if named[1].scope is Scope.TOPOLOGY]
        for key in distinct(keys).tolist():
            those = rows[keys == key]
            found[first_rejection(filters, One(self._table, int(those[0]))).texts] += len(those)
        return found

    def _rescored(self, passing: Bools) -> Ints:
        """The scores of rows were these all that pass."""
        total: Any = self._local[: self._size] if self._normalized else self._base[: self._size]
        for each in self._normalized if passing.any() else ():
            raw = each.raw[: self._size]
            measure = each.normalize.measure(raw[passing])
            total = total + each.weight * each.normalize.apply(raw, measure)
        if self._keys is not None:
            view, of = self._keys.view(), self._keys.of[: self._size]
            view.feasible = np.bincount(of[passing], minlength=len(view.rows))
            total = total + (self._key_scored(view) + np.zeros(len(view.rows), dtype=np.int64))[of]
        return np.asarray(total, dtype=np.int64)
