"""Scores that are normalised: one row after the other comes to the same as all of them at once."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.scheduler.framework.feasibility.normalized_scores import Normalized
from holdfast.scheduler.framework.interface import ByRange, Scope, Score

WEIGHT = 3
ROWS = 4

changes = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.one_of(st.none(), st.integers(-5, 5))), max_size=30
)
"""A row, and its new raw score; None where it passes no more."""


@given(changes)
@example([(0, 1), (1, 1), (0, 2), (1, 2)])
@example([(0, 0), (1, 5), (2, 5), (1, None), (2, 0), (1, 3), (2, None)])
def test_following_one_row_agrees_with_all_rows_anew(made: list[tuple[int, int | None]]) -> None:
    raw: list[int | None] = [None] * ROWS
    normalized = Normalized(Score(lambda _: 0, Scope.USAGE, ByRange()), WEIGHT, ByRange())
    normalized.reset(ROWS)
    for row, after in made:
        fitted, raw[row] = raw[row] is not None, after
        weighted = normalized.update_row(row, after or 0, fitted, after is not None)
        passing = np.array([each is not None for each in raw])
        if weighted is None:
            normalized.measure_again(ROWS, passing)
            normalized.weigh(slice(0, ROWS))
        elif after is not None:
            assert weighted == normalized.weighted[row]
        scores = [each for each in raw if each is not None]
        if scores:
            low, width = min(scores), max(scores) - min(scores)
            expected = [WEIGHT * ((each - low) * 100 // width) if width else 0 for each in scores]
            assert normalized.weighted[passing].tolist() == expected
