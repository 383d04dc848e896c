"""`python -m faults`: many lives, or one with its log."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from faults.simulation import describe, shrink, simulate, simulate_all

_AT_ONCE = 200


def _run(begin: int, end: int) -> tuple[int, list[tuple[int, list[str]]]]:
    """How many binds there were, and the seeds that failed."""
    binds, failed = 0, []
    gc.freeze()
    for outcome in simulate_all(range(begin, end)):
        binds += outcome.binds
        if outcome.problems:
            failed.append((outcome.seed, outcome.problems))
    return binds, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--log", action="store_true", help="with its log of events")
    parser.add_argument("--shrink", action="store_true", help="with no more troubles than are needed")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed, options.log, options.shrink)
    start, binds, failed = time.monotonic(), 0, 0
    last = options.first + options.seeds
    parts = [(begin, min(begin + _AT_ONCE, last)) for begin in range(options.first, last, _AT_ONCE)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(_run, *part) for part in parts]):
            some, problems = done.result()
            binds += some
            failed += len(problems)
            for seed, found in problems:
                print(f"seed {seed}: {found[0]}", flush=True)
    spent = time.monotonic() - start
    print(
        f"{options.seeds} seeds from {options.first}: {failed} failed, {binds} binds, "
        f"{spent:.0f} s ({spent / options.seeds * 1000:.1f} ms each)"
    )
    return 1 if failed else 0


def _one(seed: int, log: bool, fewer: bool) -> int:
    troubles = shrink(seed) if fewer else None
    outcome = simulate(seed, keep_log=log, troubles=troubles)
    if outcome.problems:
        needed = troubles if troubles is not None else shrink(seed)
        print(describe(seed, outcome.problems, needed, outcome.log))
        return 1
    print("\n".join([*outcome.log, f"seed {seed} passes"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
