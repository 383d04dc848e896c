"""Formulas of in-tree plugins whose errors are caught.

Guarding every call of a formula costs time on the path of every pod. So a column is brought up to date
with bare formulas. When one of them raises, the column asks its plugins again and starts over with
guarded formulas, which report the plugin that failed; from then on that plugin finds every row
infeasible, or scores it 0. Everything else (the reasons of rows, dry runs) uses guarded formulas from
the start, so that it is never interrupted half-way. A column makes them on first use: a pod that finds
a node does not pay for them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from traceback import walk_tb
from types import CodeType
from typing import Any

import msgspec

from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.checked_answers import (
    CheckedNormalize,
    Fail,
    checked_kind,
    is_foreign,
)
from holdfast.scheduler.framework.interface import (
    Filter,
    Plugin,
    Reason,
    Rejected,
    Score,
    Settled,
    Version,
    everywhere,
)


class Guarded:
    """A formula or version that never raises."""

    __slots__ = ("_closed", "_fail", "_has_failed", "_plugin", "_point", "bare")

    def __init__(
        self,
        plugin: Plugin,
        point: str,
        bare: Callable[..., Any],
        closed: Callable[..., Any],
        fail: Fail,
    ) -> None:
        self._plugin = plugin
        self._point = point
        self._closed = closed
        self._fail = fail
        self._has_failed = False
        self.bare = bare

    def __call__(self, *view: Any) -> Any:
        if not self._has_failed:
            try:
                return self.bare(*view)
            except RAISED as error:
                self._has_failed = True
                self._fail(self._plugin, self._point, error)
        return self._closed(*view)

    def owns_error(self, error: BaseException) -> bool:
        """Whether the bare formula raised the error, at any depth; if so, records the failure."""
        code = _code_of(self.bare)
        if not any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__)):
            return False
        self._has_failed = True
        self._fail(self._plugin, self._point, error)
        return True


def _code_of(formula: Callable[..., Any]) -> CodeType | None:
    while isinstance(formula, partial | Settled):
        formula = formula.func if isinstance(formula, partial) else formula.version
    code = getattr(formula, "__code__", None) or getattr(type(formula).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def guarded_filters(
    filters: Iterable[tuple[str, Filter]], plugins: Mapping[str, Plugin], fail: Fail
) -> list[tuple[str, Filter]]:
    """The filters, by the plugin's name, with formulas that never raise."""
    found = []
    for name, test in filters:
        plugin = plugins.get(name)
        if plugin is not None and not is_foreign(plugin) and not isinstance(test.passes, Guarded):
            test = _guarded_filter(plugin, test, fail)
        found.append((name, test))
    return found


def _guarded_filter(plugin: Plugin, test: Filter, fail: Fail) -> Filter:
    lasting = test.lasting
    return msgspec.structs.replace(
        test,
        passes=Guarded(plugin, "Filter", test.passes, _infeasible, fail),
        reasons=Guarded(plugin, "Filter", test.reasons, _no_reasons, fail),
        lasting=None if lasting is None else Guarded(plugin, "Filter", lasting, _infeasible, fail),
    )


def guarded_answer(plugin: Plugin, answer: Filter | Rejected, fail: Fail) -> Filter | Rejected:
    """The answer with every formula guarded, for a column of which a formula failed."""
    version = _guarded_version(plugin, answer.version, fail)
    if isinstance(answer, Rejected) or answer.passes is everywhere:
        return answer if version is None else msgspec.structs.replace(answer, version=version)
    return msgspec.structs.replace(
        _guarded_filter(plugin, answer, fail),
        version=version,
        kind=checked_kind(plugin, "Filter", answer.kind, fail),
    )


def guarded_score(plugin: Plugin, answer: Score, fail: Fail) -> Score:
    """As `guarded_answer`, for a score."""
    version = _guarded_version(plugin, answer.version, fail)
    normalize = answer.normalize
    return msgspec.structs.replace(
        answer,
        score=Guarded(plugin, "Score", answer.score, _no_score, fail),
        normalize=None if normalize is None else CheckedNormalize(plugin, normalize, fail),
        version=version,
        kind=checked_kind(plugin, "Score", answer.kind, fail),
    )


def _guarded_version(plugin: Plugin, version: Version | None, fail: Fail) -> Version | None:
    return None if version is None else Guarded(plugin, "PreFilter", version, _unknown, fail)


def _infeasible(view: View) -> Cells:
    return view.full(False)


def _no_reasons(view: View) -> list[Reason]:
    return []


def _no_score(view: View) -> Cells:
    return view.full(0)


def _unknown() -> Hashable:
    return None
