"""Checks the answers of third-party plugins and converts them to the types the framework relies on.

The formulas of in-tree plugins are computed on arrays for many rows and on plain numbers for one. Some
operators differ on plain numbers: `~True` is -2, which is true, `True + True` is 2, and an 8-bit
number never overflows. So a third-party plugin gets one row as arrays of one cell, and the cell is
taken out of its answer: one row and many rows get the same result.

An invalid answer, and any exception of a formula, is a failure of the plugin. It is passed to `fail`,
and from then on the formula finds every row infeasible, or scores it 0, until the plugin is asked about
the class again. So no computation is interrupted half-way. Answers of in-tree plugins are not checked.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.decisions import Bind, Decision, ObjectRef
from holdfast.scheduler.cluster.plugin_errors import RAISED, InvalidScore
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import Cells, OneOfMany, Pick, RowValues, View
from holdfast.scheduler.framework.handle import cluster_of
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    Filter,
    Need,
    Nomination,
    Normalize,
    ObjectWarning,
    Outcome,
    Plugin,
    Range,
    Reason,
    Rejected,
    ReservePlacement,
    Scope,
    Score,
    Settled,
    Version,
    everywhere,
)
from holdfast.scheduler.framework.node_columns import OwnColumn, PodCounts, PodCountsOfOwner, TakenPorts
from holdfast.scheduler.framework.registry import PluginError

_OWN = "holdfast."
_MOST_TIMES = 1000
"""The highest `Reason.times`."""
_SCOPES = "a scope is Scope.NODE or Scope.USAGE; facets are reserved for Holdfast's own plugins"
_LONGEST_WAIT = 2.0**31
_NOT_A_NUMBER = -(2**40)
"""The score of a row where the plugin's result is not a number."""

Fail = Callable[[Plugin, str, BaseException], None]
"""Called with the plugin, the extension point and the error."""


def raising(plugin: Plugin, point: str, error: BaseException) -> None:
    raise error


def is_foreign(plugin: Plugin) -> bool:
    return not type(plugin).__module__.startswith(_OWN)


def checked_answer(plugin: Plugin, answer: Any, fail: Fail = raising) -> Filter | Rejected:
    """Raises PluginError if the answer to `filter` is invalid."""
    if isinstance(answer, Rejected):
        _text(plugin, answer.message, "the message of a Rejected")
        _flag(plugin, answer.resolvable, "resolvable of a Rejected")
        _flag(plugin, answer.error, "error of a Rejected")
        return msgspec.structs.replace(answer, version=_checked_version(plugin, answer.version, fail))
    if isinstance(answer, Filter):
        return checked_filter(plugin, answer, fail)
    raise _wrong(plugin, answer, "filter returns None, a Filter or a Rejected")


def checked_filter(plugin: Plugin, answer: Filter, fail: Fail = raising) -> Filter:
    version = _checked_version(plugin, answer.version, fail)
    if answer.passes is everywhere:
        return msgspec.structs.replace(answer, version=version)
    _check_scope(plugin, answer)
    _check_needs(plugin, answer.needs)
    only = answer.only
    if only is not None and not _is_set_of_texts(only):
        raise _wrong(plugin, only, "only is a frozenset of the names of nodes")
    passes = _Formula(plugin, "Filter", answer.scope, answer.passes, _mask, False, fail)

    def reasons(view: Any) -> list[Reason]:
        rows = OneOfMany(view) if view.single else view
        try:
            with np.errstate(all="ignore"):
                found = [_checked_reason(plugin, rows, each) for each in answer.reasons(rows)]
        except RAISED as error:
            passes.fail(error)
            return []
        if not passes.failed:
            found += _default_reason(plugin, rows, found)
        return [_of_one(each) for each in found] if view.single else found

    return msgspec.structs.replace(
        answer,
        passes=passes,
        reasons=reasons,
        version=version,
        only=None if only is None else frozenset(only),
        kind=checked_kind(plugin, "Filter", answer.kind, fail),
        lasting=None,
    )


def checked_score(plugin: Plugin, answer: Any, fail: Fail = raising) -> Score:
    """Raises PluginError if the answer to `score` is invalid."""
    if not isinstance(answer, Score):
        raise _wrong(plugin, answer, "score returns None or a Score")
    _check_scope(plugin, answer)
    constant = answer.constant
    if constant is not None:
        if not isinstance(constant, Real):
            raise _wrong(plugin, constant, "a score is a number")
        if not 0 <= constant <= MAX_SCORE:
            raise InvalidScore(plugin.name, constant, MAX_SCORE)
        constant = int(constant)
    normalize = answer.normalize
    least, most = (0, MAX_SCORE) if normalize is None else (_NOT_A_NUMBER + 1, 2**62)
    return msgspec.structs.replace(
        answer,
        score=ScoreFormula(plugin, answer, least, most, fail),
        normalize=None if normalize is None else CheckedNormalize(plugin, normalize, fail),
        version=_checked_version(plugin, answer.version, fail),
        constant=constant,
        kind=checked_kind(plugin, "Score", answer.kind, fail),
    )


class _Formula:
    """`passes` or `score` of one answer, checked."""

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
        except RAISED as error:
            self.fail(error)
            return view.full(self._closed)

    def fail(self, error: BaseException) -> None:
        self.failed = True
        self._fail(self._plugin, self._point, error)


class ScoreFormula(_Formula):
    """A score formula. It also notes scores out of range, which are an error only on feasible rows."""

    __slots__ = ("_least", "_most", "bad")

    def __init__(self, plugin: Plugin, answer: Score, least: int, most: int, fail: Fail) -> None:
        read = _numbers if answer.normalize is None else _raw_numbers
        super().__init__(plugin, "Score", answer.scope, answer.score, read, 0, fail)
        self._least = least
        self._most = most
        self.bad: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
        """Rows with scores out of range, and these scores."""

    def __call__(self, view: Any) -> Cells:
        found = super().__call__(view)
        if view.single:
            if not self._least <= found <= self._most:
                self.bad.append((np.array([view.rows]), np.array([found])))
        elif len(found) and (found.min() < self._least or found.max() > self._most):
            is_bad = (found < self._least) | (found > self._most)
            self.bad.append((np.asarray(view.rows)[is_bad], found[is_bad]))
        return found

    def check(self, fits: NDArray[np.bool_]) -> None:
        """Fails if a feasible row has a score out of range."""
        bad, self.bad = self.bad, []
        for rows, scores in bad:
            there = rows < len(fits)
            self._check(scores[there][fits[rows[there]]])

    def _check(self, scores: NDArray[np.int64]) -> None:
        if len(scores) and not self.failed:
            self.fail(invalid_score(self._plugin, scores))


def invalid_score(plugin: Plugin, scores: NDArray[np.int64]) -> InvalidScore:
    """The error for the first of these scores that are out of range."""
    score = int(scores[0])
    return InvalidScore(plugin.name, "NaN" if score == _NOT_A_NUMBER else score, MAX_SCORE)


class _FailedMeasure:
    """The measure where `measure` failed: every normalized score is 0."""


_FAILED = _FailedMeasure()


class CheckedNormalize:
    """A normalisation of a third-party plugin, with checked results."""

    def __init__(self, plugin: Plugin, normalize: Normalize, fail: Fail) -> None:
        self._plugin = plugin
        self._normalize = normalize
        self._fail = fail

    def check(self, scores: NDArray[np.int64]) -> None:
        """Fails if one of these scores of feasible rows is out of range."""
        bad = scores[(scores < 0) | (scores > MAX_SCORE)]
        if len(bad):
            self._fail(self._plugin, "NormalizeScore", invalid_score(self._plugin, bad))

    def measure(self, raw: Any) -> Hashable:
        try:
            measure = self._normalize.measure(raw)
            hash(measure)
            if isinstance(measure, Range) and not all(map(_is_finite, measure)):
                raise _wrong(self._plugin, measure, "a Range is of two numbers")
        except RAISED as error:
            self._fail(self._plugin, "NormalizeScore", error)
            return _FAILED
        return measure

    def apply(self, raw: Cells, measure: Any) -> Cells:
        if measure is _FAILED:
            return raw * 0
        try:
            with np.errstate(all="ignore"):
                cells = self._normalize.apply(np.atleast_1d(raw), measure)
            found = _whole(self._plugin, cells, np.size(raw))
        except RAISED as error:
            self._fail(self._plugin, "NormalizeScore", error)
            return raw * 0
        return found if np.ndim(raw) else int(found[0])


class NodeView:
    """A view that can only read node objects. Answers under `Scope.NODE` are computed again when the
    node changes and not when pods do, so an answer that depends on pods would become stale."""

    __slots__ = ("_plugin", "_view")

    def __init__(self, plugin: str, view: Any) -> None:
        self._plugin = plugin
        self._view = view

    def __len__(self) -> int:
        return len(self._view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def claimed(self, slot: Pick) -> Cells:
        why = "reads under Scope.NODE what changes with pods: it must have Scope.USAGE"
        raise PluginError(f"plugin {self._plugin} {why}")

    free = claimed

    def take(self, column: RowValues) -> Cells:
        if isinstance(column, OwnColumn | PodCounts | PodCountsOfOwner | TakenPorts):
            self.claimed(0)
        return self._view.take(column)


def _of_nodes(plugin: Plugin, formula: Callable[[Any], Cells]) -> Callable[[View], Cells]:
    return lambda view: formula(NodeView(plugin.name, view))


def checked_outcome(plugin: Plugin, answer: Any) -> Outcome:
    """Raises PluginError if the answer to `reserve` or `permit` is invalid."""
    if not isinstance(answer, Outcome):
        raise _wrong(plugin, answer, "it must be an Outcome")
    if not is_foreign(plugin):
        return answer
    message, wait, retry = answer
    _text(plugin, message, "the message of an Outcome")
    _flag(plugin, retry, "retry of an Outcome")
    if not isinstance(wait, Real) or isinstance(wait, bool) or not 0 <= wait <= _LONGEST_WAIT:
        raise _wrong(plugin, wait, "wait of an Outcome is a number of seconds, 0 or more")
    return answer._replace(wait=float(wait))


def checked_gate(plugin: Plugin, answer: Any) -> str:
    """Raises PluginError if the answer to `pre_enqueue` is invalid."""
    if answer is None:
        return ""
    return _text(plugin, answer, "the result of pre_enqueue, empty if the pod may be queued,")


def check_nomination(plugin: Plugin, answer: Any) -> None:
    """Raises PluginError if the answer to `post_filter` is invalid."""
    if not isinstance(answer, Nomination):
        raise _wrong(plugin, answer, "post_filter returns a Nomination")
    if answer.node is not None:
        _text(plugin, answer.node, "the node of a Nomination")
    _text(plugin, answer.message, "the message of a Nomination")
    decisions_of(plugin, answer.decisions)
    _check_reserve_pods(plugin, answer.reserve_pods)
    for warning in _tuple(plugin, answer.warnings, ObjectWarning):
        if not isinstance(warning.about, ObjectRef):
            raise _wrong(plugin, warning.about, "a warning is about an ObjectRef")
        _text(plugin, warning.reason, "the reason of a warning")
        _text(plugin, warning.message, "the message of a warning")


def _check_reserve_pods(plugin: Plugin, placements: Any) -> None:
    for placement in _tuple(plugin, placements, ReservePlacement):
        if not isinstance(placement.pod, PodRecord) or placement.pod.reservation is None:
            raise _wrong(plugin, placement.pod, "a ReservePlacement is of a reserve pod")
        alive = cluster_of(plugin.handle).nodes.alive
        if not _is_whole(placement.row, 0, len(alive) - 1) or not alive[placement.row]:
            raise _wrong(plugin, placement.row, "the row of a ReservePlacement is that of a node")
        if not _is_set_of_texts(placement.clears):
            raise _wrong(
                plugin, placement.clears, "clears of a ReservePlacement is a frozenset of uids"
            )


def _tuple(plugin: Plugin, answer: Any, kind: type[Any]) -> Sequence[Any]:
    if not isinstance(answer, list | tuple) or not all(isinstance(each, kind) for each in answer):
        raise _wrong(plugin, answer, f"it must be a tuple of {kind.__name__}")
    return answer


def decisions_of(plugin: Plugin, answer: Any) -> Sequence[Decision]:
    """Raises PluginError if these are not decisions, or cannot be written."""
    if not isinstance(answer, list | tuple):
        raise _wrong(plugin, answer, "it must be a list of decisions")
    for each in answer:
        if not isinstance(each, Decision):
            raise _wrong(plugin, each, "it must be a decision")
        try:
            msgspec.json.decode(msgspec.json.encode(each, enc_hook=_plain), type=type(each))
        except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
            raise _wrong(plugin, each, f"it cannot be encoded: {error}") from error
    return answer


def check_binds(plugin: Plugin, decisions: Sequence[Decision], pod: ObjectRef, node: str) -> None:
    """Raises PluginError if a decision binds another pod, or the pod to another node."""
    for each in decisions:
        if isinstance(each, Bind) and (each.pod, each.node) != (pod, node):
            expected = "bind must bind the pod it is called for to the node it is called for"
            raise _wrong(plugin, each, expected)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be part of an object")


def _text(plugin: Plugin, text: Any, what: str) -> str:
    """Raises PluginError if this is not a string, or has characters that an object may not contain."""
    if not isinstance(text, str):
        raise _wrong(plugin, text, f"{what} is a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _wrong(plugin, text, f"{what} has characters that cannot be encoded") from error
    return text


def _flag(plugin: Plugin, value: Any, what: str) -> None:
    if not isinstance(value, bool | np.bool_):
        raise _wrong(plugin, value, f"{what} is True or False")


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, Integral) and least <= int(value) <= most


def _is_set_of_texts(value: Any) -> bool:
    return isinstance(value, frozenset | set) and all(isinstance(each, str) for each in value)


def _check_needs(plugin: Plugin, needs: Any) -> None:
    if needs is None:
        return
    slots = len(cluster_of(plugin.handle).nodes.slots)
    for need in _tuple(plugin, needs, Need):
        if not _is_whole(need.slot, 0, slots - 1):
            raise _wrong(plugin, need.slot, "the slot of a Need is one that handle.slot gave")
        if not isinstance(need.amount, Integral):
            raise _wrong(plugin, need.amount, "the amount of a Need is a whole number")
        _text(plugin, need.text, "the text of a Need")


def _check_scope(plugin: Plugin, answer: Filter | Score) -> None:
    if not isinstance(answer.scope, Scope) or answer.scope is Scope.TOPOLOGY or answer.facets != ():
        raise _wrong(plugin, answer.scope, _SCOPES)


def _checked_version(plugin: Plugin, version: Version | None, fail: Fail) -> Version | None:
    if version is None:
        return None

    def checked() -> Hashable:
        try:
            found = version()
            hash(found)
        except RAISED as error:
            fail(plugin, "PreFilter", error)
            return None
        return found

    return Settled(checked) if isinstance(version, Settled) else checked


def checked_kind(
    plugin: Plugin, point: str, kind: Callable[[int], Hashable] | None, fail: Fail
) -> Callable[[int], Hashable] | None:
    if kind is None:
        return None

    def checked(row: int) -> Hashable:
        try:
            found = kind(row)
            hash(found)
        except RAISED as error:
            fail(plugin, point, error)
            return None
        return found

    return checked


def _checked_reason(plugin: Plugin, view: View, reason: Any) -> Reason:
    if not isinstance(reason, Reason):
        raise _wrong(plugin, reason, "reasons returns a list of Reason")
    times = reason.times
    if not _is_whole(times, 1, _MOST_TIMES):
        raise _wrong(plugin, times, f"times of a Reason is a whole number from 1 to {_MOST_TIMES}")
    _flag(plugin, reason.error, "error of a Reason")
    return reason._replace(
        text=_text(plugin, reason.text, "the text of a Reason"),
        times=int(times),
        rows=_mask(plugin, view, reason.rows),
        resolvable=_mask(plugin, view, reason.resolvable),
    )


def no_reason_given(plugin: str) -> str:
    """The reason of rows that a filter does not let pass without saying why."""
    return f"node(s) didn't satisfy plugin {plugin}"


def _default_reason(plugin: Plugin, view: View, found: list[Reason]) -> list[Reason]:
    unexplained = np.full(len(view), True)
    for reason in found:
        unexplained &= ~reason.rows
    return (
        [Reason(no_reason_given(plugin.name), unexplained, view.full(True))] if any(unexplained) else []
    )


def _of_one(reason: Reason) -> Reason:
    return reason._replace(rows=reason.rows.item(), resolvable=reason.resolvable.item())


def _mask(plugin: Plugin, view: View, cells: Cells) -> Cells:
    found = np.asarray(cells)
    if found.dtype != np.bool_:
        raise _wrong(plugin, cells, "it must be True or False for each row")
    return _of_rows(plugin, found, len(view))


def _numbers(plugin: Plugin, view: View, cells: Cells) -> Cells:
    return _whole(plugin, cells, len(view))


def _raw_numbers(plugin: Plugin, view: View, cells: Cells) -> Cells:
    """Scores that are normalised later, which may have fractions."""
    found = np.asarray(cells)
    if found.dtype.kind == "f" and not np.equal(np.floor(found), found).all():
        found = np.where(np.isfinite(found), found, _NOT_A_NUMBER).astype(np.float64)
        return _of_rows(plugin, found, len(view))
    return _whole(plugin, cells, len(view))


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _whole(plugin: Plugin, cells: Cells, rows: int) -> Any:
    """The cells as integers, truncated toward zero after removing floating-point errors."""
    found = np.asarray(cells)
    if found.dtype.kind not in "biuf":
        raise _wrong(plugin, cells, "a score is a number for each row")
    if found.dtype.kind == "f":
        found = np.where(np.isfinite(found), np.round(found, 6), _NOT_A_NUMBER)
    return _of_rows(plugin, found.astype(np.int64), rows)


def _of_rows(plugin: Plugin, found: Any, rows: int) -> Any:
    if found.ndim == 0:
        return np.full(rows, found)
    if found.shape != (rows,):
        what = " by ".join(map(str, found.shape))
        raise PluginError(f"plugin {plugin.name} returned {what} values for {rows} rows")
    return found


def _wrong(plugin: Plugin, cells: Any, expected: str) -> PluginError:
    kind = cells.dtype if isinstance(cells, np.ndarray) else type(cells).__name__
    return PluginError(f"plugin {plugin.name} returned {kind} {cells!r}; {expected}")
