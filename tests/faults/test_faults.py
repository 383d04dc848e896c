"""Lives of scheduler processes on a failing network and server, each drawn from a seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.runs import check, simulate
from holdfast.kube.runner import Runner

SEEDS = int(os.environ.get("FAULT_SEEDS", "2000"))
PARTS = 20
ONCE_BROKEN = (
    4200, 5348, 12477, 12559, 12935, 13942, 13991, 15373, 19911, 25569, 31688, 36457, 40381, 40471,
    43531, 910098, 910690, 1006023, 10014658, 10035391, 10105827,
    10106100,
    10140563,
    11002226,
    11031352,
    11041384,
    11065508,
    12020998,
    12026938,
    13232252,
    13241791,
    13338428,
    15129484,
    16360423,
)  # fmt: skip
"""Beyond those that are always run."""
BROKEN_CLAIMS = (
    500000, 500001, 500031, 500126, 9500058, 9500128, 9500310, 9500363, 9500447, 9500589,
    9601302, 9601564, 9602127, 17300094, 17300379, 17300403, 17301380,
)  # fmt: skip
BROKEN_CALENDARS = (17100076, 17100702)
BROKEN_RACES = (1376, 3548, 8004660)


def test_what_went_wrong_once_does_not_again() -> None:
    check(ONCE_BROKEN)
    check(BROKEN_CLAIMS, "claims")
    check(BROKEN_CALENDARS, "calendar")
    check(BROKEN_RACES, "races")


@pytest.mark.parametrize("part", range(PARTS))
def test_the_rules_hold_whatever_fails(part: int) -> None:
    check(range(SEEDS * part // PARTS, SEEDS * (part + 1) // PARTS))


@pytest.mark.parametrize("part", range(4))
def test_the_rules_hold_with_devices_by_claim(part: int) -> None:
    check(range(25 * part, 25 * (part + 1)), "claims")


@pytest.mark.parametrize("part", range(4))
def test_the_rules_hold_with_reservations_that_start_later(part: int) -> None:
    check(range(25 * part, 25 * (part + 1)), "calendar")


@pytest.mark.parametrize("part", range(4))
def test_the_rules_hold_with_gangs_that_wait_in_permit(part: int) -> None:
    check(range(25 * part, 25 * (part + 1)), "gangs")


@pytest.mark.parametrize("part", range(4))
def test_two_schedulers_never_bind_pods_with_one_device(part: int) -> None:
    check(range(50 * part, 50 * (part + 1)), "races")


def test_races_find_schedulers_that_do_not_verify_their_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Runner, "_conflicts_of", lambda *_: ())
    problems = [simulate(seed, kind="races").problems for seed in range(20, 26)]
    assert any("had its device before" in found[0] for found in problems if found)


@pytest.mark.parametrize("kind", ["claims", "calendar", "gangs", "races"])
def test_a_seed_of_another_kind_replays_exactly(kind: str) -> None:
    first = simulate(5, keep_log=True, kind=kind)
    assert simulate(5, keep_log=True, kind=kind).log == first.log


@pytest.mark.parametrize("seed", [3, 20, 94])
def test_a_seed_replays_exactly(seed: int) -> None:
    first = simulate(seed, keep_log=True)
    assert simulate(seed, keep_log=True).log == first.log
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        words = [sys.executable, "-m", "faults", "--seed", str(seed), "--log"]
        output = subprocess.run(
            words, env=environment, cwd=Path(__file__).parents[1], capture_output=True, text=True
        ).stdout
        assert output.splitlines()[:-1] == first.log
