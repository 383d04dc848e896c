"""The flags of `holdfast reserve` for a start, what happens before and at the end, and recurrence."""

from dataclasses import dataclass
from typing import Any

from holdfast.api.calendar import AtEnd, BeforeStart
from holdfast.api.cron import CronError, never_due_text
from holdfast.api.names import (
    AT_END,
    BEFORE_START,
    LEAD,
    RELEASE_IF_UNUSED_AFTER,
    STARTS_AT,
)
from holdfast.api.reservation_schedules import parse_schedule
from holdfast.api.times import format_time, parse_duration, parse_time
from holdfast.cli.options import Failure
from holdfast.cli.reservation_builder import flag_errors, read_duration


@dataclass(frozen=True, slots=True)
class CalendarOptions:
    """The given flags; None if not given."""

    start: str | None = None
    duration: str | None = None
    """--for"""
    lead: str | None = None
    before_start: str | None = None
    at_end: str | None = None
    release_after: str | None = None
    repeat: str | None = None
    """A cron schedule."""
    time_zone: str | None = None

    def check(self, ttl: str | None, expires: str | None, wait: bool, once: bool | None) -> None:
        """Raises Failure for flags that contradict each other, or need another."""
        if self.at_end == AtEnd.EVICT and once:
            text = "Evict has no effect with --allocate-once: the first owner ends the reservation"
            raise Failure(1, [f"--at-end: {text}"])
        begins = self.start is not None or self.repeat is not None
        if self.start is not None and self.repeat is not None:
            raise Failure(1, ["--start: cannot be given together with --repeat; keep one of them"])
        for flag, value in (("--lead", self.lead), ("--before-start", self.before_start)):
            if value is not None and not begins:
                raise Failure(1, [f"{flag}: needs --start or --repeat"])
        if self.duration is not None:
            if not begins:
                text = "needs --start or --repeat; the lifetime from now on is --ttl"
                raise Failure(1, [f"--for: {text}"])
            for flag, value in (("--ttl", ttl), ("--expires", expires)):
                if value is not None:
                    raise Failure(1, [f"--for: cannot be given together with {flag}; keep one of them"])
            read_duration("--for", self.duration)
        if self.time_zone is not None and self.repeat is None:
            text = "needs --repeat; the time of --start includes an offset, such as +01:00"
            raise Failure(1, [f"--time-zone: {text}"])
        if self.repeat is None:
            return
        if self.duration is None:
            raise Failure(1, ["--repeat: needs --for, how long each reservation lasts"])
        if wait:
            raise Failure(1, ["--wait: cannot be given together with --repeat"])

    def check_due(self, now: float) -> None:
        """Raises Failure for a schedule that never starts anything; an invalid one is for validation to
        report."""
        if self.repeat is None:
            return
        try:
            starts = parse_schedule(self.repeat, self.time_zone, now)
        except CronError:
            return
        if starts.next_after(now) is None:
            raise Failure(1, [f"--repeat: {never_due_text(self.repeat)}"])

    def allocate_once(self, once: bool | None) -> bool | None:
        """Owners can be evicted at the end only if the first one does not end the reservation."""
        return False if once is None and self.at_end == AtEnd.EVICT else once

    def warnings(self, has_priority: bool) -> list[str]:
        """What is evicted before the start without the flags that say which pods, and when."""
        if self.before_start != BeforeStart.PREEMPT:
            return []
        found: list[str] = []
        flag = "--before-start: Preempt"
        if not has_priority:
            found.append(f"{flag} without --priority evicts pods of any priority below 2000000000")
        with flag_errors("--lead"):
            lead = parse_duration(self.lead) if self.lead is not None else 0.0
        if lead == 0:
            found.append(
                f"{flag} without --lead evicts pods at the start; the reservation waits until they have"
                " ended"
            )
        return found

    def annotations(self, now: float) -> dict[str, str]:
        """The annotations of each Reservation; none if they recur. Raises Failure."""
        if self.repeat is not None:
            return {}
        start = None if self.start is None else _read_start(self.start, now)
        given = {
            STARTS_AT: start,
            LEAD: self.lead,
            BEFORE_START: self.before_start,
            RELEASE_IF_UNUSED_AFTER: self.release_after,
            AT_END: self.at_end,
        }
        return {key: value for key, value in given.items() if value is not None}

    def recurrence(self) -> dict[str, Any]:
        """The fields of the ReservationSchedule beside its template; none if they do not recur."""
        if self.repeat is None:
            return {}
        given = {
            "schedule": self.repeat,
            "timeZone": self.time_zone,
            "duration": self.duration,
            "lead": self.lead,
            "beforeStart": self.before_start,
            "releaseIfUnusedAfter": self.release_after,
            "atEnd": self.at_end,
        }
        return {key: value for key, value in given.items() if value is not None}


def _read_start(text: str, now: float) -> str:
    """The time, also of `+2h`: that long from now. Raises Failure."""
    with flag_errors("--start"):
        start = now + parse_duration(text) if text.startswith("+") else parse_time(text)
    if start <= now:
        text = f"must be in the future, got {text}; it is {format_time(now)} now"
        raise Failure(1, [f"--start: {text}"])
    return format_time(start) if text.startswith("+") else text
