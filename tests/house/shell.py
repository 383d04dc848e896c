"""A shell in which the commands of a page are typed, in their order.

`holdfast` is called in this process and `kubectl` as the program that it is, both against one cluster:
`holdfast up` in a thread of this process, over HTTP, also with `--detach` (`test_pasted_blocks.py`
has the processes). `kubectl wait` and the like see time pass quickly.
`holdfast run` and `holdfast provisioner` are processes that have to become ready and end with status 0;
`holdfast bench` runs its workloads on a few nodes.

`NOT_RUN` lists what is not run, each with its reason; names and files of these commands are checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from harness.holdfast_process import holdfast
from harness.served_cluster import Done, call
from harness.up_thread import UpThread
from holdfast.bench.workload import find
from holdfast.cli import up as up_command
from holdfast.cli.app import COMMANDS, load_command
from holdfast.cli.detached_process import how_to_stop
from house.markdown import pipelines
from house.source import REPOSITORY

ANSWERS = (3, 4)
"""Exit statuses with which `holdfast when` answers that a start is not known, or does not come."""
DOES_NOT_FIT = ["holdfast", "check"]
"""Exits with status 1 if something does not fit; a page shows that output as it is."""
NOT_RUN = {
    "docker build": "needs Docker; tests/deploy checks the Dockerfile",
    "helm": "needs Helm; tests/deploy renders the chart",
    "holdfast bench --mode embedded": "measures for minutes; tests/bench runs this mode",
    "holdfast bench openb": "needs the trace, which is downloaded; tests/bench runs a small one",
    "holdfast bench SchedulingBasic --mode kube": "needs an empty cluster and kube-scheduler",
    "holdfast demo": "tests/cli/test_demo.py runs it, on both kinds of cluster",
    "holdfast get nodes -w": "does not end; tests/cli/test_watch.py runs it",
    "holdfast record": "takes hours; tests/recording runs it",
    "holdfast mcp": "does not end; tests/cli/test_mcp.py runs it",
    "kubectl -n holdfast-system exec": "needs a container; a simulated node runs none",
    "kubectl -n holdfast-system logs": "needs a container; a simulated node runs none",
    "kubectl -n holdfast-system port-forward": "needs a container; a simulated node runs none",
    "make": "installs packages, or takes minutes; its targets and variables exist",
    "pip install": "installs packages; its extras exist",
    ".venv/bin/pip install": "installs packages; its extras exist",
    "python -m faults": "tests/faults runs it",
    "python3 -m venv": "installs packages",
}
"""Beginnings of commands, with the reason."""

KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
_MAKEFILE = (REPOSITORY / "Makefile").read_text()
_CHART = REPOSITORY / "deploy/helm/holdfast"
_PATIENCE = 60.0
_LOOK_EVERY = 0.05
"""Seconds between two looks at a kubectl that waits; in each a second passes in the cluster."""
_FEW_NODES = ("--nodes", "20", "--repeat", "1", "--in-process")


class CommandFailed(AssertionError):
    pass


class Shell:
    """A folder with the files of the repository, a home, variables and a cluster."""

    def __init__(
        self, folder: Path, prepare: Callable[[Shell], object], patch: pytest.MonkeyPatch
    ) -> None:
        """`prepare` brings the cluster up that the page speaks of."""
        self.folder = folder
        self._prepare = prepare
        self._patch = patch
        self._ends = ExitStack()
        self._up: UpThread | None = None
        self._home = folder / "home"
        (self._home / ".kube").mkdir(parents=True)
        patch.setenv("HOME", str(self._home))
        patch.setenv("PWD", str(folder))
        patch.delenv("KUBECONFIG", raising=False)
        patch.chdir(folder)
        for entry in REPOSITORY.iterdir():
            if entry.name not in (".git", "holdfast.kubeconfig"):
                (folder / entry.name).symlink_to(entry)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def type(self, line: str) -> str:
        """What it prints. Raises CommandFailed."""
        done = Done(0, "", "")
        for pipeline in pipelines(line):
            done = Done(0, "", "")
            for part in pipeline:
                words, target = _redirected([_expanded(word) for word in part])
                if is_run(part):
                    done = self._run(words, done.out)
                else:
                    self._check(words)
                if done.status and done.status not in ANSWERS and words[:2] != DOES_NOT_FIT:
                    raise CommandFailed(f"status {done.status}: {done.out}{done.err}")
                if target:
                    (self.folder / target).unlink(missing_ok=True)
                    (self.folder / target).write_text(done.out)
                    done = Done(0, "", done.err)
        return done.err + done.out

    # The cluster

    @property
    def cluster(self) -> UpThread:
        """The one of the page's last `holdfast up`; before that, the one that the page speaks of."""
        if self._up is None:
            self._prepare(self)
        assert self._up is not None
        return self._up

    def bring_up(self, *options: str) -> UpThread:
        """A new cluster, for this one."""
        words = list(options)
        for at, (option, value) in enumerate(pairwise(options), start=1):
            if option in ("--port", "--dashboard-port") and value != "0":
                words[at] = "0"  # the page's may be in use on this machine
        self._ends.close()
        self._up = self._ends.enter_context(UpThread(self.folder, *words))
        shutil.copy(self._up.kubeconfig, self._home / ".kube/config")
        return self._up

    # What is run

    def _run(self, words: list[str], stdin: str) -> Done:
        if words == [".", ".venv/bin/activate"]:
            return Done(0, "", "")
        run: Callable[[list[str], str], Done] | None = getattr(self, f"_run_{words[0]}", None)
        assert run is not None, f"{words[0]}: add it to {Path(__file__).name}"
        done = run(words[1:], stdin)
        if self._up is not None:
            self._up.settle()
        return done

    def _run_holdfast(self, words: list[str], stdin: str) -> Done:
        name = words[0]
        if name == "up" and "--detach" in words:
            with patch.object(up_command, "detach", self._detach):
                return call(*words)
        if name == "down":
            return self._down()
        if name == "up":
            return Done(0, self.bring_up(*words[1:]).printed, "")
        if name in ("run", "provisioner"):
            return self._run_until_ready(words)
        if name == "bench" and "--list" not in words:
            words = [*words, *([] if parsed(words)["workload"] else ["Basic"]), *_FEW_NODES]
        asks = ("get", "describe", "explain", "reserve", "snapshot", "version", "when")
        if name in asks and "--snapshot" not in words:
            self.cluster.settle()
        return call(*words)

    def _detach(self, words: Sequence[str], log: Path, stops: str, reads_stdin: bool) -> None:
        """As `detached_process.detach`, in a thread instead of a process."""
        print(self.bring_up(*words[1:]).printed + how_to_stop(log, stops), end="")

    def _down(self) -> Done:
        """The cluster is a thread of this process, which goes on."""
        assert self._up is not None, "the page has not started a cluster"
        kubeconfig, self._up = self._up.kubeconfig, None
        self._ends.close()
        return Done(0, f"Stopped the cluster of {kubeconfig} (process {os.getpid()})\n", "")

    def _run_until_ready(self, words: list[str]) -> Done:
        flags = list(words[1:])
        kubeconfig = self.cluster.kubeconfig
        if "--kubeconfig" in flags:
            at = flags.index("--kubeconfig")
            kubeconfig = Path(flags[at + 1])
            del flags[at : at + 2]
        with holdfast(kubeconfig, self.folder / "log", *flags, command=words[0]) as process:
            return Done(process.stop(), "", process.log.read_text())

    def _run_kubectl(self, words: list[str], stdin: str) -> Done:
        if words[0] == "holdfast":
            return self._run_holdfast(words[1:], stdin)
        cluster = self.cluster
        asked = [str(KUBECTL), f"--cache-dir={self._home}/cache", *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(asked, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            if "wait" in words or "rollout" in words:
                for _ in range(int(_PATIENCE / _LOOK_EVERY)):
                    try:
                        process.wait(_LOOK_EVERY)
                        break
                    except subprocess.TimeoutExpired:
                        cluster.pass_time(1)
            out, err = process.communicate(stdin, timeout=_PATIENCE)
            return Done(process.returncode, out, err)

    def _run_python(self, words: list[str], stdin: str) -> Done:
        asked = [sys.executable, *words]
        done = subprocess.run(asked, text=True, capture_output=True, timeout=_PATIENCE)
        return Done(done.returncode, done.stdout, done.stderr)

    def _run_export(self, words: list[str], stdin: str) -> Done:
        for word in words:
            name, is_value, value = word.partition("=")
            assert is_value, word
            self._patch.setenv(name, value)
        return Done(0, "", "")

    # What is only checked

    def _check(self, words: list[str]) -> None:
        program = Path(words[0]).name
        if program in ("python3", "python", "kubectl", "export"):
            return
        check: Callable[[list[str]], None] = getattr(self, f"_check_{program}")
        check(words[1:])

    def _check_holdfast(self, words: list[str]) -> None:
        for name in parsed(words).get("workload") or ():
            assert name == "openb" or find(name)

    def _check_helm(self, words: list[str]) -> None:
        assert words[0] in ("install", "upgrade")
        assert (self.folder / words[2] / "Chart.yaml").is_file()
        values = yaml.safe_load((_CHART / "values.yaml").read_text())
        options = iter(words[3:])
        for option in options:
            match option:
                case "--set":
                    path, value = values, next(options).partition("=")[0]
                    for key in value.split("."):
                        assert key in path, f"{value} is no value of the chart"
                        path = path[key]
                case "-n" | "--namespace":
                    next(options)
                case _:
                    assert option in ("--create-namespace", "--skip-crds"), option

    def _check_make(self, words: list[str]) -> None:
        for word in words:
            name, is_variable, _ = word.partition("=")
            if is_variable:
                assert f"$({name})" in _MAKEFILE, f"the Makefile has no variable {name}"
            else:
                assert re.search(rf"^{name}:", _MAKEFILE, re.MULTILINE), f"no target {name}"

    def _check_pip(self, words: list[str]) -> None:
        (what,) = [word for word in words[1:] if not word.startswith("-")]
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        found = re.fullmatch(r"(?:\.|holdfast)(?:\[([\w,-]+)\])?", what)
        assert found, what
        assert set((found[1] or "").split(",")) - {""} <= project["optional-dependencies"].keys()

    def _check_docker(self, words: list[str]) -> None:
        assert (self.folder / words[-1] / "Dockerfile").is_file()


def is_run(words: list[str]) -> bool:
    return not " ".join(words).startswith(tuple(NOT_RUN))


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command line, by the parser of the command."""
    name, *words = words
    assert name in COMMANDS, f"no command {name}"
    command = load_command(name)
    if hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(command.make_context("", [], resilient_parsing=True), name)
        assert command, f"no command {name}"
    parameters: dict[str, Any] = command.make_context(name, list(words)).params
    return parameters


def _redirected(words: list[str]) -> tuple[list[str], str]:
    if ">" not in words:
        return words, ""
    at = words.index(">")
    return words[:at] + words[at + 2 :], words[at + 1]


def _expanded(word: str) -> str:
    """With `~` and variables, as a shell gives it to the program."""
    if word.startswith("~/"):
        word = os.environ["HOME"] + word[1:]
    return re.sub(r"\$([A-Z]+)", lambda found: os.environ[found[1]], word)
