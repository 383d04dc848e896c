"""What shells complete, and the scripts that they load."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from harness.objects import deployment, reservation
from harness.served_cluster import ServedCluster, call


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("completion")) as cluster:
        cluster.create(reservation("peak"), reservation("quiet"), deployment("web", "web", 0))
        yield cluster


@pytest.mark.parametrize(
    ("words", "expected", "directive"),
    [
        (["exp"], ["explain"], 4),
        (["-n", "shop", "exp"], ["explain"], 4),
        (["--n"], ["--namespace"], 4),
        (["--v"], ["--version"], 4),
        (["--kubeconfig", ""], [], 0),
        (["--kubeconfig", "/nonexistent", "--context", ""], [], 4),
        (["get", "re"], ["reservations", "reservationschedules"], 4),
        (["get", "nodes,q"], ["nodes,queue", "nodes,queues"], 4),
        (["reserve", "dep"], ["deployment/"], 6),
        (["explain", "re"], ["reservation", "replicaset", "resourceclaim", "reservationschedule"], 4),
        (["config", "val"], ["validate"], 4),
        (["config", "validate", ""], [], 0),
        (["get", "rsv", "--sel"], ["--selector"], 4),
        (["get", "rsv", "-o", "ya"], ["yaml"], 4),
        (["reserve", "--policy=Re"], ["--policy=Restricted"], 4),
        (["reserve", "--before-start", "D"], ["Drain"], 4),
        (["run", "--config", ""], [], 0),
        (["completion", "z"], ["zsh"], 4),
        (["bench", "GangsOfThr"], ["GangsOfThree"], 4),
        (["nonsense", ""], [], 4),
        (["get", "rsv", "--kubeconfig", "/nonexistent", "p"], [], 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_are_completed_without_a_cluster(
    words: list[str], expected: list[str], directive: int
) -> None:
    done = call("__complete", *words)
    *values, last = done.lines
    assert ([value.partition("\t")[0] for value in values], last) == (expected, f":{directive}")
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get", "rsv", ""], ["peak", "quiet"]),
        (["get", "rsv", "peak", ""], ["quiet"]),
        (["get", "rsv/p"], ["rsv/peak"]),
        (["describe", "node", "node-"], ["node-1", "node-2"]),
        (["explain", "rsv", "p"], ["peak"]),
        (["explain", "rsv/q"], ["rsv/quiet"]),
        (["explain", "deploy", ""], ["web"]),
        (["reserve", "deployment/"], ["deployment/web"]),
        (["reserve", "--node", "node-2"], ["node-2"]),
        (["-n", "default", "get", "nodes", "node-1"], ["node-1"]),
        (["-n", "kube-s"], ["kube-system"]),
        (["get", "-n", "kube-s"], ["kube-system"]),
        (["--namespace=kube-s"], ["--namespace=kube-system"]),
        (["--context", ""], ["c"]),
        (["-n", "default", "--context", "c"], ["c"]),
        (["get", "--context", ""], ["c"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_names_come_from_the_cluster(
    cluster: ServedCluster,
    words: list[str],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    plugin = call(*words, program="/usr/bin/kubectl_complete-holdfast")
    assert plugin.lines[:-1] == call("__complete", *words).lines[:-1] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_scripts_are_valid(shell: str) -> None:
    script = call("completion", shell).out
    assert "__complete" in script
    program = shutil.which(shell)
    if program and shell != "powershell":
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_bash_joins_what_it_splits_at_equals_signs() -> None:
    script = call("completion", "bash").out
    stub = "holdfast() { printf '%s\\n' \"$@\" >&3; printf -- '--policy=Restricted\\n:4\\n'; }"
    line = "COMP_WORDS=(holdfast reserve --policy = Re); COMP_CWORD=4; _holdfast_complete"
    code = f'{script}\n{stub}\n{line} 3>&1; echo "reply ${{COMPREPLY[*]}}"'
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__complete", "reserve", "--policy=Re", "reply", "Restricted"]
