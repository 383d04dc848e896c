"""`holdfast up --detach`: returns when the cluster is ready, or with the errors."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.up_process import Client, Running, detached_process, end_detached
from holdfast.cli.app import load_command
from holdfast.cli.detached_process import READY_DESCRIPTOR, announce, words_of
from holdfast.cli.options import Failure

COMMAND = [sys.executable, "-m", "holdfast", "up", "--detach"]
NODE = "{apiVersion: v1, kind: Node, metadata: {name: mine}, status: {capacity: {cpu: '4'}}}"
WITHOUT_PREEMPT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
actions: allocate, backfill
"""


class Folder:
    """Where `up --detach` is run, and what runs from there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._printed: list[str] = []

    def up(self, *options: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *options], cwd=self.path, input=stdin, capture_output=True, text=True, timeout=60
        )
        self._printed.append(done.stdout)
        return done

    def type(self, command: str) -> None:
        program, *words = shlex.split(command)
        assert program == "holdfast"
        subprocess.run([*COMMAND[:3], *words], cwd=self.path, check=True, timeout=60)

    def end(self) -> None:
        while self._printed:
            end_detached(self._printed.pop())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    found = Folder(tmp_path)
    yield found
    found.end()


@pytest.mark.parametrize(
    ("options", "kubeconfig", "log", "down"),
    [
        ([], "holdfast.kubeconfig", "holdfast.kubeconfig.log", "holdfast down"),
        (
            ["--in-memory", "--kubeconfig-out", "my file"],
            "my file",
            "my file.log",
            "holdfast down --kubeconfig '{folder}/my file'",
        ),
        (
            ["--data-dir", "data"],
            "data/kubeconfig",
            "data/holdfast.log",
            "holdfast down --data-dir data",
        ),
        (
            ["--data-dir", "data", "--kubeconfig-out", "k"],
            "k",
            "data/holdfast.log",
            "holdfast down --data-dir data",
        ),
    ],
)
def test_it_returns_when_the_cluster_can_be_used(
    folder: Folder, options: list[str], kubeconfig: str, log: str, down: str
) -> None:
    done = folder.up("--nodes", "2", "--no-dashboard", *options)
    assert (done.returncode, done.stderr) == (0, "")
    client = Client(folder.path / kubeconfig)
    assert len(client.get("/api/v1/nodes")["items"]) == 2
    first, *_, where, stop = done.stdout.splitlines()
    assert first.startswith("Holdfast is up: 2 nodes")
    process = detached_process(done.stdout)
    assert where == f"Runs in the background, log in {folder.path / log}"
    assert stop == f"To stop it: {down.format(folder=folder.path)}"
    assert os.getsid(process) == process, "a session of its own: it outlives the terminal"
    assert (folder.path / log).stat().st_mode & 0o777 == 0o600
    assert f"  process     {process}\n" in (folder.path / log).read_text()
    folder.type(stop.removeprefix("To stop it: "))
    with pytest.raises(ConnectionRefusedError):
        client.get("/api/v1/nodes")
    assert (folder.path / log).read_text() in done.stdout
    assert not list(folder.path.rglob("*.pid"))


def test_manifests_can_come_from_stdin(folder: Folder) -> None:
    assert folder.up("--apply", "-", "--no-dashboard", stdin=NODE).returncode == 0
    (node,) = Client(folder.path / "holdfast.kubeconfig").get("/api/v1/nodes")["items"]
    assert node["metadata"]["name"] == "mine"


def test_warnings_are_printed_where_it_was_typed(folder: Folder) -> None:
    done = folder.up("--no-dashboard", "--config", "-", stdin=WITHOUT_PREEMPT)
    assert done.returncode == 0
    assert done.stderr.startswith("warning: -: actions: ")
    assert "preempt" in done.stderr
    assert done.stderr in (folder.path / "holdfast.kubeconfig.log").read_text()
    assert "warning: " not in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--apply", "none.yaml"], "error: none.yaml: No such file or directory"),
        (["--config", "bad.yaml"], "error: bad.yaml: "),
        (["--host", "192.0.2.1"], "error: cannot listen on 192.0.2.1:0: "),
        (["--data-dir", "data", "--config", "bad.yaml"], "error: bad.yaml: "),
        (["--kubeconfig-out", "no/where"], "no directory"),
        (["--data-dir", "data", "--in-memory"], "cannot be given together"),
    ],
)
def test_errors_and_status_of_a_cluster_that_cannot_start(
    folder: Folder, options: list[str], message: str
) -> None:
    (folder.path / "bad.yaml").write_text("{apiVersion: v1, kind: Nonsense}")
    done = folder.up(*options)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert [path.name for path in folder.path.iterdir()] == ["bad.yaml"], "nothing is left behind"


def test_ctrl_c_while_it_starts_stops_it(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    os.mkfifo(manifests)
    with subprocess.Popen([*COMMAND, "--apply", str(manifests)], cwd=tmp_path) as process:
        writer = os.open(manifests, os.O_WRONLY)  # returns when the other process reads it
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"{}")  # it is not read any more
    os.close(writer)
    assert not (tmp_path / "holdfast.kubeconfig").exists()


def test_a_cluster_that_is_not_waited_for_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setenv(READY_DESCRIPTOR, str(writing))
    with pytest.raises(Failure, match="the process that started this one ended"):
        announce("ready\n", [])
    announce("without --detach no process is notified", [])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--nodes", "3", "--detach"],
        ["--apply", "a", "--apply", "-x", "--node-file", "n", "--data-dir", "d d", "--config", "-"],
        ["--no-dashboard", "--in-memory", "--port", "8080", "--jobs-run-for", "unlimited"],
        ["--dashboard-port", "0", "--kubeconfig-out", "k", "--authorization-always-allow-paths", ""],
    ],
)
def test_the_other_process_gets_the_same_options(words: list[str]) -> None:
    command = load_command("up")
    given = command.make_context("up", list(words))
    passed = command.make_context("up", words_of(given, without="detached"))
    assert passed.params == given.params | {"detached": False}


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_the_kubeconfig_of_a_running_cluster_is_not_replaced(
    tmp_path: Path, folder: Folder, options: list[str]
) -> None:
    with Running(tmp_path, "--no-dashboard") as running:
        written = running.kubeconfig.read_text()
        again = [sys.executable, "-m", "holdfast", "up", *options, "--kubeconfig-out"]
        done = subprocess.run(
            [*again, str(running.kubeconfig)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1
        named = (str(running.kubeconfig), f"process {running.process.pid}", "--kubeconfig-out")
        assert [each for each in named if each not in done.stderr] == []
        assert running.kubeconfig.read_text() == written
        assert folder.up("--no-dashboard", "--kubeconfig-out", "other").returncode == 0
        folder.end()
        running.kill()
    done = folder.up("--no-dashboard", "--kubeconfig-out", str(running.kubeconfig))
    assert done.returncode == 0, "that of a cluster that has ended is replaced"


def test_no_kubeconfig_is_left_if_the_dashboard_cannot_be_served(folder: Folder) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        done = folder.up("--dashboard-port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "error: --dashboard-port: cannot listen on 127.0.0.1:" in done.stderr
    assert not (folder.path / "holdfast.kubeconfig").exists()
