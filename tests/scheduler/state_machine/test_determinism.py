"""The same events give the same decisions, always."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import choices
from scheduler.state_machine.machine import EVENTS, Life

_TESTS = Path(__file__).parents[2]
_PATH = os.pathsep.join((str(_TESTS), str(_TESTS.parent / "src")))


def decisions_of(seed: int, steps: int = 80) -> list[str]:
    choose = choices.seeded(seed)
    life = Life()
    life.put_plain_node(choose)
    for _ in range(steps):
        getattr(life, choose((*EVENTS, "round", "add_simple_pod", "put_plain_node")))(choose)
        life.check()
    return [repr(decision) for decision in life.driver.decisions]


def digest(seeds: range) -> str:
    told = hashlib.sha256()
    for seed in seeds:
        told.update("\n".join(decisions_of(seed)).encode())
    return told.hexdigest()


@pytest.mark.parametrize("seed", range(5))
def test_twice_the_same_events_twice_the_same_decisions(seed: int) -> None:
    first = decisions_of(seed)
    assert first == decisions_of(seed)
    assert first


def test_decisions_do_not_depend_on_how_this_process_hashes() -> None:
    """Sets and dicts of strings are ordered differently in every process."""
    program = "from scheduler.state_machine.test_determinism import digest; print(digest(range(20)))"
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": _PATH}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=_TESTS,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == digest(range(20))
