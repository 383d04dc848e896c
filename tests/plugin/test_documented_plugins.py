"""Every block of docs/plugins.md runs as it stands there.

Python blocks are files of one package; they run in order and see each other's names. Their tests are
tests here. The configuration, the scenario and the commands of the page are tried with the package of
the page installed.
"""

import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner

import holdfast.plugin
from harness.up_thread import UpThread
from holdfast.cli.app import app, load_command
from holdfast.plugin import (
    AnnotatePod,
    Bind,
    Change,
    Emit,
    Filter,
    Need,
    Nomination,
    ObjectRef,
    ObjectWarning,
    Offer,
    Outcome,
    Plugin,
    Preempt,
    Reason,
    Rejected,
    Score,
    testing,
)
from holdfast.plugin.testing import Cluster
from holdfast.scheduler.cluster.view import View
from holdfast.scheduler.framework import registry as registry_module
from holdfast.scheduler.framework.handle import Handle, Nodes
from holdfast.scheduler.framework.interface import _POINTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()


class Block(NamedTuple):
    language: str
    file: str
    """The name its first line gives it."""
    text: str


def blocks() -> Iterator[Block]:
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        first = text.partition("\n")[0]
        yield Block(language, first.removeprefix("# ") if first.startswith("# ") else "", text)


BLOCKS = list(blocks())


def package() -> dict[str, Any]:
    """All python blocks, run one after the other as one module."""
    module = ModuleType("documented_plugins")
    sys.modules[module.__name__] = module  # where dataclasses and the like look for names
    for block in BLOCKS:
        if block.language == "python":
            exec(compile(block.text, f"docs/plugins.md: {block.file}", "exec"), module.__dict__)
    return module.__dict__


PACKAGE = package()
TESTS = [name for name in PACKAGE if name.startswith("test_")]
PLUGINS = [
    each
    for each in PACKAGE.values()
    if isinstance(each, type) and issubclass(each, Plugin) and each is not Plugin
]


def of(file: str) -> str:
    return next(block.text for block in BLOCKS if block.file == file)


def test_every_block_is_of_a_kind_that_is_tried_here() -> None:
    assert {block.language for block in BLOCKS} == {"python", "toml", "yaml", "console", "dockerfile"}
    assert all(block.file for block in BLOCKS if block.language not in ("console", "dockerfile"))
    files = [block.file for block in BLOCKS if block.file]
    assert len(files) == len(set(files))
    defined = re.findall(r"^def (test_\w+)", PAGE, re.MULTILINE)
    assert sorted(defined) == sorted(TESTS), "two tests have one name"


@pytest.mark.parametrize("name", TESTS)
def test_the_page(name: str) -> None:
    PACKAGE[name]()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the page's files, where its package is installed."""
    for block in BLOCKS:
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    offered = tomllib.loads(of("pyproject.toml"))["project"]["entry-points"][registry_module.GROUP]
    entries = [EntryPoint(name, value, registry_module.GROUP) for name, value in offered.items()]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: entries)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        sys.modules.pop(block.file.removesuffix(".py"), None)
    return tmp_path


def commands() -> list[list[str]]:
    texts = [block.text for block in BLOCKS if block.language == "console"]
    return [shlex.split(line)[1:] for text in texts for line in text.splitlines()]


def test_the_commands_are_all_the_ways_to_use_a_configuration() -> None:
    assert [command[1] for command in commands()] == ["simulate", "up", "run", "config"]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command[1])
def test_the_commands(installed: Path, command: list[str]) -> None:
    """A process of `run` would not see the package, which is installed for this process only: its
    arguments are parsed."""
    program, *arguments = command
    assert program == "holdfast"
    if arguments[0] == "up":
        with UpThread(installed, *arguments[1:]):
            return
    if arguments[0] == "run":
        load_command("run").make_context("run", arguments[1:])
        return
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


def test_the_scenario_fails_without_the_plugin(installed: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", "scenario.yaml"])
    assert result.exit_code != 0


def test_the_entry_point_and_the_wheel_name_the_file_of_the_plugin(installed: Path) -> None:
    project = tomllib.loads(of("pyproject.toml"))
    (value,) = project["project"]["entry-points"][registry_module.GROUP].values()
    file = f"{value.partition(':')[0]}.py"
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"] == [file]
    assert (installed / file).exists()
    (profile,) = yaml.safe_load(of("config.yaml"))["profiles"]
    assert profile["pluginConfig"][0]["name"] in {plugin.name for plugin in PLUGINS}


def public(thing: Any) -> list[str]:
    return [name for name in vars(thing) if not name.startswith("_")]


def fields(*answers: Any) -> set[str]:
    found = (getattr(each, "_fields", ()) or each.__struct_fields__ for each in answers)
    return {name for names in found for name in names}


OWN = {"entries", "facet", "single"}
"""Of views, for plugins of Holdfast's own."""


@pytest.mark.parametrize(
    ("names", "of"),
    [
        pytest.param([method for method in vars(Plugin) if method in _POINTS], "Plugin", id="points"),
        pytest.param(
            [name for name in public(Plugin) if name.startswith("reads_")], "Plugin", id="reads"
        ),
        pytest.param(set(public(View)) - OWN, "View", id="view"),
        pytest.param(public(Handle), "Handle", id="handle"),
        pytest.param(public(Nodes), "Handle.nodes", id="nodes"),
        pytest.param(set(public(Cluster)) - {"now", "scheduler"}, "testing.Cluster", id="cluster"),
        pytest.param(testing.__all__, "testing", id="testing"),
        pytest.param(holdfast.plugin.__all__, "holdfast.plugin", id="package"),
        pytest.param(fields(Filter, Rejected, Score) - {"lasting"}, "filter and score", id="answers"),
        pytest.param(fields(Reason, Need, Outcome), "reserve and permit", id="outcomes"),
        pytest.param(
            fields(Nomination, Preempt, ObjectWarning, Offer) - {"has_failed"},
            "post_filter",
            id="proposals",
        ),
        pytest.param(fields(Bind, AnnotatePod, Emit, ObjectRef), "decisions", id="decisions"),
    ],
)
def test_the_page_names_everything_there_is(names: Iterable[str], of: str) -> None:
    missing = [name for name in names if not re.search(rf"\b{name}\b", PAGE)]
    assert not missing, f"{of}: not on the page"


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors


def test_the_questions_are_numbered_and_each_is_answered() -> None:
    questions = PAGE.partition("## Questions\n")[2]
    found = re.findall(r"^(\d+)\. \*\*(.+?)\?\*\* (\S.+)$", questions, re.MULTILINE)
    assert [int(number) for number, *_ in found] == list(range(1, 18))


def test_the_page_names_every_change() -> None:
    of_storage = Change.ABOUT_STORAGE | Change.STORAGE
    single = {
        name: value
        for name, value in vars(Change).items()
        if name.isupper() and value and not value & (value - 1) and not value & of_storage
    }
    assert [name for name in single if f"`{name}`" not in PAGE] == []
