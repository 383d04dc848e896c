"""Questions to a scheduler about one pod, each put on every path there is to its answer."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from holdfast.plugin.testing.paths import ContractBroken, Paths, PluginRaised
from holdfast.scheduler.cluster.plugin_errors import RAISED, text_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.checked_answers import checked_filter, checked_score, is_foreign
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE
from holdfast.scheduler.framework.feasibility.topology_keys import TopologyKeys
from holdfast.scheduler.framework.interface import MAX_SCORE, Filter, Plugin, Rejected, Scope, Score
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.scheduler import Scheduler


class Answers(NamedTuple):
    """The results of one plugin for one pod, by node name."""

    passes: dict[str, bool]
    raw_scores: dict[str, float]
    scores: dict[str, int]


class Asking:
    def __init__(
        self, scheduler: Scheduler, plugins: Iterable[str], keeps_errors: bool = False
    ) -> None:
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._table = scheduler.cluster.nodes
        self._plugins = tuple(plugins)
        self._keeps_errors = keeps_errors

    def profile(self, pod: PodRecord) -> Profile:
        profile = self._scheduler.profile_of(pod.scheduler)
        if profile is None:
            raise ValueError(f"{pod.ref}: no profile has the scheduler name {pod.scheduler}")
        return profile

    def where(self, pod: PodRecord) -> str | None:
        """The node the pod would get."""
        row = self.row(pod)
        return self._table.name(row) if row >= 0 else None

    def row(self, pod: PodRecord) -> int:
        profile, search = self.profile(pod), self._scheduler.search
        return search.find_row(profile, pod, self._column(profile, pod.cls))

    def why_not(self, pod: PodRecord) -> dict[str, list[str]]:
        """The reasons of each node that the pod cannot go to."""
        profile, search = self.profile(pod), self._scheduler.search
        rejections = search.rejections(profile, pod, self._column(profile, pod.cls))
        return {
            name: list(rejection.texts) for name, rejection in rejections.items() if rejection.texts
        }

    def answers(self, pod: PodRecord, plugin: str) -> Answers:
        """The results of the plugin itself, compared on every path."""
        profile = self.profile(pod)
        if plugin not in profile.plugins:
            raise ValueError(f"the profile {profile.scheduler_name} has no plugin {plugin}")
        return self._answers(profile, profile.plugins[plugin], pod.cls)

    def check(self, pod: PodRecord) -> None:
        """Compares every path, for every plugin that is tested."""
        profile = self.profile(pod)
        for name in self._plugins:
            if name not in profile.plugins:
                continue
            try:
                self._answers(profile, profile.plugins[name], pod.cls)
            except PluginRaised:
                if not self._keeps_errors:
                    raise

    def _answers(self, profile: Profile, plugin: Plugin, cls: PodClass) -> Answers:
        paths = Paths(self._cluster, plugin.name)
        passes = self._passes(paths, plugin, cls, profile)
        column = self._column(profile, cls)
        if column.rejected is not None and column.failed_in >= 0:
            raise PluginRaised(column.rejected.message)
        fits = column.fits & self._table.alive[: self._table.size]
        if column.rejected is not None or not any(each is plugin for each, _ in profile.scorers):
            return Answers(self._named(passes), {}, {})
        answer = self._ask(plugin.name, "score", plugin.score, cls)
        if answer is None:
            none = dict.fromkeys(np.flatnonzero(fits).tolist(), 0)
            return Answers(self._named(passes), self._named(none), self._named(none))
        score = self._checked(plugin, checked_score, answer)
        raw = self._raw(paths, score, fits)
        scores = (
            {row: int(value) for row, value in raw.items()}
            if score.normalize is None
            else paths.normalized(score.normalize, raw)
        )
        for value in scores.values() if is_foreign(plugin) else ():
            if not 0 <= value <= MAX_SCORE:
                raise ContractBroken(
                    f'plugin "{plugin.name}" returns an invalid score {value}, '
                    f"it should in the range of [0, {MAX_SCORE}] after normalizing"
                )
        return Answers(self._named(passes), self._named(raw), self._named(scores))

    def _passes(self, paths: Paths, plugin: Plugin, cls: PodClass, profile: Profile) -> dict[int, bool]:
        answer = None
        if plugin in profile.filters:
            answer = self._ask(plugin.name, "filter", plugin.filter, cls)
        if isinstance(answer, Filter):
            return paths.passes(self._checked(plugin, checked_filter, answer))
        return dict.fromkeys(paths.rows.tolist(), not isinstance(answer, Rejected))

    def _checked(self, plugin: Plugin, check: Callable[[Plugin, Any], Any], answer: Any) -> Any:
        try:
            return check(plugin, answer) if is_foreign(plugin) else answer
        except RAISED as error:
            raise PluginRaised(text_of(error)) from error

    def _ask(self, plugin: str, what: str, ask: Callable[[PodClass], Any], cls: PodClass) -> Any:
        try:
            return ask(cls)
        except RAISED as error:
            raise PluginRaised(f"plugin {plugin}: {what}: {text_of(error)}") from error

    def _raw(self, paths: Paths, score: Score, fits: Any) -> dict[int, float]:
        rows = np.flatnonzero(fits)
        if score.constant is not None:
            return dict.fromkeys(rows.tolist(), score.constant)
        if score.scope is not Scope.TOPOLOGY:
            return paths.scores(score.score, rows)
        keys = TopologyKeys(self._table, score.facets)
        keys.rebuild(np.pad(fits, (0, self._table.capacity - len(fits))))
        view = keys.view()
        view.feasible = keys.counts()
        cells = score.score(view) + np.zeros(len(view.rows), dtype=np.int64)
        return {row: int(cells[keys.of[row]]) for row in rows.tolist()}

    def _column(self, profile: Profile, cls: PodClass) -> ClassColumn:
        """The cached column of the class. It was updated where something changed, and must equal a
        column that is computed again."""
        kept = self._scheduler.columns.column(profile, cls)
        fresh = ColumnStore(self._cluster).column(profile, cls)
        before, after = (each.rejected and each.rejected.message for each in (kept, fresh))
        if before != after:
            raise ContractBroken(
                f"{self._tested(profile)}: the class was rejected with {before!r}, computed again "
                f"with {after!r}: the version does not reflect what the result depends on"
            )
        if kept.rejected is None:
            self._compare(profile, cls, kept, fresh)
        return kept

    def _compare(self, profile: Profile, cls: PodClass, kept: ClassColumn, fresh: ClassColumn) -> None:
        known, computed = kept.totals(), fresh.totals()
        for name, row in self._table.names():
            if not self._table.alive[row]:
                continue
            before, after = (
                "infeasible" if each[row] <= INFEASIBLE // 2 else f"feasible, score {each[row]}"
                for each in (known, computed)
            )
            if before != after:
                raise ContractBroken(
                    f"{self._tested(profile)}: node {name}: the cached result is {before!r}, "
                    f"computed again it is {after!r}. A Filter or Score depends on something that its "
                    f"scope does not cover and its version does not reflect: "
                    f"{', '.join(self._scopes(profile, cls)) or 'no tested plugin'}"
                )

    def _scopes(self, profile: Profile, cls: PodClass) -> Iterable[str]:
        for name in self._plugins:
            plugin = profile.plugins.get(name)
            for what, ask in (("filter", plugin.filter), ("score", plugin.score)) if plugin else ():
                answer = ask(cls)
                if isinstance(answer, Filter | Score):
                    version = "" if answer.version is None else " with a version"
                    yield f"{name}'s {what} has Scope.{answer.scope.name}{version}"

    def _tested(self, profile: Profile) -> str:
        names = [name for name in self._plugins if name in profile.plugins]
        return f"plugin {' or '.join(names)}"

    def _named(self, by_row: dict[int, Any]) -> dict[str, Any]:
        return {self._table.name(row): value for row, value in by_row.items()}
