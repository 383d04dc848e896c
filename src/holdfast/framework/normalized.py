"""The scores of one plugin that have to be normalised.

As long as the measure stays, a row is brought up to date by itself. Whether it stays is known without a
look at all rows where it is a `Range`: how many rows there are at either end is counted.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.view import Cells, View
from holdfast.framework.interface import Normalize, Range, Scope, Score

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Normalized:
    __slots__ = ("_ends", "by_usage", "measure", "normalize", "raw", "score", "weight", "weighted")

    def __init__(self, score: Score, weight: int, normalize: Normalize) -> None:
        self.score = score
        self.weight = weight
        self.normalize = normalize
        self.by_usage = score.scope is Scope.USAGE
        """Whether a raw score changes with pods coming and going."""
        self.measure: Hashable = None
        self.raw: Ints = np.zeros(0, dtype=np.int64)
        self.weighted: Ints = np.zeros(0, dtype=np.int64)
        self._ends = [0, 0]
        """How many of the rows that pass are at the lowest and at the highest score."""

    def reset(self, capacity: int) -> None:
        self.raw = np.zeros(capacity, dtype=np.int64)
        self.weighted = np.zeros(capacity, dtype=np.int64)
        self.measure = None

    def is_outdated(self, size: int, passing: Bools) -> bool:
        """Takes the measure; whether it is another than before."""
        raw = self.raw[:size][passing]
        before, self.measure = self.measure, self.normalize.measure(raw) if len(raw) else None
        if isinstance(self.measure, Range) and self.by_usage:
            self._ends = [int(np.count_nonzero(raw == end)) for end in self.measure]
        return self.measure != before

    def weigh(self, at: Any) -> None:
        """Brings some rows up to date."""
        if self.measure is not None:
            self.weighted[at] = self.weight * self.normalize.apply(self.raw[at], self.measure)

    def follow(self, row: int, view: View, fitted: bool, fits: bool) -> bool:
        """Looks at one row, which fitted before or did not; whether the measure is still right."""
        if not self.by_usage:
            return fitted == fits
        before = self.raw.item(row) if fitted else None
        after = self._look(row, view) if fits else None
        if not self._stays(before, after):
            return False
        if after is not None:
            self.weighted[row] = self.weight * self.normalize.apply(after, self.measure)
        return True

    def _look(self, row: int, view: View) -> int:
        score: Cells = self.score.score(view)
        self.raw[row] = score
        return int(score)

    def _stays(self, before: int | None, after: int | None) -> bool:
        if before == after:
            return self.measure is not None or after is None
        measure, ends = self.measure, self._ends
        if not isinstance(measure, Range):
            return False
        for i, end in enumerate(measure):
            ends[i] += (after == end) - (before == end)
        inside = after is None or measure.low <= after <= measure.high
        return inside and ends[0] > 0 and ends[1] > 0
