"""The column of a pod class: the questions that can be asked about its feasible nodes and scores."""

from collections import Counter
from collections.abc import Collection, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import One
from holdfast.scheduler.framework.diagnosis import NodeRejection, Verdict, first_rejection
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE, Bools, ClassRows, Ints
from holdfast.scheduler.framework.interface import Need, Scope
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.state.cluster import Cluster


class ClassColumn(ClassRows):
    owned = False
    """Whether it is a `ReservationColumn`: the class matches reservations or has a reservation
    affinity."""
    shares_corrections = True
    """Whether `corrections` found for one pod are used for others of the class (but for pods with a
    nominated node or a preemption hold of their own). Not in a column that depends on more than its own
    parts."""

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        self.owners_seen = -1
        """`Epoch.owners` when it was last checked which type of column the class needs."""
        self.corrections: tuple[Hashable, dict[int, NodeRejection]] = (None, {})
        """A version, and the rejections of rows with nominated pods that `DryRun` found at it."""
        self._needs_version = -1
        self._needs: tuple[Need, ...] | None = None
        self.needs_plugin = ""
        """The plugin whose needs these are."""
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
        """The same, with scores normalised over these rows only."""
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
        """The score of each row without `constant`, which is the same for all; about INFEASIBLE or
        less where a filter fails."""
        if self._keys is None:
            return self._base_in_use
        totals = self._by_key.take(self._keys.of[: self._size])
        totals += self._base_in_use
        return totals

    def passes_node_filters(self, row: int) -> bool:
        """Whether the row passes the node filters, whatever is requested on it."""
        return self.rejected is None and bool(self._passes_node[row])

    def fits_row(self, row: int) -> bool:
        return self.rejected is None and bool(self._passes_usage[row]) and self.fits_by_topology(row)

    def fits_by_topology(self, row: int) -> bool:
        """Whether the row passes the topology filters."""
        return self._keys is None or bool(self._key_passes[self._keys.of[row]])

    def fits_with(self, view: One) -> bool:
        """Whether the row would be feasible with the amounts of the view. Only for local columns."""
        if self.rejected is not None or not self._passes_node[view.rows]:
            return False
        return all(test.passes(view) for _, test in self.guarded_filters if test.scope is Scope.USAGE)

    def reservation_uid(self, row: int) -> str:
        """The uid of the reservation that a pod on the row would allocate from; empty if none."""
        return ""

    def reservation_score(self, row: int) -> int:
        """The part of the row's total that comes from that reservation, weighted."""
        return 0

    @property
    def uses_reservations(self) -> bool:
        """Whether the profile lets pods allocate from reservations."""
        return bool(self._profile.reservation_plugin)

    def wakes_on(self) -> int:
        """The changes that can help pods of the class, whichever of its filters rejects nodes."""
        if self.rejected is not None:
            return self._profile.wakes_on((self.rejected_by,))
        plugins = {name for name, _ in self.filters}
        if self.owned:
            plugins.add(self._profile.reservation_plugin)
        return self._profile.wakes_on(plugins)

    def wakes_on_rejection(self, plugins: Collection[str]) -> int:
        """The changes that can help pods of the class, on whose nodes these plugins were the first to
        reject them. With what a reservation has they may be rejected by a later one only."""
        return self._profile.wakes_on(plugins) | (self.wakes_on() if self.owned else Change.NONE)

    def verdict(self) -> Verdict:
        """Why no node is feasible."""
        found = self.diagnosis.verdict() if self.rejected is None else None
        if self.has_failed():
            self.decide_rejection()  # a formula for reasons may have failed just now
        if self.rejected is None:
            assert found is not None
            return found
        rejected = self.rejected
        has_failed = self.failed_in >= 0 and rejected is not self.plugin_rejection[0]
        return Verdict(rejected.message, frozenset((self.rejected_by,)), rejected.error, has_failed)

    def is_rejected_by_failure(self) -> bool:
        """Whether the class is rejected because plugins failed."""
        if not self.has_failed():
            return False
        self.decide_rejection()
        return self.rejected is not self.plugin_rejection[0]

    def decide_rejection(self) -> None:
        """Rejects the class if a plugin failed. A failure to score counts only if more than one node is
        feasible: otherwise kube-scheduler does not score."""
        rejection = self.filter_failure or self.plugin_rejection
        if rejection[0] is None and self.score_failure and np.count_nonzero(self.fits) > 1:
            rejection = self.score_failure
        self.rejected, self.rejected_by = rejection

    def ask_again(self) -> None:
        """Asks plugins again that failed in an earlier round."""
        self._is_guarded = False
        self._compile()

    @property
    def is_absolute(self) -> bool:
        """Whether the score of a row depends on nothing but that row."""
        return self._keys is None and not self._normalized

    @property
    def is_local(self) -> bool:
        """Whether the feasibility of a row, and the reason, depends on nothing but that row."""
        return not self._key_filters

    @property
    def needs(self) -> tuple[Need, ...] | None:
        """What must be free on a row that passes the node filters, where nothing but NodeResourcesFit
        and topology filters decide further; None otherwise."""
        if self._needs_version != self.answers_version:
            self._needs_version = self.answers_version
            others = (named for named in self.filters if named[1].scope is not Scope.NODE)
            self.needs_plugin, first = next(others, ("", None))
            single = len(self._usage_filters) == 1
            self._needs = first.needs if first is not None and single else None
        return self._needs

    def topology_allows(self) -> Bools:
        """The rows that pass the topology filters."""
        if self._keys is None:
            return np.ones(self._size, dtype=np.bool_)
        return self._key_passes[self._keys.of[: self._size]]

    def against_by_topology(self, rows: NDArray[np.intp]) -> Counter[tuple[str, ...]]:
        """How many of the rows each topology reason applies to; rows with one key have one reason."""
        found: Counter[tuple[str, ...]] = Counter()
        keys = self._keys.of[rows] if self._keys is not None else rows[:0]
        filters = [named for named in self.guarded_filters if named[1].scope is Scope.TOPOLOGY]
        for key in distinct(keys).tolist():
            those = rows[keys == key]
            found[first_rejection(filters, One(self._table, int(those[0]))).texts] += len(those)
        return found

    def _rescored(self, passing: Bools) -> Ints:
        """The scores of rows if only these were feasible."""
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
