"""Nodes held for starving jobs take nothing new, if the reserve action says so.

It is judged just before room is, so that this is the reason given. Pods that ask for nothing pass, and
so does the pod a node is held for. Where nothing is held there is nothing to check.
"""

from collections.abc import Collection, Iterator
from traceback import walk_tb
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.view import All, Cells, Facet, One, Some, View
from holdfast.scheduler.framework.diagnosis import Diagnosis
from holdfast.scheduler.framework.feasibility.checked_answers import CheckedNormalize, Fail
from holdfast.scheduler.framework.feasibility.memo import RowMemo, amounts
from holdfast.scheduler.framework.feasibility.plugin_answers import PluginAnswers
from holdfast.scheduler.framework.feasibility.topology_keys import KeyView, TopologyKeys
from holdfast.scheduler.framework.guarded import Guarded, guarded_filters
from holdfast.scheduler.framework.interface import (
    Filter,
    Plugin,
    Reason,
    Rejected,
    Scope,
    Settled,
    Version,
)
from holdfast.scheduler.framework.plugin_names import BARRIER
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.jobs.starvation_holds import is_hold

RESERVED = "node(s) resource was(were) reserved"


def add_starvation_filter(
    cluster: Cluster, profile: Profile, cls: PodClass, filters: list[tuple[str, Filter]]
) -> list[Version]:
    """Puts the barrier among a class's filters; what its being there depends on."""
    holds = cluster.jobs.holds
    if not holds.bars_nodes or not cls.requests or is_hold(cls):
        return []
    if holds:

        def barred(view: View) -> Cells:
            if isinstance(view, One):
                return holds.bars(cls, view.rows)
            return view.take(holds.barred_to(cls))

        def passes(view: View) -> Cells:
            return view.negate(barred(view))

        def reasons(view: View) -> list[Reason]:
            return [Reason(RESERVED, barred(view), resolvable=False)]

        order = profile.filter_order
        place = sum(order.get(name, -1) < order[BARRIER] for name, _ in filters)
        filters.insert(place, (BARRIER, Filter(passes, reasons, Scope.USAGE)))
    return [Settled(lambda: bool(holds))]


# What is known of every row for one pod class, kept up to date.
#
# After a pod is placed one row has changed, and only that row is computed again. What a class knows of
# a row is made up of parts that change for different reasons:
#
#     fits_node   the node object suits the class           changes with the node object
#     fits        … and there is room on it                 also with pods coming and going there
#     base        the weighted scores of the row            likewise
#     key         which topology domains it is in           changes with labels, and counts in domains
#     by_key      verdict and scores of topology plugins    recomputed for all keys, which are few
#
# The best row is the maximum of `base + by_key[key]`; what does not fit is INFEASIBLE in either.
#
# Scores that are normalised depend on all rows that pass all filters. They keep their raw values, and
# are worked out anew as a whole only when what the normalisation measures (say, the best raw score)
# changed.


NO_RESERVATIONS = 'profile "{}" has no Reservation plugin, so it schedules no reservations'
INFEASIBLE = -(2**61)
_FEW = 6
"""Up to this many rows are computed one by one, which is then faster than as a vector."""

_SCORING = ("PreScore", "Score", "NormalizeScore")
_FEW_PARTS = 3
"""With no more filters and scores than this a look at a row costs little more than to remember one."""

At = Any
"""An index into a column: a row, an array of rows, or a slice."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Looked = tuple[bool, int, tuple[int, ...]]
"""What came of a row: whether there is room, what is not normalised of its score by usage, and what is,
still raw."""


class ClassRows:
    has_checked_scores = False
    """Whether plugins from outside score nodes for the class."""
    weight = 1
    """Compared with a column that sees nothing of topology, what it takes to keep this one."""
    weighed = 0
    """The weight that counts for it among the columns that are kept."""
    compiled = 0
    """How often the plugins were asked."""
    rejected: Rejected | None = None
    rejected_by = ""
    rejection: tuple[Rejected | None, str] = None, ""
    """What plugins answered; `rejected` also has what they failed to."""
    unscorable: tuple[Rejected, str] | None = None
    """What a plugin says that cannot score nodes for the class, and which one."""
    failure: tuple[Rejected, str] | None = None
    """What a plugin raised that was asked which nodes will do, and which one."""
    failed_in = -1
    """The round in which a plugin failed last: in the next one it is asked again."""
    _is_guarded = False
    """Whether a formula of one of Holdfast's own plugins raised; see `framework.guarded`."""
    _guarded_filters: list[tuple[str, Filter]] | None = None
    """Once somebody has asked for them."""
    _base: Ints = np.zeros(0, dtype=np.int64)
    _base_there = _base
    """Of the rows there are: without what is kept beyond them."""
    _fits_node: Bools = np.zeros(0, dtype=np.bool_)
    _fits: Bools = np.zeros(0, dtype=np.bool_)
    _size = 0
    _nodes_seen = -1
    _usage_seen = -1

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._profile = profile
        self.cls = cls
        self._fail = _teller(self)
        self.filters: list[tuple[str, Filter]] = []
        """In the profile's order, by the plugin's name; bare, unless one has failed. Whoever computes
        with them outside of `refresh` takes `guarded_filters`."""
        self.diagnosis = Diagnosis(self._table, self.filters, ref(self))
        self._node_log, self._usage_log = cluster.epoch.nodes, cluster.epoch.usage
        self._compile()

    @property
    def guarded_filters(self) -> list[tuple[str, Filter]]:
        """The filters with formulas that never raise."""
        found = self._guarded_filters
        if found is None:
            found = self._guarded_filters = self._guard()
        return found

    def _guard(self) -> list[tuple[str, Filter]]:
        return guarded_filters(self.filters, self._profile.plugins, self._fail)

    @property
    def fits(self) -> Bools:
        """The rows that pass all filters."""
        fits = self._fits[: self._size]
        return fits if self._keys is None else fits & self._key_passes[self._keys.of[: self._size]]

    # Asking the plugins about the class

    def _ask(self, plugins: list[Plugin]) -> PluginAnswers:
        """Asks plugins which nodes will do."""
        self.compiled += 1
        if self.failed_in != self._cluster.plugin_errors.round:
            self.failure, self.unscorable, self.failed_in = None, None, -1
        answers = PluginAnswers(self.cls, self._fail, self._profile.foreign, self._is_guarded)
        if self.cls.owner_spec_id >= 0 and not self._profile.reservation_plugin:
            answers.reject(NO_RESERVATIONS.format(self._profile.scheduler_name))
        answers.filter_by(plugins)
        return answers

    def _answers(self) -> PluginAnswers:
        """Asks all plugins."""
        answers = self._ask(self._profile.filters)
        filter_versions = add_starvation_filter(self._cluster, self._profile, self.cls, answers.filters)
        answers.versions += [(None, version) for version in filter_versions]
        answers.score_by(self._profile.scorers)
        return answers

    def _heed(self, answers: PluginAnswers) -> None:
        """Takes what was answered about all nodes at once."""
        self.rejection = answers.rejected, answers.rejected_by
        self.rejected, self.rejected_by = self.rejection
        if answers.unscorable is not None:
            self.unscorable = answers.unscorable
        self.filters[:] = answers.filters
        self._guarded_filters = None
        self._versions, self._settled = answers.asked()
        self._stamp = self._cluster.epoch.objects

    def _compile(self) -> None:
        answers = self._answers()
        self._heed(answers)
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
        self._kinds = list(dict.fromkeys(part.kind for part in by_usage if part.kind is not None))
        remembers = self._by_amounts and len(by_usage) > _FEW_PARTS
        self._alike: RowMemo[Looked] | None = RowMemo(self._cluster.epoch.usage) if remembers else None
        keyed = self._key_filters or self._key_scores
        self._keys = TopologyKeys(self._table, answers.facets) if keyed else None
        self.weight = 1 + len(answers.facets)
        facets = [facet for _, f in self.filters for facet in f.facets]
        self.topology_dependencies = TopologyDependencies(self._cluster.classes, facets)
        self._base = self._base[:0]
        self._size = 0
        self.diagnosis.reset()

    def plugin_failed(self, plugin: Plugin, point: str, error: BaseException) -> None:
        """A plugin raised something, or answered with what is none. Where it was to score nodes, that
        matters only if there is a choice."""
        errors = self._cluster.plugin_errors
        message = errors.note(plugin.name, point, error)
        self.failed_in = errors.round
        rejected = Rejected(message, error=True), plugin.name
        if point not in _SCORING:
            self.failure = self.failure or rejected
        elif self.unscorable is None:
            self.unscorable = rejected

    def check_scores(self) -> None:
        """Scores out of range are a failure of their plugin, on rows that fit."""
        for formula in self._score_formulas:
            if formula.bad:
                formula.check(self.fits)
        for normalized in self._normalized:
            if normalized.is_suspect:
                normalized.check(self.fits)

    # Keeping up

    def refresh(self) -> None:
        """Catches up with what happened since the last call."""
        try:
            if (self._versions or self._stamp != self._cluster.epoch.objects) and self._is_outdated():
                self._compile()
            table, nodes, usage = self._table, self._node_log, self._usage_log
            if len(self._base) != table.capacity or self._size != table.size:
                self._rebuild()
                return
            if nodes.end != self._nodes_seen:
                changed = nodes.since(self._nodes_seen)
                if changed is None or len(changed) > table.size // 4 or self._keys is not None:
                    self._rebuild()
                    return
                self._nodes_seen = nodes.end
                self._update(changed, node_too=True)
            elif usage.end == self._usage_seen:
                return
            if usage.end == self._usage_seen + 1:
                # Mostly it is the row of the pod placed before.
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
        """A formula of one of Holdfast's own plugins raised. Everything is computed again with guarded
        formulas, and whose formula fails then is to blame; see `framework.guarded`."""
        if not self._is_guarded:
            self._is_guarded = True
            self._compile()
            self.refresh()
            if self.failed_in < 0 and any(each.rejections(error) for each in self._guarded()):
                self._size = 0
                self.refresh()
        if self.failed_in < 0:
            self._close(error)

    def _guarded(self) -> Iterator[Guarded]:
        """The guarded formulas and versions, of Holdfast's own plugins."""
        weighed = (*self._node_scores, *self._usage_scores)
        scores = [*(each.score for each in self._normalized), *(score for _, score in self._key_scores)]
        for each in (
            *(formula for _, test in self.filters for formula in (test.passes, test.reasons)),
            *(formula for _, formula in weighed),
            *(score.score for score in scores),
            *(version for version, _ in self._versions),
        ):
            if isinstance(each, Guarded):
                yield each

    def _close(self, error: BaseException) -> None:
        """No formula is to blame: the plugin is in whose module the error arose. Raises the error if
        there is none."""
        modules = {type(plugin).__module__: plugin for plugin in self._profile.plugins.values()}
        frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
        plugin = next((modules[name] for name in frames if name in modules), None)
        if plugin is None:
            raise error
        self.plugin_failed(plugin, "Filter", error)
        self.rejected, self.rejected_by = self.failure or self.rejection
        self._keys, self._normalized = None, []
        self._rebuild_closed()

    def _rebuild_closed(self) -> None:
        """No row is feasible, until plugins are asked again."""
        capacity = self._table.capacity
        self._size = self._table.size
        self._fits_node = np.zeros(capacity, dtype=np.bool_)
        self._fits = np.zeros(capacity, dtype=np.bool_)
        self._base = np.full(capacity, INFEASIBLE, dtype=np.int64)
        self._base_there = self._base[: self._size]

    def _is_outdated(self) -> bool:
        """Whether the plugins might answer differently about the class."""
        for version, seen in self._versions:
            if version() != seen:
                return True
        if self._stamp != self._cluster.epoch.objects:
            for version, seen in self._settled:
                if version() != seen:
                    return True
            self._stamp = self._cluster.epoch.objects
        return False

    def _rebuild(self) -> None:
        """Computes every row."""
        table = self._table
        capacity = table.capacity
        self._size = table.size
        self._nodes_seen = self._node_log.end
        self._usage_seen = self._usage_log.end
        self._fits_node = np.zeros(capacity, dtype=np.bool_)
        self._all_suit = False
        self._fits = np.zeros(capacity, dtype=np.bool_)
        self._node_score: Ints = np.zeros(capacity if self._node_scores else 0, dtype=np.int64)
        self._local: Ints = np.zeros(capacity if self._normalized else 0, dtype=np.int64)
        self._base = np.full(capacity, INFEASIBLE, dtype=np.int64)
        self._base_there = self._base[: self._size]
        self._by_key: Ints = np.zeros(0, dtype=np.int64)
        self._key_passes: Bools = np.zeros(0, dtype=np.bool_)
        for normalized in self._normalized:
            normalized.reset(capacity)
        self._only_rows = self._rows_named()
        self.diagnosis.reset()
        if not self._size:
            return
        self._node_part(All(table), slice(0, self._size))
        keys, self._keys = self._keys, None
        self._update_all()
        self._keys = keys
        if keys is not None:
            keys.rebuild(self._fits)
            self._judge_keys(keys)

    def _rows_named(self) -> Bools | None:
        """The rows of the only nodes worth looking at, if the class names them."""
        if not self._only:
            return None
        mask = np.zeros(self._table.capacity, dtype=np.bool_)
        rows = (self._table.row(name) for name in frozenset.intersection(*self._only))
        mask[[row for row in rows if row is not None]] = True
        return mask

    def _update_row(self, row: int) -> None:
        """As `_update`, for a row on which pods came or went."""
        self.diagnosis.row_outdated(row)
        if self._update_one(row, False) and self._keys is None:
            self._normalize(np.array([row]))

    def _update(self, changed: NDArray[np.intp], node_too: bool) -> None:
        """`changed` may name a row several times."""
        if node_too and self._only:
            self._only_rows = self._rows_named()
        self.diagnosis.outdated(changed)
        if len(changed) <= _FEW and not (node_too and self._normalized):
            anew = False
            for row in set(changed.tolist()):
                anew |= self._update_one(row, node_too)
            if anew and self._keys is None:
                self._normalize(changed)
            return
        at = changed if self._keys is None else distinct(changed)
        if node_too:
            self._node_part(Some(self._table, at), at)
        self._update_many(at, node_too)

    def _update_one(self, row: int, node_too: bool) -> bool:
        """Whether scores have to be normalised anew."""
        table, alike = self._table, self._alike
        if node_too:
            self._node_part(One(table, row), row)
        if not self._fits_node.item(row):
            return self._settle(row, False, 0, ())
        if alike is None:
            ok, score, raw = self._look_at(One(table, row))
        else:
            key = (*amounts(table, row), *[kind(row) for kind in self._kinds])
            known = alike.known.get(key)
            if known is None:
                known = self._look_at(One(table, row))
                alike.remember(key, known)
                self._alike = alike if alike.worth_it else None
            ok, score, raw = known
        if ok and self._node_scores:
            score += self._node_score.item(row)
        return self._settle(row, ok, score, raw)

    def _look_at(self, view: One) -> Looked:
        """A row whose node object suits the class."""
        for passes in self._usage_filters:
            if not passes(view):
                return False, 0, ()
        score = 0
        for weight, scores in self._usage_scores:
            score += weight * scores(view)
        return True, score, self._raw_scores(view) if self._normalized else ()

    def _raw_scores(self, view: View) -> tuple[int, ...]:
        """Those of one row that are normalised; 0 for those that do not change with usage."""
        return tuple([each.score.score(view) if each.by_usage else 0 for each in self._normalized])

    def _settle(self, row: int, ok: bool, score: int, raw: tuple[int, ...]) -> bool:
        """Takes note of what came of a row: whether it fits, what is not normalised of its score and,
        if it fits, what is. Whether that has to be normalised anew."""
        fitted: bool = self._fits.item(row)
        if ok != fitted:
            self._fits[row] = ok
            if self._keys is not None:
                self._keys.refit(row, 1 if ok else -1)
        anew = False
        if self._normalized:
            self._local[row] = score
            for i, normalized in enumerate(self._normalized):
                weighted = normalized.follow(row, raw[i] if ok else 0, fitted, ok)
                if weighted is None:
                    anew = True
                else:
                    score += weighted
        self._base[row] = score if ok else INFEASIBLE
        return anew

    def _update_all(self) -> None:
        if self._all_suit:
            self._compute(All(self._table), slice(0, self._size), node_too=True)
        else:
            self._update_many(np.arange(self._size), node_too=True)

    def _update_many(self, rows: NDArray[np.intp], node_too: bool) -> None:
        """Only rows whose node object suits the class are looked at further."""
        at = rows
        if not self._all_suit:
            suits = self._fits_node[rows]
            at = rows[suits]
            if node_too:
                out = rows[~suits]
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
                normalized.raw[at] = normalized.score.score(view)
                refit = True
        if self._keys is None:
            if refit:
                self._normalize(at)
            else:
                self._base[at] = np.where(ok, self._weighed(at), INFEASIBLE)

    def _usage_part(self, view: View, at: At) -> tuple[Bools, Any]:
        """Which rows have room, and what is not normalised of their scores."""
        ok: Any = None
        for passes in self._usage_filters:
            ok = passes(view) if ok is None else ok & passes(view)
        local: Any = self._node_score[at] if self._node_scores else None
        for weight, scores in self._usage_scores:
            part = scores(view) if weight == 1 else weight * scores(view)
            local = part if local is None else local + part
        return view.full(True) if ok is None else ok, 0 if local is None else local

    def _refit(self, at: At, ok: Bools) -> bool:
        """Takes note of which rows fit; whether that changed for any."""
        if self._keys is None and not self._normalized:
            self._fits[at] = ok
            return True  # nobody cares
        flips = ok != self._fits[at]
        if not flips.any():
            return False
        if self._keys is not None:
            np.add.at(self._keys.fitting, self._keys.of[at][flips], np.where(ok[flips], 1, -1))
        self._fits[at] = ok
        return True

    def _weighed(self, at: At) -> Ints:
        total = self._local[at]
        for normalized in self._normalized:
            total = total + normalized.weighted[at]
        return total

    def _normalize(self, at: At) -> None:
        """Brings the base of some rows up to date, of all if a normalisation measures anew."""
        passing = self.fits
        for normalized in self._normalized:
            if normalized.is_outdated(self._size, passing):
                at = slice(0, self._size)
        for normalized in self._normalized:
            normalized.weigh(at)
        self._base[at] = np.where(self._fits[at], self._weighed(at), INFEASIBLE)

    def _node_part(self, view: View, at: At) -> None:
        ok = view.take(self._table.alive)
        if self._only_rows is not None:
            ok = ok & view.take(self._only_rows)
        for passes in self._node_filters:
            ok = ok & passes(view)
        self._fits_node[at] = ok
        self._all_suit = bool(self._fits_node[: self._size].all())
        if self._node_scores:
            score = 0
            for weight, scores in self._node_scores:
                score = score + weight * scores(view)
            self._node_score[at] = score

    # Topology

    def _update_keys(self, keys: TopologyKeys) -> None:
        stale = keys.stale_rows()
        if stale is None or keys.crowded:
            keys.rebuild(self._fits)
        elif stale:
            keys.rekey(stale, self._fits)
        self._judge_keys(keys)

    def _judge_keys(self, keys: TopologyKeys) -> None:
        """Puts the questions of topology plugins to every key."""
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
        """The scores of keys, given how many nodes of each are `feasible`."""
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


def _teller(column: ClassRows) -> Fail:
    """Tells the column that a plugin failed. It is part of what plugins answered, which must not keep
    the column when that is dropped."""
    known = ref(column)

    def fail(plugin: Plugin, point: str, error: BaseException) -> None:
        told = known()
        if told is not None:
            told.plugin_failed(plugin, point, error)

    return fail


# Whom a class minds: pods that by topology bear on where its own can be.


class TopologyDependencies:
    def __init__(self, classes: PodClasses, facets: Collection[Facet]) -> None:
        """`facets` are those that filters go by."""
        self._classes = classes
        self._facets = facets
        self._known: dict[int, bool] = {}
        self._all: tuple[int, list[PodClass]] = (-1, [])

    def includes(self, cls: PodClass) -> bool:
        minded = self._known.get(cls.id)
        if minded is None:
            minded = self._known[cls.id] = any(facet.counts(cls) for facet in self._facets)
        return minded

    def all(self, stamp: int) -> list[PodClass]:
        """The classes it minds, as of the cluster's stamp, which moves when classes come or go."""
        then, found = self._all
        if then != stamp:
            found = [cls for cls in self._classes if self.includes(cls)]
            self._all = stamp, found
        return found
