"""Every command of the documents is run, page by page in the order of the page.

The files that a page shows are in the folder in which its commands run. Output that it shows is
compared with what the command prints. `house/shell.py` says how commands are run, and lists those that
are not, with the reason; `house/page_clusters.py` has the clusters that pages speak of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.app import COMMANDS, load_command
from house import page_clusters
from house.markdown import PAGES, Command, blocks, commands, pipelines
from house.shell import KUBECTL, NOT_RUN, Shell, is_run, parsed
from house.source import REPOSITORY

BLOCKS = list(blocks())
DOCUMENTED = [page for page in PAGES if any(b.info == "console" and b.page == page for b in BLOCKS)]


def commands_of(page: Path) -> list[Command]:
    return [
        command
        for block in BLOCKS
        if block.page == page and block.info == "console"
        for command in commands(block)
    ]


@pytest.mark.skipif(not KUBECTL.exists(), reason="needs kubectl of the extra")
@pytest.mark.parametrize("page", DOCUMENTED, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_of_the_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Shell(tmp_path, page_clusters.of(page), monkeypatch) as shell:
        for block in BLOCKS:
            if block.page == page and block.file_name:
                (shell.folder / block.file_name).write_text(block.text)
        page_clusters.add_folders(page, shell.folder)
        wrong = [problem for command in commands_of(page) for problem in problems(shell, command)]
    assert not wrong, "\n".join(wrong)


def problems(shell: Shell, command: Command) -> Iterator[str]:
    try:
        printed = shell.type(command.line)
    except (Exception, SystemExit) as error:
        yield f"$ {command.line}\n{type(error).__name__}: {error}"
        return
    last = list(pipelines(command.line))[-1][-1]
    if command.output and is_run(last) and not command.shows(printed):
        yield f"$ {command.line}\nprints\n{printed}"


def test_every_command_that_is_not_run_is_still_there() -> None:
    lines = [
        " ".join(words)
        for page in DOCUMENTED
        for command in commands_of(page)
        for pipeline in pipelines(command.line)
        for words in pipeline
    ]
    assert [each for each in NOT_RUN if not any(line.startswith(each) for line in lines)] == []


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
