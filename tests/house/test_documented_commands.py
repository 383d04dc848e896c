"""Every command of the documents runs, or has options, arguments and files that exist.

`holdfast simulate`, `config`, `crds`, `version` and `bench --list` run here, in a folder with the files
of the repository and those that the page itself shows. `get`, `describe`, `explain` and `reserve` run
against an API server in this process. What does not end or measures for minutes (`up`, `run`,
`provisioner`, `bench`) is given to the command's own parser, and kubectl parses its own options.
Output that a document shows is compared with what the command prints.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.objects import deployment, pod, reservation, workload
from harness.served_cluster import ServedCluster, call
from holdfast.bench.workload import find
from holdfast.cli.app import COMMANDS, load_command
from house.markdown import PAGES, Command, blocks, commands
from house.source import REPOSITORY

UNCOMPARED = {
    "holdfast up": "it does not end, and its port is any free one",
}
"""Commands whose output is not compared, by their beginning, with the reason. It only shrinks."""

_ON_A_CLUSTER = {"get", "describe", "explain", "reserve"}
_OFFLINE = {"simulate", "config", "crds", "version"}
_MAKEFILE = (REPOSITORY / "Makefile").read_text()
_CHART = REPOSITORY / "deploy/helm/holdfast"

BLOCKS = list(blocks())
DOCUMENTED = [page for page in PAGES if any(b.info == "console" and b.page == page for b in BLOCKS)]


def commands_of(page: Path) -> list[Command]:
    return [
        command
        for block in BLOCKS
        if block.page == page and block.info == "console"
        for command in commands(block)
    ]


@dataclass(frozen=True)
class Shell:
    """The folder in which the commands of a page run, and the cluster they see."""

    folder: Path
    cluster: ServedCluster

    def run(self, part: list[str]) -> str:
        program, *words = part
        if program == ".":
            return self._source(words)
        check: Callable[[list[str]], str] | None = getattr(self, f"_{Path(program).name}", None)
        assert check, f"no check for {program}: add one to {Path(__file__).name}"
        return check(words)

    def _holdfast(self, words: list[str]) -> str:
        words, target = _redirected(words)
        parameters = parsed(words)
        for name in ("config", "apply", "file"):
            self._are_there(parameters.get(name))
        if words[0] == "bench":
            for workload_name in parameters["workload"] or ():
                assert workload_name == "openb" or find(workload_name)
        if words[0] not in _OFFLINE | _ON_A_CLUSTER and "--list" not in words:
            return ""
        if words[0] in _ON_A_CLUSTER and "--kubeconfig" not in words:
            words = [*words, "--kubeconfig", self.cluster.kubeconfig]
        if "-w" in words:
            return ""
        done = call(*words)
        assert done.status == 0, done.out + done.err
        if target:
            (self.folder / target).write_text(done.out)
        return done.err + done.out

    def _kubectl(self, words: list[str]) -> str:
        if words[0] == "holdfast":
            return self._holdfast(words[1:])
        words, target = _redirected(words)
        if target:
            node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "dumped"}}
            node["status"] = {"allocatable": {"cpu": "64", "memory": "256Gi"}}
            dump = {"apiVersion": "v1", "kind": "List", "items": [node]}
            (self.folder / target).write_text(yaml.safe_dump(dump))
        files = [after for word, after in pairwise(words) if word in ("-f", "-k")]
        self._are_there([file for file in files if file != "-"])
        own = Path(sysconfig.get_path("scripts")) / "kubectl"
        binary = str(own) if own.exists() else shutil.which("kubectl")
        if binary:
            end = words.index("--") if "--" in words else len(words)
            asked = [binary, *words[:end], "--help"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        return ""

    def _helm(self, words: list[str]) -> str:
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
        return ""

    def _make(self, words: list[str]) -> str:
        for word in words:
            name, is_variable, _ = word.partition("=")
            if is_variable:
                assert f"$({name})" in _MAKEFILE, f"the Makefile has no variable {name}"
            else:
                assert re.search(rf"^{name}:", _MAKEFILE, re.MULTILINE), f"no target {name}"
        return ""

    def _pip(self, words: list[str]) -> str:
        assert words[0] == "install"
        (what,) = [word for word in words[1:] if not word.startswith("-")]
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        found = re.fullmatch(r"(?:\.|holdfast)(?:\[([\w,-]+)\])?", what)
        assert found, what
        assert set((found[1] or "").split(",")) - {""} <= project["optional-dependencies"].keys()
        return ""

    def _docker(self, words: list[str]) -> str:
        assert words[0] == "build"
        assert (self.folder / words[-1] / "Dockerfile").is_file()
        return ""

    def _python(self, words: list[str]) -> str:
        words, _ = _redirected(words)
        file = words[0] if words[0] != "-m" else f"tests/{words[1]}"
        assert (self.folder / file).exists(), f"there is no {file}"
        return ""

    def _python3(self, words: list[str]) -> str:
        assert words == ["-m", "venv", ".venv"]
        return ""

    def _source(self, words: list[str]) -> str:
        assert words == [".venv/bin/activate"]
        return ""

    def _export(self, words: list[str]) -> str:
        assert all("=" in word for word in words)
        return ""

    def _are_there(self, files: Any) -> None:
        for file in [files] if isinstance(files, str | Path) else files or ():
            assert (self.folder / file).exists(), f"there is no {file}"


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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """What the pages speak of: `peak` on node-1, which `web-0` uses half of; node-2 is tainted and
    node-3 cordoned, so that `big` is pending; a Deployment `web`, a Job `train`."""
    with ServedCluster(tmp_path_factory.mktemp("documented"), nodes=3) as cluster:
        cluster.create(
            reservation(
                "peak",
                "4",
                "web",
                memory="8Gi",
                allocateOnce=False,
                ttl="2h",
                pod={"nodeName": "node-1"},
            ),
            deployment("web", "web", 0),
            workload(
                "batch/v1",
                "Job",
                "train",
                "train",
                parallelism=2,
                suspend=True,
                pod={"restartPolicy": "Never"},
            ),
        ).settle()
        cluster.create(pod("web-0", "2", "web", memory="1Gi")).settle()
        taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
        cluster.merge("/api/v1/nodes/node-2", {"spec": {"taints": [taint]}})
        cluster.merge("/api/v1/nodes/node-3", {"spec": {"unschedulable": True}})
        cluster.create(pod("big", "6", memory="1Gi")).settle()
        yield cluster


@pytest.fixture
def shell(tmp_path: Path, cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for entry in REPOSITORY.iterdir():
        if entry.name != ".git":
            (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    before = _reservations(cluster)
    yield Shell(tmp_path, cluster)
    for name in _reservations(cluster) - before:
        cluster.server.delete(f"/apis/scheduling.koordinator.sh/v1alpha1/reservations/{name}")


def _reservations(cluster: ServedCluster) -> set[str]:
    return set(cluster.server.get("/apis/scheduling.koordinator.sh/v1alpha1/reservations").names)


@pytest.mark.parametrize("page", DOCUMENTED, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_of_the_page(page: Path, shell: Shell) -> None:
    for block in BLOCKS:
        if block.page == page and block.file_name:
            (shell.folder / block.file_name).write_text(block.text)
    wrong = [problem for command in commands_of(page) for problem in problems(shell, command)]
    assert not wrong, "\n".join(wrong)


def problems(shell: Shell, command: Command) -> Iterator[str]:
    printed = ""
    for part in command.parts:
        try:
            printed = shell.run(part)
        except (Exception, SystemExit) as error:
            yield f"$ {command.line}\n{type(error).__name__}: {error}"
            return
    if command.output and not command.line.startswith(tuple(UNCOMPARED)) and not command.shows(printed):
        yield f"$ {command.line}\nprints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_within_sentences_exist(page: Path) -> None:
    """A code span such as `holdfast get nodes -o wide`: its command, and its options."""
    for span in re.findall(r"`holdfast ([^`]+)`", page.read_text()):
        name, *words = span.split()
        if name.startswith("-"):
            continue
        assert name in COMMANDS, span
        command = load_command(name)
        if hasattr(command, "get_command") and words:
            command = command.get_command(
                command.make_context("", [], resilient_parsing=True), words[0]
            )
            assert command, span
        known = {option for parameter in command.params for option in parameter.opts}
        known |= {option for parameter in command.params for option in parameter.secondary_opts}
        unknown = {word.partition("=")[0] for word in words if word.startswith("-")} - known - {"-"}
        assert not unknown, span


def test_every_exception_is_still_needed() -> None:
    shown = [each for page in DOCUMENTED for each in commands_of(page) if each.output]
    for beginning in UNCOMPARED:
        assert any(command.line.startswith(beginning) for command in shown), beginning


@pytest.mark.parametrize(
    "words",
    [
        ["get", "reservations", "--al"],
        ["up", "--node", "x"],
        ["config", "validat", "f"],
        ["gett", "reservations"],
        ["bench", "--mode", "other"],
    ],
    ids=" ".join,
)
def test_the_parser_refuses_what_is_misspelt(words: list[str]) -> None:
    with pytest.raises(Exception, match=r".+"):
        parsed(words)
