"""Many lives by hand: `make soak LIVES=100000 FROM=0 JOBS=2`.

Each life that goes wrong is shrunk and written to the folder, with the command that shows it again. The
exit status is 1 if there was one."""

import argparse
import gc
import multiprocessing
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from mixtures.life import make_life
from mixtures.playing import play
from mixtures.shrinking import shrink, write

_SHRUNK_PER_KIND = 3
_EVERY = 5.0
"""Seconds between two lines of progress."""


def played(seed: int, tight: bool, claims: bool, calendar: bool) -> tuple[int, str, str]:
    """The seed, the kind of what went wrong, and the first problem; nothing if all rules hold."""
    outcome = play(make_life(seed, tight=tight, claims=claims, calendar=calendar))
    return (seed, outcome.kind, outcome.problems[0]) if outcome.problems else (seed, "", "")


def small(seed: int, folder: Path, tight: bool, claims: bool, calendar: bool) -> Path | None:
    life = make_life(seed, tight=tight, claims=claims, calendar=calendar)
    outcome = play(life)
    if not outcome.problems:
        return None
    about = f"Life {seed} ({', '.join(life.themes)})"
    kinds = (("tight-", tight), ("claims-", claims), ("calendar-", calendar))
    name = f"{''.join(kind for kind, is_on in kinds if is_on)}life-{seed}"
    return write(shrink(life, outcome), folder, name, about)


def _prepare() -> None:
    """Before the first life of a process: its garbage is small and soon gone, so it is not looked for
    after every few hundred objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mixtures.soak", description=__doc__)
    parser.add_argument("--lives", type=int, default=100_000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, default=Path("soak"), help="where scenarios are written")
    parser.add_argument("--tight", action="store_true", help="lives in which there is never enough")
    parser.add_argument("--claims", action="store_true", help="lives with devices by claim")
    parser.add_argument(
        "--calendar", action="store_true", help="lives with reservations that start later"
    )
    parser.add_argument("--no-shrink", action="store_true", help="name the lives only")
    given = parser.parse_args()
    kinds = {"tight": given.tight, "claims": given.claims, "calendar": given.calendar}
    play_seed = partial(played, **kinds)
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    started, shown = time.monotonic(), 0.0
    seeds = range(given.first, given.first + given.lives)
    # A process is replaced now and then, so that what one life leaves behind stays small.
    forked = multiprocessing.get_context("fork")
    with forked.Pool(given.jobs, _prepare, maxtasksperchild=2000) as pool:
        for count, (seed, kind, problem) in enumerate(pool.imap_unordered(play_seed, seeds, 8), 1):
            if kind:
                found[kind].append((seed, problem))
                sys.stderr.write(f"\nlife {seed}: {problem[:300]}\n")
            passed = time.monotonic() - started
            if passed - shown >= _EVERY or count == given.lives:
                shown = passed
                wrong = sum(map(len, found.values()))
                rate = count / passed if passed else 0.0
                sys.stderr.write(f"\r{count} of {given.lives} lives, {wrong} wrong, {rate:.0f}/s  ")
                sys.stderr.flush()
    sys.stderr.write("\n")
    for kind, lives in sorted(found.items(), key=lambda each: -len(each[1])):
        print(f"{len(lives)} x {kind}: lives {', '.join(str(seed) for seed, _ in sorted(lives)[:10])}")
        for seed, _ in [] if given.no_shrink else sorted(lives)[:_SHRUNK_PER_KIND]:
            print(f"    {small(seed, given.out, **kinds)}", flush=True)
    wrong = sum(map(len, found.values()))
    print(f"{given.lives} lives from seed {given.first}: {wrong} broke a rule")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
