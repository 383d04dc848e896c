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


class Command(NamedTuple):
    """A command line of a console block, with the output that the document shows for it."""

    line: str
    output: str

    def shows(self, printed: str) -> bool:
        """Whether the document shows what was printed. Times, ports, the folder and the widths of
        columns may differ."""
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


def pipelines(line: str) -> Iterator[list[list[str]]]:
    """The words of the simple commands of each pipeline; `> file` is among those of its command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in [*lexer, ";"]:
        if word == "|":
            parts.append([])
        elif word in ("&&", "&", ";"):
            if parts[0]:
                yield parts
            parts = [[]]
        else:
            parts[-1].append(word)


def indented_blocks(page: Path) -> list[str]:
    """The first lines of code blocks made by indentation, which no info string describes."""
    prose = _FENCE.sub("", page.read_text())
    return re.findall(r"(?<=\n\n)(    \S[^\n]*)", prose)


_VARYING = {
    "<age>": re.compile(r"(?<![\w=/])(?:\d+[dhms])+(?!\w)"),
    "<time>": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "127.0.0.1:<port>": re.compile(r"127\.0\.0\.1:\d+"),
    "process <id>": re.compile(r"(?<=[ (])process +\d+"),
    "<folder>": re.compile(r"/\S+(?=/holdfast\.kubeconfig)"),
}


def _comparable(text: str) -> list[str]:
    for name, pattern in _VARYING.items():
        text = pattern.sub(name, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line]
