"""What is yet to happen takes no more memory than it is."""

from __future__ import annotations

from harness.embedded_cluster import HandClock
from holdfast.local.clock import ComponentTimers
from holdfast.local.store import pod_key

YEARS = 1e9


def test_what_is_called_off_years_before_it_is_due_is_forgotten() -> None:
    clock = HandClock()
    timers = ComponentTimers(clock)
    done: list[str] = []
    timers.when_due(pod_key("default", "stays"), clock.t + YEARS, lambda: done.append("stays"))
    for number in range(5_000):
        key = pod_key("default", f"p{number}")
        timers.when_due(key, clock.t + YEARS, lambda: done.append("gone"))
        timers.forget(key)
    assert len(timers) <= 1_001
    timers.add(clock.t + YEARS + 1, lambda: done.append("later"))
    while (what := timers.take(clock.t + 2 * YEARS)) is not None:
        what()
    assert done == ["stays", "later"]


def test_what_an_owner_had_is_forgotten_though_the_owner_stays() -> None:
    clock = HandClock()
    timers = ComponentTimers(clock)
    key = pod_key("default", "p")
    done: list[int] = []
    for number in range(5_000):
        timers.cancel(timers.when_due(key, clock.t + number % 7, lambda: done.append(1)))
    timers.when_due(key, clock.t + 1, lambda: done.append(2))
    assert len(timers) <= 1_001
    timers.forget(key)
    assert timers.next_time() is None
    assert not done
