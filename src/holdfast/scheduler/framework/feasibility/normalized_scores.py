"""The normalised scores of one plugin for one class.

`Normalize.measure` reduces the raw scores of all feasible rows to a measure, such as their range, and
`Normalize.apply` turns a raw score into a score by it. As long as the measure stays the same, a changed
row is computed alone. For a `Range`, that is known without looking at all rows, by counting the rows at
either end of it.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.framework.checked_answers import CheckedNormalize, ScoreFormula
from holdfast.scheduler.framework.interface import MAX_SCORE, Normalize, Range, Scope, Score

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NO_RANGE = Range(2**62, -(2**62))
"""A range that contains no score."""


class Normalized:
    __slots__ = (
        "_high",
        "_highest",
        "_is_foreign",
        "_known",
        "_low",
        "_lowest",
        "by_usage",
        "is_checked",
        "is_suspect",
        "measure",
        "normalize",
        "raw",
        "score",
        "weight",
        "weighted",
    )

    def __init__(self, score: Score, weight: int, normalize: Normalize) -> None:
        self.score = score
        self.weight = weight
        self.normalize = normalize
        self.by_usage = score.scope is Scope.USAGE
        """Whether raw scores depend on what is requested on the row."""
        self.is_checked = isinstance(normalize, CheckedNormalize)
        self.is_suspect = False
        """Whether a score was out of range, which matters only on a feasible row."""
        self._is_foreign = isinstance(score.score, ScoreFormula)
        """Whether raw scores may have fractions, which those of Holdfast's own plugins have not."""
        self.measure: Hashable = None
        self.raw: NDArray[Any] = np.zeros(0, dtype=np.int64)
        self.weighted: Ints = np.zeros(0, dtype=np.int64)
        self._known: dict[float, int] = {}
        """Weighted scores by raw score, for this measure."""
        self._low: float
        self._high: float
        self._low, self._high = _NO_RANGE
        self._lowest = self._highest = 0
        """How many feasible rows are at either end."""

    def reset(self, capacity: int) -> None:
        self.raw = np.zeros(capacity, dtype=np.int64)
        self.weighted = np.zeros(capacity, dtype=np.int64)
        self.measure = None
        self._low, self._high = _NO_RANGE

    def store(self, at: Any, raw: Any) -> None:
        """Takes the raw scores of rows."""
        if self._is_foreign and np.asarray(raw).dtype.kind == "f":
            self._keep_fractions()
        self.raw[at] = raw

    def _keep_fractions(self) -> None:
        if self.raw.dtype.kind != "f":
            self.raw = self.raw.astype(np.float64)

    def measure_again(self, size: int, passing: Bools) -> bool:
        """Takes the measure. Returns whether it differs from the one before."""
        raw = self.raw[:size][passing]
        before, self.measure = self.measure, self.normalize.measure(raw) if len(raw) else None
        self._low, self._high = self.measure if isinstance(self.measure, Range) else _NO_RANGE
        if self.by_usage:
            self._lowest = int(np.count_nonzero(raw == self._low))
            self._highest = int(np.count_nonzero(raw == self._high))
        if self.measure == before:
            return False
        self._known.clear()
        return True

    def weigh(self, at: Any) -> None:
        """Computes the weighted scores of rows."""
        if self.measure is not None:
            scores = self.normalize.apply(self.raw[at], self.measure)
            self.weighted[at] = self.weight * scores
            if self.is_checked and len(scores) and (scores.min() < 0 or scores.max() > MAX_SCORE):
                self.is_suspect = True

    def check(self, fits: Bools) -> None:
        """Reports the plugin if a feasible row has a score out of range."""
        normalize = self.normalize
        self.is_suspect = False
        if isinstance(normalize, CheckedNormalize) and self.measure is not None:
            normalize.check(np.asarray(normalize.apply(self.raw[: len(fits)][fits], self.measure)))

    def update_row(self, row: int, after: float, fitted: bool, fits: bool) -> int | None:
        """Takes the new raw score of one row, which `fitted` before and `fits` now. Returns its
        weighted score, or None if the measure has to be taken again."""
        if not self.by_usage:
            return self.weighted.item(row) if fitted == fits else None
        if not fits:
            return 0 if not fitted or self._stays_without(self.raw.item(row)) else None
        before: float | None = self.raw.item(row) if fitted else None
        if after == before:
            return self.weighted.item(row) if self.measure is not None else None
        if self._is_foreign and isinstance(after, float):
            self._keep_fractions()
        self.raw[row] = after
        low, high = self._low, self._high
        if low < after < high:
            pass
        elif after == low:
            self._lowest += 1
        elif after == high:
            self._highest += 1
        else:
            return None
        if before is not None and not low < before < high and not self._stays_without(before):
            return None
        weighted = self._known.get(after)
        if weighted is None:
            score = self.normalize.apply(after, self.measure)
            weighted = self._known[after] = self.weight * score
            if self.is_checked and not 0 <= score <= MAX_SCORE:
                self.is_suspect = True
        self.weighted[row] = weighted
        return weighted

    def _stays_without(self, before: float) -> bool:
        """Whether the measure stays the same without one feasible row of this raw score."""
        if before == self._low:
            self._lowest -= 1
            return self._lowest > 0
        if before == self._high:
            self._highest -= 1
            return self._highest > 0
        return self._low < before < self._high
