"""The command as a user meets it: output, exit status, and what goes to stderr."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.served_cluster import Done, call
from holdfast.scheduler.plugins.node_resources_fit import NodeResourcesFit

GOOD = """
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", memory: 8Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p1, annotations: {sim.holdfast.io/runs-for: 90s}}
spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p2}
spec: {containers: [{name: c, resources: {requests: {cpu: "9"}}}]}
"""
BAD_POD = GOOD.replace('cpu: "9"', 'cpu: "nine"')
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: mine}]
"""


def run_process(*arguments: str) -> Done:
    """In a process of its own, which costs a second."""
    command = [sys.executable, "-m", "holdfast", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_json_has_the_fixed_form(tmp_path: Path) -> None:
    done = run_process("simulate", written(tmp_path, "s.yaml", GOOD), "-o", "json", "--seed", "3")
    assert (done.status, done.err) == (0, "")
    result = json.loads(done.out)
    assert list(result) == ["seed", "end", "timeline", "objects", "summary"]
    assert (result["seed"], result["end"]) == (3, 90.0)
    assert result["timeline"][3] == {
        "t": 0.0,
        "object": "Pod/default/p1",
        "event": "Bound",
        "node": "n1",
        "reservation": "",
        "message": "",
    }


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    file = written(tmp_path, "s.yaml", GOOD)
    first, second = (run("simulate", file, "-o", "json").out for run in (call, run_process))
    assert first == second


def test_the_table_reads_without_a_terminal(tmp_path: Path) -> None:
    done = call("simulate", written(tmp_path, "s.yaml", GOOD))
    assert done.status == 0
    assert "0/1 nodes are available: 1 Insufficient cpu." in done.out
    assert "\x1b" not in done.out


def test_the_table_shows_messages_as_they_are(tmp_path: Path) -> None:
    failed = """
---
apiVersion: v1
kind: Pod
metadata: {name: p3}
spec: {containers: [{name: c}]}
status: {phase: Failed, message: "see [/var/log], [bold] and :warning:"}
"""
    done = call("simulate", written(tmp_path, "s.yaml", GOOD + failed))
    assert (done.status, done.err) == (0, "")
    assert "see [/var/log], [bold] and :warning:" in done.out


def test_what_comes_by_stdin_must_be_text_too() -> None:
    done = call("simulate", "-", stdin=b"a: \xff")
    assert (done.status, done.err) == (1, "error: -: not UTF-8 text, at byte 3\n")


def test_several_configs_are_compared(tmp_path: Path) -> None:
    file = written(tmp_path, "s.yaml", GOOD)
    configs = [written(tmp_path, f"{name}.yaml", CONFIG) for name in ("a", "b")]
    options = [option for config in configs for option in ("--config", config)]
    done = call("simulate", file, *options, "-o", "json")
    runs = json.loads(done.out)["runs"]
    assert [each["config"] for each in runs] == configs
    assert list(runs[0]) == ["config", "seed", "end", "timeline", "objects", "summary"]
    table = call("simulate", file, *options)
    assert table.status == 0
    assert "Comparison" in table.out


def test_pods_of_the_usual_names_are_scheduled_whatever_the_profile_is_called(tmp_path: Path) -> None:
    config = written(tmp_path, "c.yaml", CONFIG)
    done = call("simulate", "-", "--config", config, "-o", "json", stdin=GOOD)
    assert '"event": "Bound"' in done.out


def test_until_and_stdin() -> None:
    done = call("simulate", "-", "--until", "30s", "-o", "json", stdin=GOOD)
    assert json.loads(done.out)["end"] == 30.0


@pytest.mark.parametrize(
    ("text", "arguments", "lines"),
    [
        (
            BAD_POD,
            [],
            [
                "error: {file}: document 3, line 9: Pod/default/p2: "
                "spec.containers[0].resources.requests[cpu]: "
            ],
        ),
        ("a: [", [], ["error: {file}: document 1, line 2: not YAML"]),
        (GOOD, ["missing.yaml"], ["error: missing.yaml: No such file or directory"]),
        (GOOD, ["--until", "soon"], ["error: --until: not a duration: 'soon'"]),
        (GOOD, ["--config", "nope.yaml"], ["error: nope.yaml: No such file or directory"]),
        (
            GOOD + "---\n{apiVersion: sim.holdfast.io/v1alpha1, kind: Expect, pending: {p1: ''}}\n",
            [],
            ["error: {file}: document 4, line 14: Expect: pending.p1: is on n1"],
        ),
    ],
    ids=["object", "yaml", "missing", "until", "config", "expectation"],
)
def test_bad_input_is_exit_1_and_one_line_each(
    text: str, arguments: list[str], lines: list[str], tmp_path: Path
) -> None:
    file = written(tmp_path, "s.yaml", text)
    done = call("simulate", file, *arguments)
    assert done.status == 1
    printed = done.err.splitlines()
    assert len(printed) == len(lines)
    for line, start in zip(printed, lines, strict=True):
        assert line.startswith(start.format(file=file))


def test_an_invalid_config_is_reported_with_file_and_path(tmp_path: Path) -> None:
    config = written(tmp_path, "c.yaml", CONFIG + "podMaxBackofSeconds: 5\n")
    for arguments in (["simulate", "-", "--config", config], ["config", "validate", config]):
        done = call(*arguments, stdin=GOOD)
        assert done.status == 1
        assert done.err.startswith(f"error: {config}: podMaxBackofSeconds: unknown field")
        assert "podMaxBackoffSeconds" in done.err


@pytest.mark.parametrize(
    "arguments", [["simulate"], ["simulate", "x", "--nope"], ["nope"], ["simulate", "x", "-o", "xml"]]
)
def test_usage_errors_are_exit_1(arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.status == 1
    assert "Traceback" not in done.err


def test_a_broken_invariant_is_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that lets everything pass, under the name of the one that counts."""
    monkeypatch.setattr(NodeResourcesFit, "filter", lambda self, cls: None)
    done = call("simulate", written(tmp_path, "s.yaml", GOOD))
    assert done.status == 2
    assert "error: invariant broken at 0s: Node/n1: cpu" in done.err
    assert "story of Pod/default/p2" in done.err
    assert "Traceback" not in done.err


def test_the_default_configuration_is_valid(tmp_path: Path) -> None:
    printed = call("config", "default")
    assert printed.status == 0
    file = written(tmp_path, "default.yaml", printed.out)
    done = call("config", "validate", file)
    assert (done.status, done.out) == (0, f"{file}: valid (profiles: holdfast-scheduler)\n")


def test_version_is_a_flag_and_a_command() -> None:
    assert call("version").out == call("--version").out
    assert call("--version").out.startswith("holdfast ")


def test_help_lists_the_commands() -> None:
    printed = call("--help").out
    for command in ("simulate", "config", "version"):
        assert command in printed
