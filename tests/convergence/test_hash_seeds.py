"""The same scenario gives the same bytes, whatever Python's hash seed."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
LIVES = 20


def digests(seed: int) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(TESTS), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "convergence.digests", str(LIVES)],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_no_outcome_depends_on_the_hash_seed() -> None:
    processes = [digests(seed) for seed in (1, 2)]
    first, second = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(first) > LIVES
    assert [one for one, other in zip(first, second, strict=True) if one != other] == []
