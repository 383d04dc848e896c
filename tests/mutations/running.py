"""Runs tests of the project in a process of their own while one mistake is in the code."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mutations.catalogue import Mutation
from mutations.plugin import VARIABLE

ROOT = Path(__file__).parents[2]
TESTS_FAILED = 1
"""pytest's exit status where tests ran and some failed, as against not having run at all."""


@dataclass(frozen=True)
class Outcome:
    noticed: bool
    by: str
    """The first test that failed, or what pytest printed if none did."""


def run(mutation: Mutation, tests: tuple[str, ...] = (), seconds: float = 300) -> Outcome:
    """Runs the tests a mutation names, or others instead, until one fails."""
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-rf", "--no-header", "--tb=no",
        "-p", "mutations.plugin", "-p", "no:xdist", "-p", "no:cacheprovider",
        *(f"tests/{name}" for name in tests or mutation.tests),
    ]  # fmt: skip
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # A failing example is not shrunk: that it fails is all that is asked.
    environment = {
        **os.environ,
        VARIABLE: mutation.name,
        "PYTHONPATH": os.pathsep.join(paths),
        "HYPOTHESIS_PROFILE": "mutations",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(True, "a test that did not end")
    if done.returncode != TESTS_FAILED:
        return Outcome(False, (done.stdout + done.stderr)[-2000:])
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return Outcome(
        True, failed[0].removeprefix("FAILED tests/") if failed else "an error in a test's setting up"
    )
