"""What plugins from outside answer, brought into the form everything else relies on.

A formula is written once, and computed on arrays for many rows and on plain numbers for one. Two
things come out differently there: `~` on a Python bool is a number (`~True` is -2, which is true),
and some numpy functions answer with an array without dimensions. Both are made what the same
formula gives on many rows. What is no answer at all is an error that names the plugin. The plugins
of Holdfast are known to be right, and are not checked.
"""

from typing import Any

import msgspec
import numpy as np

from holdfast.core.view import Cells, View
from holdfast.framework.interface import Filter, Plugin, Reason, Score
from holdfast.framework.registry import PluginError

_OWN = "holdfast."


def is_foreign(plugin: Plugin) -> bool:
    return not type(plugin).__module__.startswith(_OWN)


def checked_filter(plugin: Plugin, answer: Filter) -> Filter:
    passes, reasons = answer.passes, answer.reasons

    def checked_reasons(view: View) -> list[Reason]:
        return [
            reason._replace(
                rows=_mask(plugin, view, reason.rows, "a reason"),
                resolvable=_mask(plugin, view, reason.resolvable, "a reason"),
            )
            for reason in reasons(view)
        ]

    return msgspec.structs.replace(
        answer,
        passes=lambda view: _mask(plugin, view, passes(view), "a filter"),
        reasons=checked_reasons,
    )


def checked_score(plugin: Plugin, answer: Score) -> Score:
    score = answer.score
    return msgspec.structs.replace(answer, score=lambda view: _numbers(plugin, view, score(view)))


def _mask(plugin: Plugin, view: View, cells: Cells, what: str) -> Cells:
    if cells is True or cells is False:
        return cells if view.single else view.full(cells)
    if view.single:
        cell = cells.item() if isinstance(cells, np.ndarray | np.generic) and cells.size == 1 else cells
        if isinstance(cell, int) and -2 <= cell <= 1:
            return bool(cell & 1)  # as it is for ~ of a bool
    else:
        found = np.asarray(cells)
        if found.dtype == np.bool_:
            return found & view.full(True) if found.ndim == 0 else found
        cell = cells
    raise _wrong(plugin, cell, f"{what} says True or False of each row")


def _numbers(plugin: Plugin, view: View, cells: Cells) -> Cells:
    if view.single and type(cells) is int:
        return cells
    found = np.asarray(cells)
    if found.dtype.kind not in "biuf" or (view.single and found.size != 1):
        raise _wrong(plugin, cells, "a score is a number for each row")
    if view.single:
        return int(found.item())
    whole = found.astype(np.int64)
    return whole + np.zeros_like(view.full(True), dtype=np.int64) if whole.ndim == 0 else whole


def _wrong(plugin: Plugin, cells: Any, expected: str) -> PluginError:
    kind = cells.dtype if isinstance(cells, np.ndarray) else type(cells).__name__
    return PluginError(f"plugin {plugin.name} answered with {kind} {cells!r}; {expected}")
