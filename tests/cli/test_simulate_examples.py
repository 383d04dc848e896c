"""`holdfast simulate --example`, `--list-examples` and `--print`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.options import Failure
from holdfast.cli.simulate import _complete_example
from holdfast.sim.examples import find_example


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    if isinstance(result.exception, Failure):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_example_runs_by_its_name() -> None:
    by_name = run("--example", "jobs/gangs", "-o", "json")
    assert by_name == run(str(find_example("jobs/gangs").file), "-o", "json")


def test_an_example_can_be_extended_by_a_file(tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text("{apiVersion: v1, kind: Node, metadata: {name: extra}}")
    assert "Node/extra" in run("--example", "jobs/gangs", str(more), "-o", "json")


def test_the_list_has_names_and_descriptions() -> None:
    lines = run("--list-examples").splitlines()
    assert lines[0].split(maxsplit=1) == ["tour", "A tour of basic scheduling on three nodes."]
    listed = json.loads(run("--list-examples", "-o", "json"))["examples"]
    assert len(listed) == len(lines)
    assert Path(listed[0]["file"]).is_file()


def test_a_printed_example_is_the_same_scenario(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    copy.write_text(run("--example", "tour", "--print"))
    assert copy.read_text() == find_example("tour").text
    both = tmp_path / "both.yaml"
    both.write_text(run("--example", "jobs/gangs", "--example", "tour", "--print"))
    assert both.read_text().count("kind: Expect") == sum(
        find_example(name).text.count("kind: Expect") for name in ("jobs/gangs", "tour")
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "no scenario: name files, or --example NAME (--list-examples lists them)"),
        (["--example", "tours"], "--example: no example 'tours'; did you mean tour?"),
        (["--print"], "--print: prints what --example names, and takes no files"),
        (["--print", "--example", "tour", "x.yaml"], "--print: prints what --example names"),
    ],
    ids=["no scenario", "misspelt", "nothing to print", "print of a file"],
)
def test_mistakes(arguments: list[str], error: str) -> None:
    with pytest.raises(Failure, match=r".") as failure:
        run(*arguments)
    assert failure.value.status == 1
    assert error in failure.value.lines[0]


def test_names_are_completed() -> None:
    assert [name for name, _ in _complete_example("starvation/with-")] == ["starvation/with-reserve"]
    assert _complete_example("x") == []
