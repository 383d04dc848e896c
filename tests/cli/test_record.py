"""What `holdfast record` prints while it records."""

from collections import Counter

import pytest

from holdfast.cli.record import _progress
from holdfast.recording.recorder import RecordedFigures


def test_that_it_has_begun_is_said_once_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show, figures = _progress("monday"), RecordedFigures(Counter(Pod=3))
    show(figures)
    assert capsys.readouterr().err == ""
    figures.began = 5.0
    for _ in range(2):
        show(figures)
    assert capsys.readouterr().err == "monday: recording; 3 objects listed\n"
