"""The modules of `src/holdfast`, parsed, and the names they define."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "holdfast"

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class Module:
    path: Path
    text: str | None = None
    """In place of the file's."""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text() if self.text is None else self.text)

    @property
    def where(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""


class Definition(NamedTuple):
    name: str
    where: str
    is_class: bool


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path) for path in sorted(SOURCE.rglob("*.py")))


@cache
def definitions() -> tuple[Definition, ...]:
    """Every class, function and method, nested ones included."""
    return tuple(
        Definition(node.name, module.where, isinstance(node, ast.ClassDef))
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )


def packages() -> Iterator[Module]:
    return (module for module in modules() if module.path.name == "__init__.py")


def words(name: str) -> list[str]:
    """The words of an identifier: `_drawnOn_row` has drawn, on and row."""
    return [word.lower() for word in _WORD.findall(name)]


def is_module(path: Path) -> bool:
    """Whether a path without suffix is a module, a package, or a folder of data files."""
    return path.is_dir() or path.with_suffix(".py").is_file()


def defines(path: Path, name: str) -> bool:
    """Whether a file defines a name: a class, a function, a constant, or `Class.member`."""
    scope: list[ast.stmt] = ast.parse(path.read_text()).body
    for part in name.split("."):
        found = next((node for node in scope if part in _bound(node)), None)
        if found is None:
            return False
        scope = found.body if isinstance(found, ast.ClassDef) else []
    return True


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
