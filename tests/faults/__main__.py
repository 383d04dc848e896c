"""`python -m faults`: many lives, or one with its log."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time

from faults.runs import describe, shrink, simulate

_AT_ONCE = 200
_EVERY = 5.0
"""Seconds between two lines of progress."""


def _run(part: tuple[int, int, str]) -> tuple[int, int, int, list[tuple[int, list[str]]]]:
    """How many seeds ran, how many binds there were, how many pairs of claims with one device were
    left, and the seeds that failed.

    It has a process of its own, whose end frees the garbage of all its lives at once: to collect it
    takes a quarter of a life's time.
    """
    begin, end, kind = part
    binds, doubles, failed = 0, 0, []
    gc.disable()
    for seed in range(begin, end):
        outcome = simulate(seed, kind=kind)
        binds += outcome.binds
        doubles += outcome.doubles
        if outcome.problems:
            failed.append((outcome.seed, outcome.problems))
    return end - begin, binds, doubles, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--log", action="store_true", help="with its log of events")
    parser.add_argument("--shrink", action="store_true", help="with no more troubles than are needed")
    parser.add_argument("--claims", action="store_true", help="lives with devices by claim")
    parser.add_argument(
        "--calendar", action="store_true", help="lives with reservations that start later"
    )
    parser.add_argument(
        "--gangs", action="store_true", help="lives with more gangs, whose members wait in Permit"
    )
    parser.add_argument("--races", action="store_true", help="two schedulers that race for devices")
    options = parser.parse_args()
    kinds = ("races", "claims", "calendar", "gangs")
    kind = next((name for name in kinds if getattr(options, name)), "lives")
    if options.seed is not None:
        return _one(options.seed, options.log, options.shrink, kind)
    start, binds, doubles, failed = time.monotonic(), 0, 0, 0
    count, shown = 0, start
    last = options.first + options.seeds
    parts = [
        (begin, min(begin + _AT_ONCE, last), kind) for begin in range(options.first, last, _AT_ONCE)
    ]
    simulate(options.first, kind=kind)  # what it imports and compiles, each process then has
    gc.collect()
    gc.freeze()
    # Forked: a child has what the first life imported, whatever this Python starts by default.
    forked = multiprocessing.get_context("fork")
    with forked.Pool(options.jobs, maxtasksperchild=1) as pool:
        for ran, some, left, problems in pool.imap_unordered(_run, parts):
            count += ran
            binds += some
            doubles += left
            failed += len(problems)
            for seed, found in problems:
                print(f"seed {seed}: {found[0]}", flush=True)
            if time.monotonic() - shown >= _EVERY or count == options.seeds:
                shown = time.monotonic()
                rate = count / (shown - start)
                sys.stderr.write(f"\r{count} of {options.seeds} seeds, {failed} failed, {rate:.0f}/s  ")
                sys.stderr.flush()
    sys.stderr.write("\n")
    spent = time.monotonic() - start
    if options.races:
        print(f"{doubles} pairs of claims with one device, the later one of kube-scheduler")
    print(
        f"{options.seeds} seeds from {options.first}: {failed} failed, {binds} binds, "
        f"{spent:.0f} s ({spent / options.seeds * 1000:.1f} ms each)"
    )
    return 1 if failed else 0


def _one(seed: int, log: bool, fewer: bool, kind: str) -> int:
    troubles = shrink(seed, kind) if fewer else None
    outcome = simulate(seed, keep_log=log, troubles=troubles, kind=kind)
    if outcome.problems:
        needed = troubles if troubles is not None else shrink(seed, kind)
        print(describe(seed, outcome.problems, needed, outcome.log, kind))
        return 1
    print("\n".join([*outcome.log, f"seed {seed} passes"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
