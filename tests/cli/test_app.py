"""The command itself: the table of subcommands, and what help and completion import."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import COMMANDS, app, load_command

_LOADED = """
import sys
from holdfast.cli.app import app
try:
    app(["--help"])
except SystemExit:
    pass
print(*sorted(name for name in sys.modules if name.startswith(("holdfast.", "numpy", "aiohttp"))))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_first_sentence_of_every_command(name: str) -> None:
    described = (load_command(name).help or "").split("\n\n")[0].replace("\n", " ")
    assert described == COMMANDS[name][1]


def test_help_imports_no_command() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    )
    loaded = printed.stdout.splitlines()[-1].split()
    assert {name.split(".")[1] for name in loaded if "." in name} <= {"api", "cli"}, loaded
    assert "numpy" not in loaded and "aiohttp" not in loaded


def test_a_command_is_completed_with_its_options() -> None:
    for line, expected in (("holdfast simu", "simulate"), ("holdfast simulate --unti", "--until")):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        env = {"_HOLDFAST_COMPLETE": "complete_bash", **words}
        assert expected in CliRunner().invoke(app, [], env=env, prog_name="holdfast").stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["simulte"])
    assert result.exit_code == 2 and "No such command 'simulte'" in result.output
