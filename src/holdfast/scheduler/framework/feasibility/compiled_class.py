"""What the plugins of a profile answer about a pod class, and until when their answers hold.

`PluginAnswers` collects the answers, sorted by what their formulas depend on (`Scope`). `CompiledClass`
keeps them, knows when plugins have to be asked again, and turns what a plugin raises into a rejection.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.plugin_errors import RAISED, error_message
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, Facet, One, View
from holdfast.scheduler.framework.checked_answers import (
    Fail,
    ScoreFormula,
    checked_answer,
    checked_score,
)
from holdfast.scheduler.framework.config.plugin_sets import CALENDAR_FILTER, STARVATION_FILTER
from holdfast.scheduler.framework.feasibility.normalized_scores import Normalized
from holdfast.scheduler.framework.guarded import guarded_answer, guarded_filters, guarded_score
from holdfast.scheduler.framework.interface import (
    Filter,
    Plugin,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
    Version,
    everywhere,
)
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.reservations.starvation_holds import is_hold
from holdfast.scheduler.state.cluster import Cluster

NO_RESERVATIONS = 'profile "{}" has no Reservation plugin, so it schedules no reservations'

_SCORING = ("PreScore", "Score", "NormalizeScore")
"""Extension points where a failure matters only if more than one node is feasible."""

Asked = tuple[Version, Any]
"""A version of an answer, and its value when the plugin was asked."""


class PluginAnswers:
    """The answers of a profile's plugins: filters in the profile's order, scores by their scope, each
    with its weight."""

    def __init__(self, cls: PodClass, fail: Fail, foreign: Collection[str], is_guarded: bool) -> None:
        """`fail` is called with whatever plugins raise; see `holdfast.scheduler.framework.guarded`.
        `foreign` are the names of those whose answers are checked."""
        self._cls = cls
        self._fail = fail
        self._foreign = foreign
        self._is_guarded = is_guarded
        self._checks = is_guarded or bool(foreign)
        """Whether answers are wrapped before they are used."""
        self.rejected: Rejected | None = None
        self.rejected_by = ""
        self.score_failure: tuple[Rejected, str] | None = None
        """Why nodes cannot be scored for the class, and the plugin that says so."""
        self.filters: list[tuple[str, Filter]] = []
        """In the profile's order, by the plugin's name."""
        self.versions: list[tuple[Plugin | None, Version]] = []
        """What the answers depend on, with the plugins that say so."""
        self.constant = 0
        """The score that is the same for all rows."""
        self.node_scores: list[tuple[int, Any]] = []
        self.usage_scores: list[tuple[int, Any]] = []
        self.key_scores: list[tuple[int, Score]] = []
        self.normalized: list[Normalized] = []
        self.checked_scores: list[ScoreFormula] = []
        """The formulas of plugins from outside, whose scores may be out of range."""
        self._by_usage: list[Score] = []

    def reject(self, message: str) -> None:
        """No node is feasible, whatever plugins answer."""
        self.rejected = Rejected(message)

    def filter_by(self, plugins: Iterable[Plugin]) -> None:
        """Asks plugins which nodes are feasible."""
        cls, checks = self._cls, self._checks
        for plugin in plugins:
            if plugin.reads_objects:
                self._note_objects(plugin)
            try:
                answer: Filter | Rejected | None = plugin.filter(cls)
                if answer is None:
                    continue
                if checks:
                    answer = self._checked(plugin, answer)
            except RAISED as error:
                answer = self._failed(plugin, error)
                if answer is None:
                    continue
            if answer.version is not None:
                self.versions.append((plugin, answer.version))
            if isinstance(answer, Rejected):
                if self.rejected is None:
                    self.rejected, self.rejected_by = answer, plugin.name
            elif answer.passes is not everywhere:
                self.filters.append((plugin.name, answer))

    def _checked(self, plugin: Plugin, answer: Filter | Rejected) -> Filter | Rejected:
        if plugin.name in self._foreign:
            return checked_answer(plugin, answer, self._fail)
        return guarded_answer(plugin, answer, self._fail) if self._is_guarded else answer

    def _failed(self, plugin: Plugin, error: BaseException) -> Rejected | None:
        """Rejects the class where the error says that the pod is invalid; else the plugin failed."""
        if isinstance(error, HoldfastError) and plugin.name not in self._foreign:
            return Rejected(error_message(plugin.name, "PreFilter", error), error=True)
        self._fail(plugin, "PreFilter", error)
        return None

    def score_by(self, scorers: Iterable[tuple[Plugin, int]]) -> None:
        """Asks plugins how to score nodes."""
        for scorer, weight in scorers:
            if scorer.reads_objects:
                self._note_objects(scorer)
            try:
                score = scorer.score(self._cls)
                if score is not None and scorer.name in self._foreign:
                    score = checked_score(scorer, score, self._fail)
                    assert isinstance(score.score, ScoreFormula)
                    self.checked_scores.append(score.score)
                elif score is not None and self._is_guarded:
                    score = guarded_score(scorer, score, self._fail)
            except RAISED as error:
                if not isinstance(error, HoldfastError) or scorer.name in self._foreign:
                    self._fail(scorer, "PreScore", error)
                elif self.rejected is None and self.score_failure is None:
                    text = error_message(scorer.name, "PreScore", error)
                    self.score_failure = Rejected(text, error=True), scorer.name
                continue
            if score is not None:
                if score.version is not None:
                    self.versions.append((scorer, score.version))
                self._take(score, weight)

    def _note_objects(self, plugin: Plugin) -> None:
        """What a plugin answers, even that there is nothing to check, may change with what it reads."""
        self.versions.append((plugin, Settled(plugin.handle.version_of(*plugin.reads_objects))))

    def _take(self, score: Score, weight: int) -> None:
        if score.constant is not None:
            self.constant += weight * score.constant
            return
        if score.scope is Scope.TOPOLOGY:
            self.key_scores.append((weight, score))
            return
        if score.scope is Scope.USAGE:
            self._by_usage.append(score)
        if score.normalize is not None:
            self.normalized.append(Normalized(score, weight, score.normalize))
        elif score.scope is Scope.NODE:
            self.node_scores.append((weight, score.score))
        else:
            self.usage_scores.append((weight, score.score))

    @property
    def scores(self) -> bool:
        """Whether any plugin scores nodes, other than all with 0."""
        formulas = (self.node_scores, self.usage_scores, self.key_scores, self.normalized)
        return bool(self.constant or any(formulas))

    def passing(self, scope: Scope) -> list[Callable[[Any], Any]]:
        return [f.passes for _, f in self.filters if f.scope is scope]

    @property
    def only(self) -> list[frozenset[str]]:
        """The names of the only nodes that can be feasible, by each filter that knows them."""
        return [f.only for _, f in self.filters if f.only is not None]

    @property
    def facets(self) -> list[Facet]:
        """The facets of rows that topology filters and scores read."""
        filtering = [facet for _, f in self.filters for facet in f.facets]
        return filtering + [facet for _, score in self.key_scores for facet in score.facets]

    @property
    def by_usage(self) -> list[Filter | Score]:
        """The filters and scores that are computed again when pods come and go on a row."""
        return [*(f for _, f in self.filters if f.scope is Scope.USAGE), *self._by_usage]

    def asked(self) -> tuple[list[Asked], list[Asked]]:
        """The versions of the answers with their values now: those that may change at any time, and
        those that change only with `Epoch.objects`."""
        try:
            asked = [(version, version()) for _, version in self.versions]
        except RAISED:
            asked = [(version, self._now(plugin, version)) for plugin, version in self.versions]
        settled = [pair for pair in asked if isinstance(pair[0], Settled)]
        return [pair for pair in asked if not isinstance(pair[0], Settled)], settled

    def _now(self, plugin: Plugin | None, version: Version) -> Hashable:
        try:
            return version()
        except RAISED as error:
            if plugin is None:
                raise
            self._fail(plugin, "PreFilter", error)
            return None


class CompiledClass:
    """The answers about one class under one profile.

    A class is rejected (no node is feasible) by what a plugin answers (`plugin_rejection`), or because
    one fails: in a filter (`filter_failure`), or, where more than one node is feasible, in a score
    (`score_failure`). `rejected` is what counts of these; `ClassColumn.decide_rejection` sets it.
    """

    has_checked_scores = False
    """Whether plugins from outside score nodes for the class."""
    answers_version = 0
    """Increased each time the plugins are asked."""
    rejected: Rejected | None = None
    """Why no node is feasible; None if nodes may be."""
    rejected_by = ""
    """The plugin that this comes from."""
    plugin_rejection: tuple[Rejected | None, str] = None, ""
    """What a plugin answered, and which one."""
    filter_failure: tuple[Rejected, str] | None = None
    """What a plugin raised that was asked which nodes are feasible, and which one."""
    score_failure: tuple[Rejected, str] | None = None
    """Why nodes cannot be scored for the class, and the plugin that says so."""
    failed_in = -1
    """The round in which a plugin failed last; it is asked again in the next one."""
    _is_guarded = False
    """Whether a formula of one of Holdfast's own plugins raised; see `framework.guarded`."""
    _guarded_filters: list[tuple[str, Filter]] | None = None
    """Created on first use."""
    _versions: list[Asked]
    _settled: list[Asked]

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        self._cluster = cluster
        self._epoch = cluster.epoch
        self._profile = profile
        self.cls = cls
        self._fail = _failure_handler(self)
        self.filters: list[tuple[str, Filter]] = []
        """In the profile's order, by the plugin's name. Their formulas may raise; outside of `refresh`
        use `guarded_filters`."""

    @property
    def guarded_filters(self) -> list[tuple[str, Filter]]:
        """The filters, with formulas that never raise."""
        found = self._guarded_filters
        if found is None:
            found = self._guarded_filters = self._guard()
        return found

    def _guard(self) -> list[tuple[str, Filter]]:
        return guarded_filters(self.filters, self._profile.plugins, self._fail)

    def _ask(self, plugins: list[Plugin]) -> PluginAnswers:
        """Asks plugins which nodes are feasible."""
        self.answers_version += 1
        if self.failed_in != self._cluster.plugin_errors.round:
            self.filter_failure, self.score_failure, self.failed_in = None, None, -1
        answers = PluginAnswers(self.cls, self._fail, self._profile.foreign, self._is_guarded)
        if self.cls.owner_spec_id >= 0 and not self._profile.reservation_plugin:
            answers.reject(NO_RESERVATIONS.format(self._profile.scheduler_name))
        answers.filter_by(plugins)
        return answers

    def _answers(self) -> PluginAnswers:
        """Asks all plugins."""
        answers = self._ask(self._profile.filters)
        filter_versions = add_starvation_filter(self._cluster, self._profile, self.cls, answers.filters)
        filter_versions += add_calendar_filter(self._cluster, self._profile, self.cls, answers.filters)
        answers.versions += [(None, version) for version in filter_versions]
        answers.score_by(self._profile.scorers)
        return answers

    def _keep_answers(self, answers: PluginAnswers) -> None:
        """Keeps rejections, filters and versions."""
        self.plugin_rejection = answers.rejected, answers.rejected_by
        self.rejected, self.rejected_by = self.plugin_rejection
        if answers.score_failure is not None:
            self.score_failure = answers.score_failure
        self.filters[:] = answers.filters
        self._guarded_filters = None
        self._versions, self._settled = answers.asked()
        self._objects_seen = self._epoch.objects

    def plugin_failed(self, plugin: Plugin, point: str, error: BaseException) -> None:
        """Event handler for a plugin that raised, or gave an invalid answer. A failure to score
        matters only if more than one node is feasible."""
        errors = self._cluster.plugin_errors
        message = errors.note(plugin.name, point, error)
        self.failed_in = errors.round
        rejected = Rejected(message, error=True), plugin.name
        if point not in _SCORING:
            self.filter_failure = self.filter_failure or rejected
        elif self.score_failure is None:
            self.score_failure = rejected

    def has_failed(self) -> bool:
        """Whether a plugin failed since it was last asked about the class."""
        return self.failed_in >= 0

    def _is_outdated(self) -> bool:
        """Whether plugins may answer differently now."""
        for version, seen in self._versions:
            if version() != seen:
                return True
        if self._objects_seen != self._epoch.objects:
            for version, seen in self._settled:
                if version() != seen:
                    return True
            self._objects_seen = self._epoch.objects
        return False


class ClassFilters(CompiledClass):
    """The filters of a class, without results for rows: for rows as they will be."""

    def __init__(self, cluster: Cluster, profile: Profile, cls: PodClass) -> None:
        super().__init__(cluster, profile, cls)
        self._compile()

    @property
    def facets(self) -> list[Facet]:
        """What its filters on topology read; not refreshed."""
        return [facet for _, test in self.filters for facet in test.facets]

    def refresh(self) -> None:
        """Asks plugins again that may answer differently now."""
        has_failed = 0 <= self.failed_in != self._cluster.plugin_errors.round
        outdated = self._versions or self._objects_seen != self._epoch.objects
        if has_failed or (outdated and self._is_outdated()):
            self._compile()

    def _compile(self) -> None:
        self._keep_answers(self._ask(self._profile.filters))


def _failure_handler(compiled: CompiledClass) -> Fail:
    """Reports a failed plugin to the class. Answers keep the handler, which must not keep the class:
    a column is large, and reference cycles are collected late."""
    known = ref(compiled)

    def fail(plugin: Plugin, point: str, error: BaseException) -> None:
        known_class = known()
        if known_class is not None:
            known_class.plugin_failed(plugin, point, error)

    return fail


RESERVED = "node(s) resource was(were) reserved"


def add_starvation_filter(
    cluster: Cluster, profile: Profile, cls: PodClass, filters: list[tuple[str, Filter]]
) -> list[Version]:
    """Adds the filter that keeps other pods off nodes with starvation holds, if the reserve action is
    configured to; returns what its presence depends on. It stands before NodeResourcesFit, so that its
    reason is the one reported. Pods that request nothing, and the pod a node is held for, pass; so do
    reservations with a start, also when they are late: holds come after these."""
    holds = cluster.reservations.starvation_holds
    if not cluster.settings.holds_nodes or not cls.requests or is_hold(cls) or cls.is_planned:
        return []
    if holds:

        def barred(view: View) -> Cells:
            if isinstance(view, One):
                return holds.blocks(cls, view.rows)
            return view.take(holds.blocked_for(cls))

        def passes(view: View) -> Cells:
            return view.negate(barred(view))

        def reasons(view: View) -> list[Reason]:
            return [Reason(RESERVED, barred(view), resolvable=False)]

        order = profile.filter_order
        place = sum(order.get(name, -1) < order[STARVATION_FILTER] for name, _ in filters)
        filters.insert(place, (STARVATION_FILTER, Filter(passes, reasons, Scope.USAGE)))
    return [Settled(lambda: bool(holds))]


PLANNED = "node(s) had capacity planned for reservations that start later"


def add_calendar_filter(
    cluster: Cluster, profile: Profile, cls: PodClass, filters: list[tuple[str, Filter]]
) -> list[Version]:
    """Adds the filter that keeps pods off what reservations will take later, if there are such
    reservations; returns what its presence depends on. It stands behind NodeResourcesFit and takes a
    pod for one that never ends: the backfill action places those that end in time. Of a pre-allocation
    only what is planned counts, as pods that are in its way will end. Between planned reservations the
    planner decides, unless one had no node at its start and is pending: it does not wait on a node for
    what a certain plan of no lower priority needs."""
    calendar, planner = cluster.reservations.calendar, cluster.jobs.planner
    if calendar and (not cls.is_planned or cls.id in calendar.late):
        nodes, limits, pods_end = cluster.nodes, cluster.limits, cls.pre_allocation
        holds = cluster.reservations.starvation_holds
        needed = planner.planned if pods_end else planner.blocked

        def left(view: View, slot: int) -> Cells:
            if nodes.slots.name(slot) and not pods_end:
                return view.free(slot)
            capacity = view.take(limits.capacity(slot))
            if not pods_end:
                return capacity - view.claimed(slot)
            kept = view.take(nodes.held_once_pods_end[slot]) + view.take(nodes.daemon_requested[slot])
            return capacity - kept + holds.outranked(cls, view, slot)

        def is_in_the_way(view: View, row: int) -> bool:
            # What an owner uses of a reservation there is released with the reservation.
            return view.entries is None and bars(row)

        def bars(row: int) -> bool:
            if planner.is_in_the_way(cls, row, pods_end=pods_end):
                return True
            if not (pods_end and cls.is_planned):
                return False
            return not planner.leaves(row, dict(cls.usage), planner.certain_plans(row, cls.priority))

        def barred(view: View) -> Cells:
            if isinstance(view.rows, int):
                if not calendar.has(view.rows):
                    return False
                amounts, needs = dict(cls.usage), needed(view.rows).items()
                return any(
                    amounts.get(slot) and left(view, slot) - n < amounts[slot] for slot, n in needs
                ) or is_in_the_way(view, view.rows)
            amounts, kept = dict(cls.usage), dict[int, NDArray[np.int64]]()
            lacks = np.zeros(nodes.capacity, dtype=np.bool_)
            here = calendar.rows()
            if len(view) < nodes.size:
                here = sorted({*here} & {*view.rows.tolist()})
            for row in here:
                lacks[row] = is_in_the_way(view, row)
                for slot, n in needed(row).items():
                    if amounts.get(slot):
                        kept.setdefault(slot, np.zeros(nodes.capacity, dtype=np.int64))[row] = n
            found = view.take(lacks)
            for slot, column in kept.items():
                planned = view.take(column)
                found = found | ((planned > 0) & (left(view, slot) - planned < amounts[slot]))
            return found

        def passes(view: View) -> Cells:
            return view.negate(barred(view))

        def reasons(view: View) -> list[Reason]:
            return [Reason(PLANNED, barred(view))]

        # Rows of one kind have equal amounts planned; most have none.
        def kind(row: int) -> tuple[tuple[tuple[int, int], ...], bool] | None:
            if not calendar.has(row):
                return None
            blocked = tuple(sorted(needed(row).items()))
            return blocked, bars(row)

        _insert(Filter(passes, reasons, Scope.USAGE, kind=kind), profile, filters)
    return [Settled(lambda: (bool(calendar), cls.id in calendar.late))]


def add_planned_volumes_filter(
    cluster: Cluster, profile: Profile, cls: PodClass, filters: list[tuple[str, Filter]]
) -> list[Version]:
    """As `add_calendar_filter`, of planned reservations with volumes, for a class with volumes: the
    same class without volumes is compared with what else is planned. A claim that only one pod can use
    is kept for a reservation on whichever node it is planned."""
    calendar, planner, nodes = cluster.reservations.calendar, cluster.jobs.planner, cluster.nodes
    if calendar and (not cls.is_planned or cls.id in calendar.late):

        def bars(row: int) -> bool:
            pods = [each.reservation.pod for each in calendar.on(row)]
            if not any(pod is not None and pod.cls.volumes for pod in pods):
                return False
            return planner.is_in_the_way(cls, row, pods_end=cls.pre_allocation)

        def needs_claim() -> bool:
            return not cls.is_planned and planner.needs_claim_of(cls, pods_end=cls.pre_allocation)

        def barred(view: View) -> Cells:
            if needs_claim():
                return view.full(True)
            if isinstance(view.rows, int):
                return bars(view.rows)
            found = np.zeros(nodes.capacity, dtype=np.bool_)
            for row in calendar.rows():
                found[row] = bars(row)
            return view.take(found)

        def passes(view: View) -> Cells:
            return view.negate(barred(view))

        def reasons(view: View) -> list[Reason]:
            return [Reason(PLANNED, barred(view))]

        _insert(Filter(passes, reasons, Scope.USAGE, version=needs_claim), profile, filters)
    return [Settled(lambda: (bool(calendar), cls.id in calendar.late))]


def _insert(made: Filter, profile: Profile, filters: list[tuple[str, Filter]]) -> None:
    """Inserts a filter on planned reservations in the profile's order."""
    order = profile.filter_order
    place = sum(order.get(name, -1) < order[CALENDAR_FILTER] for name, _ in filters)
    filters.insert(place, (CALENDAR_FILTER, made))
