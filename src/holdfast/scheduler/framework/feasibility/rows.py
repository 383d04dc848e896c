"""The rows of one pod class: which are feasible and how they score, kept up to date row by row.

The package's docstring says what a column is made of and what makes each part out of date.
"""

from collections.abc import Hashable, Iterator, Sequence
from traceback import walk_tb
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import All, One, Some, View
from holdfast.scheduler.framework.checked_answers import CheckedNormalize
from holdfast.scheduler.framework.diagnosis import Diagnosis
from holdfast.scheduler.framework.feasibility.compiled_class import CompiledClass
from holdfast.scheduler.framework.feasibility.normalized_scores import Normalized
from holdfast.scheduler.framework.feasibility.topology_keys import (
    KeyView,
    TopologyDependencies,
    TopologyKeys,
)
from holdfast.scheduler.framework.guarded import Guarded
from holdfast.scheduler.framework.interface import Scope, Score
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.state.cluster import Cluster

INFEASIBLE = -(2**61)
_FEW = 6
"""Up to this many changed rows are computed one by one, which is then faster than as arrays."""

_FEW_PARTS = 3
"""With no more filters and scores than this, computing a row costs little more than a memo."""
_MEMO_ENTRIES = 4096

At = Any
"""An index into a column: a row, an array of rows, or a slice."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
UsageResult = tuple[bool, int, tuple[int, ...]]
"""The usage part of a row: whether all usage filters pass, the sum of the scores that are not
normalised, and the raw scores that are."""

T = TypeVar("T")


class RowMemo(Generic[T]):
    """Memoizes results for nodes with equal capacity vectors, which fill up in the same steps with
    pods of one class. Gives up where rows turn out to be all different."""

    __slots__ = ("_changed", "_since", "known", "worth_it")

    def __init__(self, changed: RowLog) -> None:
        """`changed` is the log of usage, by which it is judged how often results are needed."""
        self._changed = changed
        self._since = changed.end
        self.known: dict[Hashable, T] = {}
        self.worth_it = True

    def remember(self, key: Hashable, result: T) -> None:
        self.known[key] = result
        if len(self.known) < _MEMO_ENTRIES:
            return
        since, self._since = self._since, self._changed.end
        self.worth_it = self._since - since > 4 * _MEMO_ENTRIES
        self.known.clear()


def capacity_vector(table: NodeTable, row: int) -> tuple[bytes, bytes]:
    """What is claimed on a row, and what its node has."""
    return table.claimed[:, row].tobytes(), table.allocatable[:, row].tobytes()


class ClassRows(CompiledClass):
    memory = 1
    """Memory of this column, relative to one that has no topology part."""
    memory_counted = 0
    """The memory that counts for it in the column store."""
    _base: Ints = np.zeros(0, dtype=np.int64)
    """The sum of the node, usage and normalised scores of each row; INFEASIBLE where a filter other
    than a topology filter fails. As long as the node table's capacity."""
    _base_in_use = _base
    """The same, as long as the node table's size."""
    _passes_node: Bools = np.zeros(0, dtype=np.bool_)
    """The rows that pass the node filters."""
    _passes_usage: Bools = np.zeros(0, dtype=np.bool_)
    """The rows that also pass the usage filters."""
    _node_scores: Sequence[tuple[int, Any]] = ()
    _usage_scores: Sequence[tuple[int, Any]] = ()
    _key_scores: Sequence[tuple[int, Score]] = ()
    _normalized: Sequence[Normalized] = ()
    _size = 0
    _nodes_seen = -1
    _usage_seen = -1

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        super().__init__(cluster, profile, cls)
        self._table = cluster.nodes
        self.diagnosis = Diagnosis(self._table, self.filters, ref(self))
        self._node_log, self._usage_log = cluster.epoch.nodes, cluster.epoch.usage
        self._compile()

    @property
    def fits(self) -> Bools:
        """The rows that pass all filters."""
        fits = self._passes_usage[: self._size]
        return fits if self._keys is None else fits & self._key_passes[self._keys.of[: self._size]]

    def _compile(self) -> None:
        answers = self._answers()
        self._keep_answers(answers)
        self._node_filters = answers.passing(Scope.NODE)
        self._usage_filters = answers.passing(Scope.USAGE)
        self._key_filters = answers.passing(Scope.TOPOLOGY)
        self._only = answers.only
        self.constant = answers.constant
        self._node_scores = answers.node_scores
        self._usage_scores = answers.usage_scores
        self._key_scores = answers.key_scores
        self._normalized = answers.normalized
        self._score_formulas = answers.checked_scores
        self.has_checked_scores = bool(answers.checked_scores)
        by_usage = answers.by_usage
        self._by_amounts = all(part.by_amounts for part in by_usage)
        self._row_kinds = list(dict.fromkeys(part.kind for part in by_usage if part.kind is not None))
        remembers = self._by_amounts and len(by_usage) > _FEW_PARTS
        self._memo: RowMemo[UsageResult] | None = RowMemo(self._epoch.usage) if remembers else None
        keyed = self._key_filters or self._key_scores
        self._keys = TopologyKeys(self._table, answers.facets) if keyed else None
        self.memory = 1 + len(answers.facets)
        facets = [facet for _, f in self.filters for facet in f.facets]
        self.topology_dependencies = TopologyDependencies(self._cluster.classes, facets)
        self._base = self._base[:0]
        self._size = 0
        self.diagnosis.reset()

    def check_scores(self) -> None:
        """A score out of range on a feasible row is a failure of its plugin."""
        for formula in self._score_formulas:
            if formula.bad:
                formula.check(self.fits)
        for normalized in self._normalized:
            if normalized.is_suspect:
                normalized.check(self.fits)

    # Bringing the parts up to date

    def refresh(self) -> None:
        """Brings the column up to date with the cluster."""
        try:
            if (self._versions or self._objects_seen != self._epoch.objects) and self._is_outdated():
                self._compile()
            table, nodes, usage = self._table, self._node_log, self._usage_log
            if len(self._base) != table.capacity or self._size != table.size:
                self._rebuild()
                return
            if nodes.end != self._nodes_seen:
                changed = nodes.since(self._nodes_seen)
                # A changed node may have other topology values, so keys are all computed again.
                if changed is None or len(changed) > table.size // 4 or self._keys is not None:
                    self._rebuild()
                    return
                self._nodes_seen = nodes.end
                self._update(changed, node_too=True)
            elif usage.end == self._usage_seen:
                return
            if usage.end == self._usage_seen + 1:
                # The common case: the row of the pod that was assumed before.
                self._usage_seen += 1
                self._update_row(usage.newest())
            elif usage.end != self._usage_seen:
                changed = usage.since(self._usage_seen)
                if changed is None or len(changed) > table.size:
                    self._rebuild()
                    return
                self._usage_seen = usage.end
                self._update(changed, node_too=False)
            if self._keys is not None:
                self._update_keys(self._keys)
        except RAISED as error:
            self.recover(error)

    def recover(self, error: BaseException) -> None:
        """A formula of one of Holdfast's own plugins raised. Computes all rows again with guarded
        formulas, which report the plugin that fails; see `framework.guarded`."""
        if not self._is_guarded:
            self._is_guarded = True
            self._compile()
            self.refresh()
            # An error that depends on the state may not come again: then its formula is taken for
            # failed all the same, and rows are computed without it.
            if self.failed_in < 0 and any(each.owns_error(error) for each in self._guarded()):
                self._size = 0
                self.refresh()
        if self.failed_in < 0:
            self._close(error)

    def _guarded(self) -> Iterator[Guarded]:
        """The guarded formulas and versions of Holdfast's own plugins."""
        plain = (*self._node_scores, *self._usage_scores)
        scores = [*(each.score for each in self._normalized), *(score for _, score in self._key_scores)]
        for each in (
            *(formula for _, test in self.filters for formula in (test.passes, test.reasons)),
            *(formula for _, formula in plain),
            *(score.score for score in scores),
            *(version for version, _ in self._versions),
        ):
            if isinstance(each, Guarded):
                yield each

    def _close(self, error: BaseException) -> None:
        """No formula failed: reports the plugin in whose module the error was raised. Raises the error
        if there is none."""
        modules = {type(plugin).__module__: plugin for plugin in self._profile.plugins.values()}
        frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
        plugin = next((modules[name] for name in frames if name in modules), None)
        if plugin is None:
            raise error
        self.plugin_failed(plugin, "Filter", error)
        self.rejected, self.rejected_by = self.filter_failure or self.plugin_rejection
        self._keys, self._normalized = None, []
        self._rebuild_closed()

    def _rebuild_closed(self) -> None:
        """Marks every row infeasible. Rows that change are computed again; until plugins are asked
        again it is `rejected` that keeps pods of the class off all of them."""
        capacity = self._table.capacity
        self._size = self._table.size
        self._passes_node = np.zeros(capacity, dtype=np.bool_)
        self._passes_usage = np.zeros(capacity, dtype=np.bool_)
        self._base = np.full(capacity, INFEASIBLE, dtype=np.int64)
        self._base_in_use = self._base[: self._size]

    def _rebuild(self) -> None:
        """Computes every row."""
        table = self._table
        capacity = table.capacity
        self._size = table.size
        self._nodes_seen = self._node_log.end
        self._usage_seen = self._usage_log.end
        self._passes_node = np.zeros(capacity, dtype=np.bool_)
        self._all_pass_node = False
        self._passes_usage = np.zeros(capacity, dtype=np.bool_)
        self._node_score: Ints = np.zeros(capacity if self._node_scores else 0, dtype=np.int64)
        # The sum of scores that are not normalised, kept apart where others are.
        self._local: Ints = np.zeros(capacity if self._normalized else 0, dtype=np.int64)
        self._base = np.full(capacity, INFEASIBLE, dtype=np.int64)
        self._base_in_use = self._base[: self._size]
        self._by_key: Ints = np.zeros(0, dtype=np.int64)
        self._key_passes: Bools = np.zeros(0, dtype=np.bool_)
        for normalized in self._normalized:
            normalized.reset(capacity)
        self._only_rows = self._rows_named()
        self.diagnosis.reset()
        if not self._size:
            return
        self._node_part(All(table), slice(0, self._size))
        keys, self._keys = self._keys, None  # rows are computed before their keys
        self._update_all()
        self._keys = keys
        if keys is not None:
            keys.rebuild(self._passes_usage)
            self._evaluate_keys(keys)

    def _rows_named(self) -> Bools | None:
        """The rows of the nodes that filters name as the only feasible ones; None if none does."""
        if not self._only:
            return None
        mask = np.zeros(self._table.capacity, dtype=np.bool_)
        rows = (self._table.row(name) for name in frozenset.intersection(*self._only))
        mask[[row for row in rows if row is not None]] = True
        return mask

    def _update_row(self, row: int) -> None:
        """As `_update`, for one row whose usage changed."""
        self.diagnosis.row_outdated(row)
        if self._update_one(row, False) and self._keys is None:
            self._normalize(np.array([row]))

    def _update(self, changed: NDArray[np.intp], node_too: bool) -> None:
        """Computes rows again, which may be named several times; their node part too if `node_too`."""
        if node_too and self._only:
            self._only_rows = self._rows_named()
        self.diagnosis.outdated(changed)
        if len(changed) <= _FEW and not (node_too and self._normalized):
            again = False
            for row in set(changed.tolist()):
                again |= self._update_one(row, node_too)
            if again and self._keys is None:
                self._normalize(changed)
            return
        # `_refit` counts feasible rows per key, so that each row must be named once.
        at = changed if self._keys is None else distinct(changed)
        if node_too:
            self._node_part(Some(self._table, at), at)
        self._update_many(at, node_too)

    def _update_one(self, row: int, node_too: bool) -> bool:
        """Computes a row again. Returns whether scores have to be normalised again."""
        table, memo = self._table, self._memo
        if node_too:
            self._node_part(One(table, row), row)
        if not self._passes_node.item(row):
            return self._store(row, False, 0, ())
        if memo is None:
            ok, score, raw = self._usage_result(One(table, row))
        else:
            key: Hashable = capacity_vector(table, row)
            if self._row_kinds:
                key = key, *[kind(row) for kind in self._row_kinds]
            known = memo.known.get(key)
            if known is None:
                known = self._usage_result(One(table, row))
                memo.remember(key, known)
                self._memo = memo if memo.worth_it else None
            ok, score, raw = known
        if ok and self._node_scores:
            score += self._node_score.item(row)
        return self._store(row, ok, score, raw)

    def _usage_result(self, view: One) -> UsageResult:
        """The usage part of a row that passes the node filters."""
        for passes in self._usage_filters:
            if not passes(view):
                return False, 0, ()
        score = 0
        for weight, scores in self._usage_scores:
            score += weight * scores(view)
        return True, score, self._raw_scores(view) if self._normalized else ()

    def _raw_scores(self, view: View) -> tuple[int, ...]:
        """The scores of one row to be normalised; 0 for those that do not change with usage."""
        return tuple([each.score.score(view) if each.by_usage else 0 for each in self._normalized])

    def _store(self, row: int, ok: bool, score: int, raw: tuple[int, ...]) -> bool:
        """Stores the result of a row: whether it is feasible, the sum of its scores that are not
        normalised, and its raw scores. Returns whether scores have to be normalised again."""
        fitted: bool = self._passes_usage.item(row)
        if ok != fitted:
            self._passes_usage[row] = ok
            if self._keys is not None:
                self._keys.refit(row, 1 if ok else -1)
        again = False
        if self._normalized:
            self._local[row] = score
            for i, normalized in enumerate(self._normalized):
                weighted = normalized.update_row(row, raw[i] if ok else 0, fitted, ok)
                if weighted is None:
                    again = True
                else:
                    score += weighted
        self._base[row] = score if ok else INFEASIBLE
        return again

    def _update_all(self) -> None:
        if self._all_pass_node:
            self._compute(All(self._table), slice(0, self._size), node_too=True)
        else:
            self._update_many(np.arange(self._size), node_too=True)

    def _update_many(self, rows: NDArray[np.intp], node_too: bool) -> None:
        """Computes the usage part of rows that pass the node filters."""
        at = rows
        if not self._all_pass_node:
            passing = self._passes_node[rows]
            at = rows[passing]
            if node_too:
                out = rows[~passing]
                self._refit(out, np.zeros(len(out), dtype=np.bool_))
                self._base[out] = INFEASIBLE
        self._compute(Some(self._table, at), at, node_too)

    def _compute(self, view: View, at: At, node_too: bool) -> None:
        ok, local = self._usage_part(view, at)
        refit = self._refit(at, ok)
        if not self._normalized:
            self._base[at] = np.where(ok, local, INFEASIBLE)
            return
        self._local[at] = local
        for normalized in self._normalized:
            if node_too or normalized.by_usage:
                normalized.store(at, normalized.score.score(view))
                refit = True
        if self._keys is None:
            if refit:
                self._normalize(at)
            else:
                self._base[at] = np.where(ok, self._sum_of_scores(at), INFEASIBLE)

    def _usage_part(self, view: View, at: At) -> tuple[Bools, Any]:
        """Which rows pass the usage filters, and the sum of their scores that are not normalised."""
        ok: Any = None
        for passes in self._usage_filters:
            ok = passes(view) if ok is None else ok & passes(view)
        local: Any = self._node_score[at] if self._node_scores else None
        for weight, scores in self._usage_scores:
            part = scores(view) if weight == 1 else weight * scores(view)
            local = part if local is None else local + part
        return view.full(True) if ok is None else ok, 0 if local is None else local

    def _refit(self, at: At, ok: Bools) -> bool:
        """Stores which rows are feasible. Returns whether that changed for any of them."""
        if self._keys is None and not self._normalized:
            self._passes_usage[at] = ok
            return True  # nothing depends on whether it changed
        flips = ok != self._passes_usage[at]
        if not flips.any():
            return False
        if self._keys is not None:
            np.add.at(self._keys.fitting, self._keys.of[at][flips], np.where(ok[flips], 1, -1))
        self._passes_usage[at] = ok
        return True

    def _sum_of_scores(self, at: At) -> Ints:
        total = self._local[at]
        for normalized in self._normalized:
            total = total + normalized.weighted[at]
        return total

    def _normalize(self, at: At) -> None:
        """Brings the base of rows up to date; of all rows if the measure of a normalisation changed."""
        passing = self.fits
        for normalized in self._normalized:
            if normalized.measure_again(self._size, passing):
                at = slice(0, self._size)
        for normalized in self._normalized:
            normalized.weigh(at)
        self._base[at] = np.where(self._passes_usage[at], self._sum_of_scores(at), INFEASIBLE)

    def _node_part(self, view: View, at: At) -> None:
        ok = view.take(self._table.alive)
        if self._only_rows is not None:
            ok = ok & view.take(self._only_rows)
        for passes in self._node_filters:
            ok = ok & passes(view)
        self._passes_node[at] = ok
        self._all_pass_node = bool(self._passes_node[: self._size].all())
        if self._node_scores:
            score = 0
            for weight, scores in self._node_scores:
                score = score + weight * scores(view)
            self._node_score[at] = score

    # Topology

    def _update_keys(self, keys: TopologyKeys) -> None:
        stale = keys.stale_rows()
        if stale is None or keys.crowded:
            keys.rebuild(self._passes_usage)
        elif stale:
            keys.rekey(stale, self._passes_usage)
        self._evaluate_keys(keys)

    def _evaluate_keys(self, keys: TopologyKeys) -> None:
        """Computes the topology filters and scores of every key."""
        view = keys.view()
        passes = view.full(True)
        for test in self._key_filters:
            passes = passes & test(view)
        if self._key_filters:
            self.diagnosis.reset()
        self._key_passes = passes
        if self._normalized:
            self._normalize(slice(0, self._size))
        view.feasible = keys.counts() * passes
        self._by_key = np.where(passes, 0, INFEASIBLE) + self._key_scored(view)

    def _key_scored(self, view: KeyView) -> Any:
        """The topology scores of keys; `view.feasible` has the number of feasible nodes of each."""
        total: Any = 0
        there = view.feasible > 0
        for weight, score in self._key_scores:
            scores = score.score(view)
            if score.normalize is not None and there.any():
                scores = score.normalize.apply(scores, score.normalize.measure(scores[there]))
                if isinstance(score.normalize, CheckedNormalize):
                    score.normalize.check(scores[there])
            total = total + weight * scores
        return total
