"""Many lives, of one of five kinds; one that fails is shrunk.

lives     replicas of one scheduler and all kinds of faults
claims    the same lives with devices by claim
calendar  the same lives with reservations that start later
gangs     the same lives with more gangs, whose members wait in Permit, and nodes that come and go
races     two schedulers that race for devices
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

from faults.life import Life, Trouble, draw
from faults.races import Race, draw_race
from faults.simulation import Outcome, Simulation

_LAST_LINES = 120


def _draw(seed: int, kind: str) -> Life:
    if kind == "races":
        return draw_race(seed)
    return draw(seed, claims=kind == "claims", calendar=kind == "calendar", gangs=kind == "gangs")


def simulate(
    seed: int, keep_log: bool = False, troubles: list[Trouble] | None = None, kind: str = "lives"
) -> Outcome:
    life = _draw(seed, kind)
    if troubles is not None:
        life.troubles = troubles
    made = Race(life, keep_log) if kind == "races" else Simulation(life, keep_log)
    return made.run()


def simulate_all(seeds: Iterable[int], kind: str = "lives") -> Iterator[Outcome]:
    """One life after the other. Garbage is collected between them, now and then: one leaves little."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for count, seed in enumerate(seeds, 1):
            yield simulate(seed, kind=kind)
            if count % 20 == 0:
                gc.collect()
    finally:
        gc.collect()
        if was_enabled:
            gc.enable()


def shrink(seed: int, kind: str = "lives") -> list[Trouble]:
    """The troubles that are needed for the seed to fail."""
    needed = _draw(seed, kind).troubles
    for trouble in list(needed):
        fewer = [each for each in needed if each is not trouble]
        if simulate(seed, troubles=fewer, kind=kind).problems:
            needed = fewer
    return needed


def describe(
    seed: int, problems: list[str], needed: list[Trouble], log: list[str], kind: str = "lives"
) -> str:
    """How a seed fails, and how to see it again."""
    flag = "" if kind == "lives" else f" --{kind}"
    lines = [f"seed {seed} fails:", *(f"  {problem}" for problem in problems)]
    lines += ["troubles that are needed:", *(f"  {trouble}" for trouble in needed)]
    lines += [f"replay: PYTHONPATH=src:tests python -m faults{flag} --seed {seed} --log", *log]
    return "\n".join(lines)


def check(seeds: Iterable[int], kind: str = "lives") -> None:
    """Raises AssertionError with the story of the first seed that fails."""
    for outcome in simulate_all(seeds, kind):
        if outcome.problems:
            needed = shrink(outcome.seed, kind)
            again = simulate(outcome.seed, keep_log=True, troubles=needed, kind=kind)
            log = again.log[-_LAST_LINES:]
            raise AssertionError(describe(outcome.seed, outcome.problems, needed, log, kind))
