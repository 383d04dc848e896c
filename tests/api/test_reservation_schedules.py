"""Starts of recurring reservations in local time."""

import pytest

from holdfast.api.reservation_schedules import parse_schedule
from holdfast.api.times import format_time, parse_time


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "starts"),
    [
        # Plain days, UTC and elsewhere.
        ("0 18 * * *", None, "2026-06-01T00:00:00Z", ["2026-06-01T18:00:00Z", "2026-06-02T18:00:00Z"]),
        ("0 18 * * *", "Europe/Zurich", "2026-06-01T00:00:00Z", ["2026-06-01T16:00:00Z"]),
        ("0 18 * * 1-5", "Europe/Zurich", "2026-06-05T17:00:00Z", ["2026-06-08T16:00:00Z"]),
        # The clock goes forward on 2026-03-29 at 02:00: 02:30 does not exist, 03:00 is 01:00 UTC.
        (
            "30 2 * * *",
            "Europe/Zurich",
            "2026-03-28T00:00:00Z",
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        # The clock goes back on 2026-10-25 at 03:00: 02:30 comes twice, and counts once.
        (
            "30 2 * * *",
            "Europe/Zurich",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        # Asked between the two 02:30 of that night.
        ("30 2 * * *", "Europe/Zurich", "2026-10-25T00:45:00Z", ["2026-10-26T01:30:00Z"]),
        # Half an hour of daylight saving time, and one at midnight.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", ["2026-10-03T15:30:00Z"]),
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", ["2026-04-23T22:00:00Z"]),
        # A leap day, and a month without the day.
        ("0 6 29 2 *", "America/New_York", "2026-01-01T00:00:00Z", ["2028-02-29T11:00:00Z"]),
        ("0 0 31 * *", None, "2026-01-31T00:00:00Z", ["2026-03-31T00:00:00Z"]),
        # The end of a year.
        ("0 0 1 1 *", "Pacific/Auckland", "2026-06-01T00:00:00Z", ["2026-12-31T11:00:00Z"]),
        # Intervals have no local time.
        ("@every 90m", "Europe/Zurich", "2026-01-01T00:00:00Z", ["2026-01-01T01:30:00Z"]),
        ("@daily", "Asia/Tokyo", "2026-01-01T00:00:00Z", ["2026-01-01T15:00:00Z"]),
    ],
)
def test_starts(schedule: str, zone: str | None, after: str, starts: list[str]) -> None:
    parsed, at, found = parse_schedule(schedule, zone), parse_time(after), []
    for _ in starts:
        following = parsed.next_after(at)
        assert following is not None
        found.append(format_time(following))
        at = following
    assert found == starts


def test_a_day_that_never_comes() -> None:
    assert parse_schedule("0 0 30 2 *", "Europe/Zurich").next_after(0.0) is None


@pytest.mark.parametrize("zone", ["Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_one_start_a_day_all_year(zone: str) -> None:
    parsed = parse_schedule("30 2 * * *", zone)
    at, count = parse_time("2026-01-01T12:00:00Z"), 0
    while (following := parsed.next_after(at)) is not None:
        if following > parse_time("2027-01-01T12:00:00Z"):
            break
        assert following - at >= 22.5 * 3600 or count == 0
        at, count = following, count + 1
    assert count == 365
