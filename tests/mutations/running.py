"""Runs tests of the project in a process of their own while one mistake is in the code.

    python -m mutations.running        reads a line for each mistake, {"mutation": …, "tests": […]},
                                       and prints a line for each, {"noticed": …, "by": …}

The process imports pytest and libraries once, and nothing of the project; each mistake is a fork of it,
which imports the project with the mistake. That takes half the time of a new interpreter.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from mutations.catalogue import Mutation
from mutations.mutating_import import install

ROOT = Path(__file__).parents[2]
SECONDS = 300
"""A test that takes longer has noticed too."""
TESTS_FAILED = 1
"""pytest's exit status where tests ran and some failed, as against not having run at all."""
_LIBRARIES = ("hypothesis.stateful", "msgspec", "numpy", "pytest", "typer", "yaml")


@dataclass(frozen=True)
class Outcome:
    noticed: bool
    by: str
    """The first test that failed, or what pytest printed if none did."""


class MutationRunner:
    """The process that is forked; `with` ends it."""

    def __enter__(self) -> MutationRunner:
        paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        # A failing example is not shrunk: that it fails is all that is asked.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "HYPOTHESIS_PROFILE": "mutations",
        }
        environment.pop("PYTEST_ADDOPTS", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mutations.running"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, mutation: Mutation, tests: Sequence[str] = ()) -> Outcome:
        """Runs the tests a mutation names, or others instead, until one fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"mutation": mutation.name, "tests": [*(tests or mutation.tests)]}
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


def _forked(name: str, tests: list[str]) -> Outcome:
    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            status = TESTS_FAILED + 1
            try:
                status = _run(name, tests, printed)
            except BaseException:
                traceback.print_exc(file=printed)
            finally:
                printed.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        text = printed.read()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return Outcome(True, "a test that did not end")
    if os.waitstatus_to_exitcode(status) != TESTS_FAILED:
        return Outcome(False, text[-2000:])
    failed = [line.split(" - ")[0] for line in text.splitlines() if line.startswith("FAILED ")]
    return Outcome(
        True, failed[0].removeprefix("FAILED tests/") if failed else "an error in a test's setting up"
    )


def _run(name: str, tests: list[str], printed: TextIO) -> int:
    import pytest

    signal.alarm(SECONDS)
    install(name)
    # The libraries are imported already, so their assertions cannot be rewritten.
    options = ["-x", "-q", "-rf", "--no-header", "--tb=no", "--assert=plain"]
    options += ["-p", "no:xdist", "-p", "no:cacheprovider"]
    with redirect_stdout(printed), redirect_stderr(printed):
        return int(pytest.main([*options, *(f"tests/{each}" for each in tests)]))


def main() -> None:
    for library in _LIBRARIES:
        importlib.import_module(library)
    assert not any(module.partition(".")[0] == "holdfast" for module in sys.modules)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        outcome = _forked(asked["mutation"], asked["tests"])
        answers.write(f"{json.dumps(vars(outcome))}\n")
        answers.flush()


if __name__ == "__main__":
    main()
