"""`holdfast down`: ends the cluster of a kubeconfig or data directory, and no other process."""

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.up_process import Running, detached_process, end_detached
from holdfast.cli.app import call
from holdfast.cli.process_file import ClusterProcess, ClusterRuns, ProcessFile, process_file

UP = [sys.executable, "-m", "holdfast", "up", "--detach", "--no-dashboard"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that has nothing to do with Holdfast."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        assert process.poll() is None, "it was left alone"
        process.kill()


@pytest.mark.parametrize(
    ("up", "down", "kubeconfig"),
    [
        ([], [], "holdfast.kubeconfig"),
        (["--kubeconfig-out", "k"], ["--kubeconfig", "k"], "k"),
        (["--data-dir", "data"], ["--data-dir", "data"], "data/kubeconfig"),
        (["--data-dir", "data"], ["--kubeconfig", "data/kubeconfig"], "data/kubeconfig"),
        (["--data-dir", "data", "--kubeconfig-out", "k"], ["--data-dir", "data"], "data/kubeconfig"),
        (["--data-dir", "data", "--kubeconfig-out", "k"], ["--kubeconfig", "k"], "k"),
    ],
)
def test_it_ends_the_cluster(
    folder: Path, capsys: pytest.CaptureFixture[str], up: list[str], down: list[str], kubeconfig: str
) -> None:
    done = subprocess.run([*UP, *up], capture_output=True, text=True, timeout=60)
    process = detached_process(done.stdout)
    handle = os.pidfd_open(process)  # it is readable once the process has ended
    try:
        assert call(["down", *down]) == 0
        assert select.select([handle], [], [], 10)[0] == [handle]
    finally:
        os.close(handle)
        end_detached(done.stdout)
    assert (
        capsys.readouterr().out == f"Stopped the cluster of {folder / kubeconfig} (process {process})\n"
    )
    assert call(["down", *down]) == 1
    assert "error: no cluster of `holdfast up" in capsys.readouterr().err


def test_the_kubeconfig_of_the_environment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(folder, "--no-dashboard") as first:
        assert call(["down"]) == 1
        assert f"there is no {folder}/holdfast.kubeconfig" in capsys.readouterr().err
        (folder / "second").mkdir()
        with Running(folder / "second", "--no-dashboard") as second:
            monkeypatch.setenv("KUBECONFIG", f"/none:{second.kubeconfig}:{first.kubeconfig}")
            assert call(["down"]) == 1
            assert f"the clusters of {second.kubeconfig} and {first.kubeconfig} run" in (
                capsys.readouterr().err
            )
            assert call(["down", "--kubeconfig", str(second.kubeconfig)]) == 0
            second.process.communicate(timeout=60)
        assert call(["down"]) == 0
        first.process.communicate(timeout=60)


def test_a_process_that_has_the_number_by_now_is_left_alone(
    capsys: pytest.CaptureFixture[str], sleeper: int
) -> None:
    Path("holdfast.kubeconfig.pid").write_text(f"{sleeper}\n")
    assert call(["down"]) == 1
    said = capsys.readouterr().err
    assert f"process {sleeper} of {Path('holdfast.kubeconfig').absolute()} has ended" in said
    assert "the process that has this id now is another program and is not stopped" in said


def test_a_process_that_was_killed_has_ended(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with Running(folder, "--no-dashboard") as running:
        running.kill()
        assert call(["down", "--kubeconfig", str(running.kubeconfig)]) == 1
        said = capsys.readouterr().err
    assert f"no cluster runs: process {running.process.pid} of {running.kubeconfig} has ended\n" in said
    with Running(folder, "--no-dashboard") as running:
        assert process_file(running.kubeconfig).read_text() == f"{running.process.pid}\n"
        assert running.stop() == (0, "")


def test_a_process_of_another_user_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    with ProcessFile(Path("holdfast.kubeconfig.pid")):
        monkeypatch.setattr(os, "kill", refuse)
        assert call(["down"]) == 1
    assert f"process {os.getpid()}, which runs the cluster of" in (said := capsys.readouterr().err)
    assert "belongs to another user" in said


def test_a_process_that_does_not_end_in_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProcessFile(Path("holdfast.kubeconfig.pid")):
        monkeypatch.setattr(os, "kill", lambda *_: None)
        assert call(["down", "--timeout", "10ms"]) == 1
    assert "has not ended within 10ms: it may still end" in capsys.readouterr().err


def test_a_cluster_whose_process_is_not_known_is_named(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    with Running(folder, "--no-dashboard") as running:
        process_file(running.kubeconfig).unlink()
        assert call(["down", "--kubeconfig", str(running.kubeconfig)]) == 1
        assert f"at {running.client.server.geturl()} is not known" in capsys.readouterr().err
        assert running.stop() == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kubeconfig", "k", "--data-dir", "d"], "cannot be given together"),
        (["--timeout", "soon"], "--timeout: "),
        (["--kubeconfig", "none"], "there is no"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert call(["down", *words]) == 1
    assert message in capsys.readouterr().err


def test_a_file_has_one_process(folder: Path) -> None:
    path = folder / "p"
    with ProcessFile(path):
        with pytest.raises(ClusterRuns), ProcessFile(path):
            pass
        seen = ClusterProcess(path)
        assert (seen.number, seen.runs) == (os.getpid(), True)
        seen.close()
    assert not path.exists()
    with ProcessFile(folder / "none" / "p"):
        assert not (folder / "none").exists(), "that it cannot be written does not matter"


@pytest.mark.parametrize(
    ("first", "second", "message", "command", "other"),
    [
        ([], [], "{}/holdfast.kubeconfig: is the kubeconfig", "holdfast down", "--kubeconfig-out"),
        (
            ["--kubeconfig-out", "k"],
            ["--kubeconfig-out", "k", "--data-dir", "data"],
            "{}/k: is the kubeconfig",
            "holdfast down --kubeconfig {}/k",
            "--kubeconfig-out",
        ),
        *(
            (
                ["--data-dir", "data", *first],
                ["--data-dir", "data", *second],
                "data: is the data directory",
                "holdfast down --data-dir data",
                "--data-dir",
            )
            for first, second in (
                ([], []),
                ([], ["--kubeconfig-out", "k"]),
                (["--kubeconfig-out", "k"], ["--kubeconfig-out", "k"]),
            )
        ),
    ],
)
def test_a_second_cluster_is_refused_with_the_command_that_stops_the_first(
    folder: Path, first: list[str], second: list[str], message: str, command: str, other: str
) -> None:
    up = subprocess.run([*UP, *first], capture_output=True, text=True, timeout=60)
    try:
        again = subprocess.run([*UP, *second], capture_output=True, text=True, timeout=60)
        assert (again.returncode, again.stdout) == (1, "")
        process, command = detached_process(up.stdout), command.format(folder)
        assert again.stderr == (
            f"error: {message.format(folder)} of a cluster that runs as process {process}; stop that "
            f"one with `{command}`, or name another with {other}\n"
        )
        assert call(shlex.split(command)[1:]) == 0
    finally:
        end_detached(up.stdout)
