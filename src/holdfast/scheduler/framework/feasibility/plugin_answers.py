"""What plugins say of a class of pods: which nodes will do, how well, and for how long that holds."""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.plugin_errors import RAISED, said
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Facet
from holdfast.scheduler.framework.feasibility.checked_answers import (
    Fail,
    ScoreFormula,
    checked_answer,
    checked_score,
)
from holdfast.scheduler.framework.feasibility.normalized_scores import Normalized
from holdfast.scheduler.framework.guarded import guarded_answer, guarded_score
from holdfast.scheduler.framework.interface import (
    Filter,
    Plugin,
    Rejected,
    Scope,
    Score,
    Settled,
    Version,
    everywhere,
)

Asked = tuple[Version, Any]
"""What an answer depends on, and how that was."""


class PluginAnswers:
    """Scores are sorted by what they change with, each with its weight."""

    def __init__(self, cls: PodClass, fail: Fail, foreign: Collection[str], is_guarded: bool) -> None:
        """`fail` is told of whatever plugins raise; see `holdfast.scheduler.framework.guarded`.
        `foreign` are the names of those whose answers are checked."""
        self._cls = cls
        self._fail = fail
        self._foreign = foreign
        self._is_guarded = is_guarded
        self._checks = is_guarded or bool(foreign)
        """Whether there is anything to do with an answer before it is used."""
        self.rejected: Rejected | None = None
        self.rejected_by = ""
        self.unscorable: tuple[Rejected, str] | None = None
        """What a plugin says that cannot score nodes for the class, and which one."""
        self.filters: list[tuple[str, Filter]] = []
        """In the profile's order, by the plugin's name."""
        self.versions: list[tuple[Plugin | None, Version]] = []
        """What the answers depend on, with the plugins that say so."""
        self.constant = 0
        """What all rows have alike."""
        self.node_scores: list[tuple[int, Any]] = []
        self.usage_scores: list[tuple[int, Any]] = []
        self.key_scores: list[tuple[int, Score]] = []
        self.normalized: list[Normalized] = []
        self.checked_scores: list[ScoreFormula] = []
        """Those of plugins from outside."""
        self._by_usage: list[Score] = []

    def reject(self, message: str) -> None:
        """No node is feasible, whatever plugins answer."""
        self.rejected = Rejected(message)

    def filter_by(self, plugins: Iterable[Plugin]) -> None:
        """Asks plugins which nodes will do."""
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
        """What is answered instead, if the pod is to blame rather than the plugin."""
        if isinstance(error, HoldfastError) and plugin.name not in self._foreign:
            return Rejected(said(plugin.name, "PreFilter", error), error=True)
        self._fail(plugin, "PreFilter", error)
        return None

    def score_by(self, scorers: Iterable[tuple[Plugin, int]]) -> None:
        """Asks plugins how well nodes will do."""
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
                elif self.rejected is None and self.unscorable is None:
                    text = said(scorer.name, "PreScore", error)
                    self.unscorable = Rejected(text, error=True), scorer.name
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

    def passing(self, scope: Scope) -> list[Callable[[Any], Any]]:
        return [f.passes for _, f in self.filters if f.scope is scope]

    @property
    def only(self) -> list[frozenset[str]]:
        """The names of the only nodes that will do, by each filter that knows them."""
        return [f.only for _, f in self.filters if f.only is not None]

    @property
    def facets(self) -> list[Facet]:
        """What rows are told apart by where topology matters."""
        filtering = [facet for _, f in self.filters for facet in f.facets]
        return filtering + [facet for _, score in self.key_scores for facet in score.facets]

    @property
    def by_usage(self) -> list[Filter | Score]:
        """All that changes with pods coming and going on a row."""
        return [*(f for _, f in self.filters if f.scope is Scope.USAGE), *self._by_usage]

    def asked(self) -> tuple[list[Asked], list[Asked]]:
        """What the answers depend on: what may change at any time, and what is settled until an object
        changes."""
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
