"""Cron schedules: which times they name, in which zone, and what is refused."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.cron import CronError, parse_cron


def _next(schedule: str, after: str, zone: str = "", count: int = 1) -> list[str]:
    """The next times, as a clock in the zone of `after`'s offset would show them in UTC."""
    parsed, t = parse_cron(schedule, zone or None), datetime.fromisoformat(after).timestamp()
    found: list[str] = []
    for _ in range(count):
        following = parsed.next_after(t)
        if following is None:
            return [*found, "never"]
        assert following > t
        t = following
        found.append(datetime.fromtimestamp(t, datetime.fromisoformat(after).tzinfo).isoformat()[:16])
    return found


TIMES = [
    (
        "every minute",
        "* * * * *",
        "2026-01-01T00:00:30+00:00",
        ["2026-01-01T00:01", "2026-01-01T00:02"],
    ),
    ("not the moment itself", "0 * * * *", "2026-01-01T01:00:00+00:00", ["2026-01-01T02:00"]),
    ("a fraction before it", "0 * * * *", "2026-01-01T00:59:59.5+00:00", ["2026-01-01T01:00"]),
    (
        "steps",
        "*/20 * * * *",
        "2026-01-01T00:00+00:00",
        ["2026-01-01T00:20", "2026-01-01T00:40", "2026-01-01T01:00"],
    ),
    (
        "a step from a number",
        "5/25 * * * *",
        "2026-01-01T00:00+00:00",
        ["2026-01-01T00:05", "2026-01-01T00:30", "2026-01-01T00:55", "2026-01-01T01:05"],
    ),
    (
        "a step in a range",
        "0 8-18/5 * * *",
        "2026-01-01T00:00+00:00",
        ["2026-01-01T08:00", "2026-01-01T13:00", "2026-01-01T18:00", "2026-01-02T08:00"],
    ),
    ("a list", "0 9,17 * * *", "2026-01-01T10:00+00:00", ["2026-01-01T17:00", "2026-01-02T09:00"]),
    (
        "names in any case",
        "0 0 * jUN Mon-wed",
        "2026-01-01T00:00+00:00",
        ["2026-06-01T00:00", "2026-06-02T00:00", "2026-06-03T00:00", "2026-06-08T00:00"],
    ),
    ("Sunday is 0", "0 0 * * 0", "2026-01-01T00:00+00:00", ["2026-01-04T00:00"]),
    (
        "both day fields: either",
        "0 0 13 * FRI",
        "2026-02-01T00:00+00:00",
        ["2026-02-06T00:00", "2026-02-13T00:00", "2026-02-20T00:00"],
    ),
    (
        "a day field with a star: the other",
        "0 0 */1 * FRI",
        "2026-02-01T00:00+00:00",
        ["2026-02-06T00:00", "2026-02-13T00:00"],
    ),
    (
        "a day field with steps is restricted",
        "0 0 */16 * FRI",
        "2026-02-01T00:00+00:00",
        ["2026-02-06T00:00", "2026-02-13T00:00", "2026-02-17T00:00"],
    ),
    ("a question mark is a star", "0 0 ? * FRI", "2026-02-01T00:00+00:00", ["2026-02-06T00:00"]),
    (
        "months without that day",
        "0 0 31 * *",
        "2026-01-31T00:00+00:00",
        ["2026-03-31T00:00", "2026-05-31T00:00"],
    ),
    ("a leap day", "0 0 29 2 *", "2026-01-01T00:00+00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ("a day that never comes", "0 0 30 2 *", "2026-01-01T00:00+00:00", ["never"]),
    ("@hourly", "@hourly", "2026-01-01T00:10+00:00", ["2026-01-01T01:00"]),
    ("@daily", "@daily", "2026-01-01T00:10+00:00", ["2026-01-02T00:00"]),
    ("@midnight", "@midnight", "2026-01-01T00:10+00:00", ["2026-01-02T00:00"]),
    ("@weekly", "@weekly", "2026-01-01T00:10+00:00", ["2026-01-04T00:00"]),
    ("@monthly", "@monthly", "2026-01-01T00:10+00:00", ["2026-02-01T00:00"]),
    ("@yearly", "@yearly", "2026-01-01T00:10+00:00", ["2027-01-01T00:00"]),
    ("@annually", "@annually", "2026-01-01T00:10+00:00", ["2027-01-01T00:00"]),
    ("@every", "@every 1h30m", "2026-01-01T00:10+00:00", ["2026-01-01T01:40", "2026-01-01T03:10"]),
]


@pytest.mark.parametrize("case", TIMES, ids=lambda case: str(case[0]))
def test_times(case: tuple[str, str, str, list[str]]) -> None:
    _, schedule, after, expected = case
    assert _next(schedule, after, count=len(expected)) == expected


# A clock in New York goes from 2:00 EST to 3:00 EDT on 8 March 2026, back from 2:00 EDT to 1:00 EST on
# 1 November; in Lord Howe by half an hour; in Santiago at midnight; Apia skipped 30 December 2011.
ZONES = [
    (
        "its own time, in winter",
        "0 9 * * *",
        "America/New_York",
        "2026-01-01T00:00+00:00",
        ["2026-01-01T14:00"],
    ),
    (
        "its own time, in summer",
        "0 9 * * *",
        "America/New_York",
        "2026-07-01T00:00+00:00",
        ["2026-07-01T13:00"],
    ),
    (
        "a skipped time does not come",
        "30 2 * * *",
        "America/New_York",
        "2026-03-07T12:00+00:00",
        ["2026-03-09T06:30"],
    ),
    (
        "the hour after the skipped one",
        "0 3 * * *",
        "America/New_York",
        "2026-03-07T12:00+00:00",
        ["2026-03-08T07:00", "2026-03-09T07:00"],
    ),
    (
        "every hour, over the skipped one",
        "0 * * * *",
        "America/New_York",
        "2026-03-08T05:30+00:00",
        ["2026-03-08T06:00", "2026-03-08T07:00", "2026-03-08T08:00"],
    ),
    (
        "a repeated time comes twice",
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00+00:00",
        ["2026-11-01T05:30", "2026-11-01T06:30", "2026-11-02T06:30"],
    ),
    (
        "every hour, over the repeated one",
        "0 * * * *",
        "America/New_York",
        "2026-11-01T04:30+00:00",
        ["2026-11-01T05:00", "2026-11-01T06:00", "2026-11-01T07:00"],
    ),
    (
        "every 20 minutes, in order",
        "*/20 1 * * *",
        "America/New_York",
        "2026-11-01T05:00+00:00",
        [
            "2026-11-01T05:20",
            "2026-11-01T05:40",
            "2026-11-01T06:00",
            "2026-11-01T06:20",
            "2026-11-01T06:40",
            "2026-11-02T06:00",
        ],
    ),
    (
        "skipped by half an hour",
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-02T16:00+00:00",
        ["2026-10-04T15:15"],
    ),
    (
        "repeated by half an hour",
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-03T16:00+00:00",
        ["2026-04-04T14:45", "2026-04-04T15:15", "2026-04-05T15:15"],
    ),
    (
        "a midnight that is skipped",
        "0 0 * * *",
        "America/Santiago",
        "2026-09-05T05:00+00:00",
        ["2026-09-07T03:00"],
    ),
    (
        "a midnight that is repeated",
        "30 23 * * *",
        "America/Santiago",
        "2026-04-03T12:00+00:00",
        ["2026-04-04T02:30", "2026-04-05T02:30", "2026-04-05T03:30", "2026-04-06T03:30"],
    ),
    (
        "a day that is skipped",
        "0 12 30 * *",
        "Pacific/Apia",
        "2011-12-01T00:00+00:00",
        ["2012-01-29T22:00"],
    ),
    (
        "without daylight saving time",
        "0 0 * * *",
        "Asia/Kolkata",
        "2026-01-01T00:00+00:00",
        ["2026-01-01T18:30"],
    ),
    (
        "weekdays are those of the zone",
        "0 1 * * MON",
        "Asia/Tokyo",
        "2026-01-01T00:00+00:00",
        ["2026-01-04T16:00"],
    ),
]


@pytest.mark.parametrize("case", ZONES, ids=lambda case: str(case[0]))
def test_times_in_a_zone(case: tuple[str, str, str, str, list[str]]) -> None:
    _, schedule, zone, after, expected = case
    assert _next(schedule, after, zone, len(expected)) == expected


ERRORS = {
    "": "empty spec string",
    "* * * *": "expected exactly 5 fields, found 4: [* * * *]",
    "* * * * * *": "expected exactly 5 fields, found 6: [* * * * * *]",
    "60 * * * *": "end of range (60) above maximum (59): 60",
    "* 24 * * *": "end of range (24) above maximum (23): 24",
    "* * 0 * *": "beginning of range (0) below minimum (1): 0",
    "* * * 13 *": "end of range (13) above maximum (12): 13",
    "* * * * 7": "end of range (7) above maximum (6): 7",
    "9-5 * * * *": "beginning of range (9) beyond end of range (5): 9-5",
    "*/0 * * * *": "step of range should be a positive number: */0",
    "1-2-3 * * * *": "too many hyphens: 1-2-3",
    "*/2/3 * * * *": "too many slashes: */2/3",
    "x * * * *": 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax',
    "* * * * MO": 'failed to parse int from MO: strconv.Atoi: parsing "MO": invalid syntax',
    "@often": "unrecognized descriptor: @often",
    "*/-5 * * * *": "negative number (-5) not allowed: -5",
}


@pytest.mark.parametrize("schedule", ERRORS)
def test_refused_in_the_words_of_the_api_server(schedule: str) -> None:
    with pytest.raises(CronError) as error:
        parse_cron(schedule)
    assert str(error.value) == ERRORS[schedule]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "America", "europe berlin"])
def test_an_unknown_zone(zone: str) -> None:
    with pytest.raises(CronError, match="unknown time zone"):
        parse_cron("* * * * *", zone)


def test_huge_input_is_refused() -> None:
    with pytest.raises(CronError):
        parse_cron("1," * 10_000 + "1 * * * *")
    with pytest.raises(CronError, match="value out of range"):
        parse_cron("9" * 50 + " * * * *")


_FIELD = st.sampled_from(["*", "*/7", "0", "1", "1-5", "2,4", "5/2"])


@given(
    st.lists(_FIELD, min_size=5, max_size=5),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago"]),
    st.integers(1_735_689_600, 1_830_000_000),
)
def test_no_match_is_passed_over(fields: list[str], zone: str, t: int) -> None:
    """From one minute before the next time it is the same time, and it is a whole minute."""
    text = " ".join(["1" if i in (2, 3) and each == "0" else each for i, each in enumerate(fields)])
    schedule = parse_cron(text, zone)
    following = schedule.next_after(t)
    if following is not None:
        assert following > t
        assert following % 60 == 0
        assert schedule.next_after(max(float(t), following - 60)) == following
