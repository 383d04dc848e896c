"""What plugins from outside answer, brought into the form everything else relies on.

A formula is written once, and computed by Holdfast's own plugins on arrays for many rows and on plain
numbers for one. On plain numbers much means something else: `~True` is -2, which is true, `True + True`
is 2, and a number of 8 bits never overflows. So a plugin from outside never sees them: it is given one
row as arrays of one cell, and the cell is taken out of its answer. One row and many cannot differ.

What is no answer at all, and whatever a formula raises, is a failure of the plugin: it is handed to
`fail`, and the formula says of every row from then on that it is infeasible, or scores 0, until the
plugin is asked about the class again. So nothing that computes with formulas is interrupted half-way.
The plugins of Holdfast are known to be right, and are not checked.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.core.decisions import Decision
from holdfast.core.plugin_errors import InvalidScore
from holdfast.core.view import Cells, OneOfMany, Pick, RowValues, View
from holdfast.framework.handle import OwnColumn, PodCounts
from holdfast.framework.interface import (
    MAX_SCORE,
    Filter,
    Nomination,
    Normalize,
    Outcome,
    Plugin,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
    Version,
    everywhere,
)
from holdfast.framework.keyed import KeyView
from holdfast.framework.registry import PluginError

_OWN = "holdfast."
_NOT_A_NUMBER = -(2**40)
"""The score of a row for which there is none."""

Fail = Callable[[Plugin, str, Exception], None]
"""Told the plugin, the extension point and what happened there."""


def raising(plugin: Plugin, point: str, error: Exception) -> None:
    raise error


def is_foreign(plugin: Plugin) -> bool:
    return not type(plugin).__module__.startswith(_OWN)


def checked_answer(plugin: Plugin, answer: Any, fail: Fail = raising) -> Filter | Rejected:
    """Raises PluginError if that is no answer to `filter`."""
    if isinstance(answer, Rejected):
        return msgspec.structs.replace(answer, version=_checked_version(plugin, answer.version, fail))
    if isinstance(answer, Filter):
        return checked_filter(plugin, answer, fail)
    raise _wrong(plugin, answer, "filter says None, a Filter or a Rejected")


def checked_filter(plugin: Plugin, answer: Filter, fail: Fail = raising) -> Filter:
    version = _checked_version(plugin, answer.version, fail)
    if answer.passes is everywhere:
        return msgspec.structs.replace(answer, version=version)
    _check_scope(plugin, answer)
    passes = _Formula(plugin, "Filter", answer.scope, answer.passes, _mask, False, fail)

    def reasons(view: Any) -> list[Reason]:
        rows = OneOfMany(view) if view.single else view
        try:
            with np.errstate(all="ignore"):
                found = [_checked_reason(plugin, rows, each) for each in answer.reasons(rows)]
        except Exception as error:
            passes.fail(error)
            return []
        return [_of_one(each) for each in found] if view.single else found

    return msgspec.structs.replace(
        answer,
        passes=passes,
        reasons=reasons,
        version=version,
        kind=_checked_kind(plugin, "Filter", answer.kind, fail),
    )


def checked_score(plugin: Plugin, answer: Any, fail: Fail = raising) -> Score:
    """Raises PluginError if that is no answer to `score`."""
    if not isinstance(answer, Score):
        raise _wrong(plugin, answer, "score says None or a Score")
    _check_scope(plugin, answer)
    if answer.constant is not None and not 0 <= answer.constant <= MAX_SCORE:
        raise InvalidScore(plugin.name, answer.constant, MAX_SCORE)
    normalize = answer.normalize
    least, most = (0, MAX_SCORE) if normalize is None else (_NOT_A_NUMBER + 1, 2**62)
    return msgspec.structs.replace(
        answer,
        score=ScoreFormula(plugin, answer, least, most, fail),
        normalize=None if normalize is None else CheckedNormalize(plugin, normalize, fail),
        version=_checked_version(plugin, answer.version, fail),
        kind=_checked_kind(plugin, "Score", answer.kind, fail),
    )


class _Formula:
    """`passes` or `score` of one answer."""

    __slots__ = ("_closed", "_fail", "_formula", "_plugin", "_point", "_read", "failed")

    def __init__(
        self,
        plugin: Plugin,
        point: str,
        scope: Scope,
        formula: Callable[[View], Cells],
        read: Callable[[Plugin, View, Cells], Cells],
        closed: int,
        fail: Fail,
    ) -> None:
        self._plugin = plugin
        self._point = point
        self._formula = formula if scope is not Scope.NODE else _of_nodes(plugin, formula)
        self._read = read
        self._closed = closed
        self._fail = fail
        self.failed = False

    def __call__(self, view: Any) -> Cells:
        if self.failed or not len(view):
            return view.full(self._closed)
        try:
            rows = OneOfMany(view) if view.single else view
            with np.errstate(all="ignore"):
                cells = self._read(self._plugin, rows, self._formula(rows))
            return cells.item() if view.single else cells
        except Exception as error:
            self.fail(error)
            return view.full(self._closed)

    def fail(self, error: Exception) -> None:
        self.failed = True
        self._fail(self._plugin, self._point, error)


class ScoreFormula(_Formula):
    """Also takes note of scores out of range, which matter only on rows that prove to be feasible."""

    __slots__ = ("_least", "_most", "bad")

    def __init__(self, plugin: Plugin, answer: Score, least: int, most: int, fail: Fail) -> None:
        super().__init__(plugin, "Score", answer.scope, answer.score, _numbers, 0, fail)
        self._least = least
        self._most = most
        self.bad: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
        """Rows and scores out of range."""

    def __call__(self, view: Any) -> Cells:
        found = super().__call__(view)
        if view.single:
            if not self._least <= found <= self._most:
                self.bad.append((np.array([view.rows]), np.array([found])))
        elif len(found) and (found.min() < self._least or found.max() > self._most):
            is_bad = (found < self._least) | (found > self._most)
            if isinstance(view, KeyView):
                self._check(found[is_bad & (view.feasible > 0)])
            else:
                self.bad.append((np.asarray(view.rows)[is_bad], found[is_bad]))
        return found

    def check(self, fits: NDArray[np.bool_]) -> None:
        """Fails if a row that fits has a score out of range."""
        bad, self.bad = self.bad, []
        for rows, scores in bad:
            there = rows < len(fits)
            self._check(scores[there][fits[rows[there]]])

    def _check(self, scores: NDArray[np.int64]) -> None:
        if len(scores) and not self.failed:
            self.fail(invalid_score(self._plugin, scores))


def invalid_score(plugin: Plugin, scores: NDArray[np.int64]) -> InvalidScore:
    """The error of the first of these scores, which are out of range."""
    score = int(scores[0])
    return InvalidScore(plugin.name, "NaN" if score == _NOT_A_NUMBER else score, MAX_SCORE)


class CheckedNormalize:
    """A measure that failed is None, by which every score is 0."""

    def __init__(self, plugin: Plugin, normalize: Normalize, fail: Fail) -> None:
        self._plugin = plugin
        self._normalize = normalize
        self._fail = fail

    def check(self, scores: NDArray[np.int64]) -> None:
        """Fails if one of these scores, of rows that fit, is out of range."""
        bad = scores[(scores < 0) | (scores > MAX_SCORE)]
        if len(bad):
            self._fail(self._plugin, "NormalizeScore", invalid_score(self._plugin, bad))

    def measure(self, raw: Any) -> Hashable:
        try:
            measure = self._normalize.measure(raw)
            hash(measure)
        except Exception as error:
            self._fail(self._plugin, "NormalizeScore", error)
            return ()
        return measure

    def apply(self, raw: Cells, measure: Any) -> Cells:
        if measure == ():
            return raw * 0
        try:
            with np.errstate(all="ignore"):
                cells = self._normalize.apply(np.atleast_1d(raw), measure)
            found = _whole(self._plugin, cells, np.size(raw))
        except Exception as error:
            self._fail(self._plugin, "NormalizeScore", error)
            return raw * 0
        return found if np.ndim(raw) else int(found[0])


class NodeView:
    """A view by which only node objects can be read. Answers under `Scope.NODE` are worked out anew
    when the node changes, and not when pods do: one that depends on pods would be out of date."""

    __slots__ = ("_plugin", "_view")

    def __init__(self, plugin: str, view: Any) -> None:
        self._plugin = plugin
        self._view = view

    def __len__(self) -> int:
        return len(self._view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def claimed(self, slot: Pick) -> Cells:
        why = "reads under Scope.NODE what changes with pods: it must say Scope.USAGE"
        raise PluginError(f"plugin {self._plugin} {why}")

    free = claimed

    def take(self, column: RowValues) -> Cells:
        if isinstance(column, OwnColumn | PodCounts):
            self.claimed(0)
        return self._view.take(column)


def _of_nodes(plugin: Plugin, formula: Callable[[Any], Cells]) -> Callable[[View], Cells]:
    return lambda view: formula(NodeView(plugin.name, view))


def checked_outcome(plugin: Plugin, answer: Any) -> Outcome:
    """Raises PluginError if that is no answer to `reserve` or `permit`."""
    if isinstance(answer, Outcome):
        return answer
    raise _wrong(plugin, answer, "it must be an Outcome")


def check_nomination(plugin: Plugin, answer: Any) -> None:
    """Raises PluginError if that is no answer to `post_filter`."""
    if not isinstance(answer, Nomination):
        raise _wrong(plugin, answer, "post_filter says a Nomination")
    decisions_of(plugin, answer.decisions)


def decisions_of(plugin: Plugin, answer: Any) -> Sequence[Decision]:
    """Raises PluginError if these are no decisions."""
    if not isinstance(answer, list | tuple):
        raise _wrong(plugin, answer, "it must be a list of decisions")
    for each in answer:
        if not isinstance(each, Decision):
            raise _wrong(plugin, each, "it must be a decision")
    return answer


def _check_scope(plugin: Plugin, answer: Filter | Score) -> None:
    if not isinstance(answer.scope, Scope):
        raise _wrong(plugin, answer.scope, "a scope is one of Scope.NODE, Scope.USAGE, Scope.TOPOLOGY")
    if answer.scope is Scope.TOPOLOGY and not answer.facets:
        raise PluginError(f"plugin {plugin.name} gives no facets for Scope.TOPOLOGY")


def _checked_version(plugin: Plugin, version: Version | None, fail: Fail) -> Version | None:
    if version is None:
        return None

    def checked() -> Hashable:
        try:
            found = version()
            hash(found)
        except Exception as error:
            fail(plugin, "PreFilter", error)
            return None
        return found

    return Settled(checked) if isinstance(version, Settled) else checked


def _checked_kind(
    plugin: Plugin, point: str, kind: Callable[[int], Hashable] | None, fail: Fail
) -> Callable[[int], Hashable] | None:
    if kind is None:
        return None

    def checked(row: int) -> Hashable:
        try:
            found = kind(row)
            hash(found)
        except Exception as error:
            fail(plugin, point, error)
            return None
        return found

    return checked


def _checked_reason(plugin: Plugin, view: View, reason: Any) -> Reason:
    if not isinstance(reason, Reason):
        raise _wrong(plugin, reason, "reasons says a list of Reason")
    return reason._replace(
        text=str(reason.text),
        rows=_mask(plugin, view, reason.rows),
        resolvable=_mask(plugin, view, reason.resolvable),
    )


def _of_one(reason: Reason) -> Reason:
    return reason._replace(rows=reason.rows.item(), resolvable=reason.resolvable.item())


def _mask(plugin: Plugin, view: View, cells: Cells) -> Cells:
    found = np.asarray(cells)
    if found.dtype != np.bool_:
        raise _wrong(plugin, cells, "it must be True or False of each row")
    return _of_rows(plugin, found, len(view))


def _numbers(plugin: Plugin, view: View, cells: Cells) -> Cells:
    return _whole(plugin, cells, len(view))


def _whole(plugin: Plugin, cells: Cells, rows: int) -> Any:
    """As whole numbers, without what is behind the point."""
    found = np.asarray(cells)
    if found.dtype.kind not in "biuf":
        raise _wrong(plugin, cells, "a score is a number for each row")
    if found.dtype.kind == "f":
        found = np.where(np.isfinite(found), found, _NOT_A_NUMBER)
    return _of_rows(plugin, found.astype(np.int64), rows)


def _of_rows(plugin: Plugin, found: Any, rows: int) -> Any:
    if found.ndim == 0:
        return np.full(rows, found)
    if found.shape != (rows,):
        what = " by ".join(map(str, found.shape))
        raise PluginError(f"plugin {plugin.name} answered with {what} values for {rows} rows")
    return found


def _wrong(plugin: Plugin, cells: Any, expected: str) -> PluginError:
    kind = cells.dtype if isinstance(cells, np.ndarray) else type(cells).__name__
    return PluginError(f"plugin {plugin.name} answered with {kind} {cells!r}; {expected}")
