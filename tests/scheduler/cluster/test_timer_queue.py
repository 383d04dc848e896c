"""Timers by key: in order, set anew, called off, and no larger than what still counts."""

from __future__ import annotations

from holdfast.scheduler.cluster.timer_queue import TimerQueue

YEARS = 1e9


def due(timers: TimerQueue[str], now: float) -> list[str]:
    found = []
    while (key := timers.pop(now)) is not None:
        found.append(key)
    return found


def test_keys_come_when_they_are_due_in_order_and_once() -> None:
    timers = TimerQueue[str]()
    for key, at in (("c", 2.0), ("b", 1.0), ("a", 1.0), ("d", 9.0)):
        timers.set(key, at)
    assert timers.next_time() == 1.0
    assert due(timers, 2.0) == ["a", "b", "c"]
    assert due(timers, 2.0) == []
    assert timers.next_time() == 9.0


def test_the_last_time_set_counts() -> None:
    timers = TimerQueue[str]()
    timers.set("later", 1.0)
    timers.set("later", 5.0)
    timers.set("sooner", 5.0)
    timers.set("sooner", 2.0)
    timers.set("never", 1.0)
    timers.set("never", None)
    timers.set("there and back", 3.0)
    timers.set("there and back", 4.0)
    timers.set("there and back", 3.0)
    assert due(timers, 3.5) == ["sooner", "there and back"]
    assert due(timers, 9.0) == ["later"]
    assert timers.next_time() is None


def test_timers_called_off_years_before_they_are_due_are_forgotten() -> None:
    timers = TimerQueue[str]()
    for number in range(10_000):
        timers.set(f"gone-{number}", YEARS)
        timers.set(f"gone-{number}", None)
        timers.set("moved", YEARS + number)
    assert len(timers) <= 1_001
    assert due(timers, 2 * YEARS) == ["moved"]
