"""A reader of the log catches up, or is told that it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.scheduler.cluster.columns import distinct
from holdfast.scheduler.cluster.epoch import RowLog


def rows(log: RowLog, position: int) -> list[int]:
    found = log.since(position)
    assert found is not None
    return list(map(int, found))


def test_a_reader_sees_what_came_after_its_position() -> None:
    log = RowLog()
    for row in (3, 1, 3):
        log.add(row)
    assert rows(log, 0) == [3, 1, 3]
    assert rows(log, 2) == [3]
    assert rows(log, log.end) == []


def test_a_position_long_past_is_no_longer_known() -> None:
    log = RowLog(keep=4)
    for row in range(9):
        log.add(row)
    assert log.since(0) is None
    assert rows(log, 4) == [4, 5, 6, 7, 8]
    assert log.end == 9


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([], []), ([4], [4]), ([2, 2], [2]), ([5, 1, 5, 0, 1], [0, 1, 5]), ([3, 2, 1], [1, 2, 3])],
)
def test_of_repeated_rows_each_is_left_once_in_order(rows: list[int], expected: list[int]) -> None:
    assert distinct(np.array(rows, dtype=np.intp)).tolist() == expected
