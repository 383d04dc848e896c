"""Durations, timestamps and percentages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.errors import MalformedText
from holdfast.api.times import (
    DurationError,
    TimeError,
    format_duration,
    format_micro_time,
    format_time,
    parse_duration,
    parse_time,
    span_text,
)
from holdfast.api.workloads import scaled_value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        (".5m", 30.0),
        ("1.h", 3600.0),
        ("100ms", 0.1),
        ("2h45m30.5s", 9930.5),
        ("-1m", -60.0),
        ("+1m", 60.0),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("5ns", 5e-9),
        ("48h", 172800.0),
    ],
)
def test_reads_go_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["", "5", "1d", "s", "1 h", "1h ", "-", ".s", "１s", "1h30", "9999999h", "1m-1s"]
)
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (86400, "24h0m0s"),
        (90, "1m30s"),
        (1.5, "1.5s"),
        (0.1, "100ms"),
        (0.0015, "1.5ms"),
        (2e-6, "2µs"),
        (5e-9, "5ns"),
        (-90.25, "-1m30.25s"),
        (59.999, "59.999s"),
        (3600.5, "1h0m0.5s"),
    ],
)
def test_writes_durations_as_go_does(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(-(10**7) * 1000, 10**7 * 1000))
def test_a_written_duration_reads_back(millis: int) -> None:
    assert parse_duration(format_duration(millis / 1000)) == pytest.approx(millis / 1000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T01:00:00+01:00", 1767225600.0),
        ("2026-01-01T00:00:00.25Z", 1767225600.25),
        ("2026-01-01T00:00:00.123456789Z", 1767225600.123456),
    ],
)
def test_reads_times(text: str, seconds: float) -> None:
    assert parse_time(text) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
        "2026-01-01 00:00:00Z",
        "now",
    ],
)
def test_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(TimeError):
        parse_time(text)


@given(st.integers(-62135596800, 2**33))
def test_a_written_time_reads_back(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds
    assert parse_time(format_micro_time(seconds + 0.5)) == seconds + 0.5


def test_whole_seconds_cut_off_what_is_finer() -> None:
    assert format_time(1767225600.999) == "2026-01-01T00:00:00Z"
    assert format_micro_time(1767225600.25) == "2026-01-01T00:00:00.250000Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2**63, "9999-12-31T23:59:59Z"),
        (253402300800, "9999-12-31T23:59:59Z"),
        (-(2**63), "0001-01-01T00:00:00Z"),
    ],
)
def test_times_beyond_the_calendar_become_the_last_or_first_moment(seconds: int, text: str) -> None:
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (90, "90s"),
        (330, "5m30s"),
        (720, "12m"),
        (3600, "1h"),
        (7140, "1h59m"),
        (7200, "2h"),
        (86399, "23h"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (30 * 86400, "30d"),
        (5 * 365 * 86400, "5y"),
    ],
)
def test_spans_have_two_units_at_most(seconds: int, text: str) -> None:
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [(3, 10, 3, 3), ("50%", 5, 3, 2), ("0%", 5, 0, 0), ("100%", 7, 7, 7), ("25%", 10, 3, 2)],
)
def test_percentages_round_as_asked(value: int | str, total: int, up: int, down: int) -> None:
    assert scaled_value(value, total, round_up=True) == up
    assert scaled_value(value, total, round_up=False) == down


@pytest.mark.parametrize("value", ["5", "50", "%", "-5%", "1.5%", ""])
def test_text_that_is_no_percentage_is_refused(value: str) -> None:
    with pytest.raises(MalformedText):
        scaled_value(value, 10, round_up=True)
