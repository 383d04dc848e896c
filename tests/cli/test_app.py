"""The command itself: the table of subcommands, usage errors, help, and what it imports."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from harness.served_cluster import call
from holdfast.cli.app import COMMANDS, load_command, run
from holdfast.cli.command import as_kubectl_reads

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


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["up", "--nodes", "x"], "error: Invalid value for '--nodes': it is not an integer"),
        (["up", "--nodes", "-1"], "error: Invalid value for '--nodes': it must be at least 0"),
        (["gett"], 'error: unknown command "gett"; did you mean get?'),
        (["config", "validat"], 'error: unknown command "validat"; did you mean validate?'),
        (["get", "rsv", "--selectr", "a"], "error: unknown option --selectr; did you mean --selector?"),
        (
            ["--namspace", "x", "get", "pods"],
            "error: unknown option --namspace; did you mean --namespace?",
        ),
        (["-o", "wide", "get", "pods"], "error: unknown option -o; the options of a command follow"),
        (["get"], "error: TYPE is required: One of reservations (rsv)"),
        (
            ["explain", "pod", "p", "-o", "jsn"],
            "error: --output: 'jsn' is not one of text, json, yaml; did you mean json?",
        ),
        (["when", "pod", "-o", "xml"], "error: --output: 'xml' is not one of text, json, yaml"),
        (["get", "rsv", "-o", "jsn"], "error: --output: unknown format 'jsn'; did you mean json?"),
        (["completion", "bsh"], "did you mean bash?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_suggest_what_was_meant(words: list[str], err: str) -> None:
    done = call(*words)
    assert (done.status, done.out) == (1, "")
    assert err in done.err


def test_options_of_the_cluster_may_come_first(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    assert missing in call("--kubeconfig", missing, "-n", "shop", "get", "pods").err


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["-o=json"], ["-o", "json"]),
        (["--watch=true", "--no-headers=false"], ["--watch"]),
        (["--", "-o=json"], ["--", "-o=json"]),
    ],
)
def test_flags_are_read_as_kubectl_reads_them(words: list[str], read: list[str]) -> None:
    command = load_command("get")
    parameters = command.get_params(command.make_context("get", ["rsv"]))
    assert list(as_kubectl_reads(words, parameters)) == read


_EVERY = [(name,) for name in COMMANDS] + [("config", "default"), ("config", "rbac"), ()]


@pytest.mark.parametrize("words", _EVERY, ids=" ".join)
def test_help_is_complete_and_fits_the_terminal(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        text = call(*words, "--help").out
        described, _, examples = text.partition("\nExamples:\n")
        assert max(map(len, described.splitlines())) <= min(width, 100)
        assert "..." not in described.splitlines()[0].replace("...]", "").replace("... [", "")
        assert "<list" not in text and "{" not in described.splitlines()[0]
        if words and words != ("config",):
            assert examples.strip(), "no examples"


def test_a_closed_output_ends_a_command_silently() -> None:
    code = "import sys; sys.argv = ['holdfast', 'crds']; from holdfast.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, 141)


def test_garbage_is_not_looked_for_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With millions of objects that takes as long as the command."""
    monkeypatch.setattr(sys, "argv", ["holdfast", "--version"])
    try:
        with pytest.raises(SystemExit) as ended:
            run()
        assert ended.value.code == 0
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
