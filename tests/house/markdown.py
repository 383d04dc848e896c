"""Fenced blocks of the documents, and the shell commands in them.

The info string of a block says how it is checked:

yaml            complete documents: Kubernetes objects, a scenario or a scheduler configuration. A
                first line `# name.yaml` makes it a file that the page's commands can name
yaml values     values of the Helm chart
console         lines that begin with `$` are commands, the lines below one are its output. `…` in the
                output stands for any text, a line `…` for any lines
json, python    parsed; the imports of Python must exist
text            a formula, a table or a message; no command
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from house.source import REPOSITORY

ELSEWHERE = {"plugins.md"}
"""Pages that tests/plugin/test_documented_plugins.py runs."""
PAGES = [
    *sorted(p for p in (REPOSITORY / "docs").rglob("*.md") if p.name not in ELSEWHERE),
    REPOSITORY / "CODE_OF_CONDUCT.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "README.md",
    REPOSITORY / "SECURITY.md",
    REPOSITORY / "examples" / "README.md",
]

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w-]+\.\w+)$")
_SEPARATORS = {"|", "&&", "&", ";"}


class Block(NamedTuple):
    page: Path
    line: int
    info: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    @property
    def file_name(self) -> str:
        """The name in its first line, or nothing."""
        found = _FILE_NAME.match(self.text.partition("\n")[0])
        return found[1] if found else ""


class Command:
    """A command of a console block, with the output that the document shows for it."""

    def __init__(self, line: str, output: str) -> None:
        self.line = line
        self.output = output

    @cached_property
    def parts(self) -> list[list[str]]:
        """The simple commands of a pipeline or list; a redirection stays in its part."""
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|&;>")
        lexer.whitespace_split = True
        found: list[list[str]] = [[]]
        for word in lexer:
            if word in _SEPARATORS:
                found.append([])
            else:
                found[-1].append(word)
        return [part for part in found if part]

    def shows(self, printed: str) -> bool:
        """Whether the document shows what was printed. Ages and widths of columns may differ."""
        pattern = "".join(
            r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
            for line in _comparable(self.output)
        )
        text = "".join(f"{line}\n" for line in _comparable(printed))
        return re.fullmatch(pattern, text) is not None


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in _FENCE.finditer(text):
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def commands(block: Block) -> Iterator[Command]:
    text = block.text.replace("\\\n", " ")
    for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = command.partition("\n")
        yield Command(line, output.strip("\n"))


def indented_blocks(page: Path) -> list[str]:
    """The first lines of code blocks made by indentation, which no info string describes."""
    prose = _FENCE.sub("", page.read_text())
    return re.findall(r"(?<=\n\n)(    \S[^\n]*)", prose)


_AGE = re.compile(r"(?<![\w=/])(?:\d+[dhms])+(?!\w)")


def _comparable(text: str) -> list[str]:
    lines = [" ".join(_AGE.sub("<age>", line).split()) for line in text.splitlines()]
    return [line for line in lines if line]
