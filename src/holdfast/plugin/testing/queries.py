"""Queries to a scheduler about one pod, each answered on every path to the answer.

A plugin's formula is computed on every kind of view: one row, some rows, all rows, and rows as the
owner of a reservation sees them. The scheduler uses now one, now the other, so all must agree.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.plugin_errors import RAISED, text_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import All, Cells, One, Some, View
from holdfast.scheduler.framework.checked_answers import (
    checked_filter,
    checked_score,
    is_foreign,
    no_reason_given,
)
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.feasibility.reservation_scores import AllocatingOne, AllocatingSome
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE
from holdfast.scheduler.framework.feasibility.topology_keys import TopologyKeys
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    Filter,
    Normalize,
    Plugin,
    Rejected,
    Scope,
    Score,
)
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster

Formula = Callable[[View], Cells]
Rows = NDArray[np.intp]


class ContractBroken(HoldfastError, AssertionError):
    """A plugin does what the contract forbids; the message has the node and the path."""


class PluginRaised(ContractBroken):
    """A plugin raised an exception, or answered with what is no answer."""


class Paths:
    """The formulas of one plugin about one class of pods."""

    def __init__(self, cluster: Cluster, plugin: str) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._plugin = plugin
        self.rows: Rows = np.flatnonzero(self._table.alive[: self._table.size])
        """The rows that have a node. Views have others too, of which answers are ignored."""

    def passes(self, test: Filter) -> dict[int, bool]:
        """The result of the filter for each row; a row that does not pass must have a reason."""
        found = self.agreed("filter", test.passes, self.rows)
        failed = np.array([row for row, passed in found.items() if not passed], dtype=np.intp)
        default = no_reason_given(self._plugin)
        for row, reasons in self.reasons(test, failed).items():
            if any(text == default for text, *_ in reasons) or not reasons:
                self._broken("filter", row, "does not pass, and `reasons` gives no reason")
        return {row: bool(passed) for row, passed in found.items()}

    def reasons(self, test: Filter, failed: Rows) -> dict[int, tuple[Any, ...]]:
        """The reasons of each row, in a form that does not depend on the path."""

        def asked(view: View) -> Cells:
            listed: list[list[Any]] = [[] for _ in range(np.size(view.rows))]
            for text, rows, resolvable, times, error in test.reasons(view):
                held, hopeful = _spread(rows, view), _spread(resolvable, view)
                for at in np.flatnonzero(held).tolist():
                    listed[at].append((text, bool(hopeful[at]), times, error))
            cells = np.empty(len(listed), dtype=object)
            cells[:] = [tuple(each) for each in listed]
            return cells[0] if view.single else cells

        return self.agreed("reasons", asked, failed, whole=False)

    def scores(self, score: Formula, rows: Rows) -> dict[int, float]:
        """Raw scores, of the rows that passed all filters."""
        return self.agreed("score", score, rows)

    def normalized(self, normalize: Normalize, raw: dict[int, float]) -> dict[int, int]:
        """Scores of all rows that passed, normalised together."""
        cells = np.array(list(raw.values()))
        if not len(cells):
            return {}
        measure = normalize.measure(cells)
        many = np.asarray(normalize.apply(cells, measure)) + np.zeros(len(cells), dtype=np.int64)
        singly = [int(normalize.apply(each, measure)) for each in raw.values()]
        for at, row in enumerate(raw):
            if int(many[at]) != singly[at]:
                self._differs("normalize", row, "one score", singly[at], "all scores", int(many[at]))
        return dict(zip(raw, singly, strict=True))

    def agreed(self, what: str, formula: Formula, rows: Rows, *, whole: bool = True) -> dict[int, Any]:
        """The result of a formula for each of these rows, on any view. `whole` asks about all rows of
        the table at once, too."""
        found = {int(row): self._asked(what, formula, One(self._table, int(row))) for row in rows}
        for label, view in self._views(rows, whole):
            cells = _spread(self._asked(what, formula, view), view)
            for row, cell in zip(view.rows.tolist(), cells.tolist(), strict=True):
                if row in found and found[row] != cell:
                    self._differs(what, row, "one row", found[row], label, cell)
        self._as_owner(what, formula)
        return found

    def _views(self, rows: Rows, whole: bool) -> Iterator[tuple[str, View]]:
        if whole:
            yield "all rows", All(self._table)
        yield "some rows", Some(self._table, rows[::-1])
        yield "every other row", Some(self._table, rows[::2])
        yield "no rows", Some(self._table, rows[:0])

    def _as_owner(self, what: str, formula: Formula) -> None:
        """The same with what reservations have left being free."""
        ledger = self._cluster.ledger
        entries = [entry for entry in ledger.reservations if not entry.reservation.waiting]
        if not entries or what == "reasons":
            return
        cells = self._asked(what, formula, AllocatingSome(self._table, ledger, entries))
        many = np.broadcast_to(np.asarray(cells), (len(entries),)).tolist()
        for entry, cell in zip(entries, many, strict=True):
            one = self._asked(what, formula, AllocatingOne(self._table, ledger, entry))
            if one != cell:
                label = "some rows seen by owners of reservations"
                self._differs(what, entry.row, "one row seen by an owner", one, label, cell)

    def _asked(self, what: str, formula: Formula, view: View) -> Any:
        try:
            return formula(view)
        except RAISED as error:
            rows = "one row" if view.single else f"{np.size(view.rows)} rows"
            text = f"plugin {self._plugin}: {what} of {rows}: {text_of(error)}"
            raise PluginRaised(text) from error

    def _differs(self, what: str, row: int, one: str, first: Any, other: str, second: Any) -> None:
        self._broken(what, row, f"computed on {one} it is {first!r}, on {other} it is {second!r}")

    def _broken(self, what: str, row: int, text: str) -> None:
        name = self._table.name(row)
        raise ContractBroken(f"plugin {self._plugin}: {what}: node {name}: {text}")


def _spread(cells: Cells, view: View) -> NDArray[Any]:
    """One cell for each row, where an answer may be the same for all."""
    return np.broadcast_to(np.asarray(cells), (np.size(view.rows),))


# Queries


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
