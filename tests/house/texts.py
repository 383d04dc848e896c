"""The texts that users can read: string literals of the source and descriptions of the CRDs.

Docstrings are for readers of the source, except in modules that import typer, where `--help` prints
those of commands. An f-string is one text, with `{}` for each expression. `__slots__` and `__all__`
list names, which `test_names` checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import yaml

from house.source import SOURCE, Module, modules


class Text(NamedTuple):
    where: str
    line: int
    text: str


@cache
def texts() -> tuple[Text, ...]:
    return tuple(text for module in modules() for text in texts_of(module)) + tuple(_descriptions())


def texts_of(module: Module) -> Iterator[Text]:
    if _imports_typer(module.tree):
        for command in module.tree.body:
            if isinstance(command, ast.FunctionDef):
                yield Text(module.where, command.lineno, ast.get_docstring(command) or "")
    pending: list[ast.AST] = list(module.tree.body)
    while pending:
        match pending.pop():
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
                pass
            case ast.Constant(value=str(text), lineno=line):
                yield Text(module.where, line, text)
            case ast.JoinedStr(values=parts, lineno=line):
                yield Text(module.where, line, _template(parts))
                pending += (part.value for part in parts if isinstance(part, ast.FormattedValue))
            case node:
                pending += ast.iter_child_nodes(node)


def _template(parts: Iterable[ast.expr]) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def _imports_typer(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Import) and any(name.name == "typer" for name in node.names)
        for node in tree.body
    )


def _descriptions() -> Iterator[Text]:
    for path in sorted((SOURCE / "api" / "crds").glob("*.yaml")):
        for text in _described(yaml.load(path.read_text(), yaml.CSafeLoader)):
            yield Text(path.relative_to(SOURCE).as_posix(), 0, text)


def _described(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        text = schema.get("description")
        if isinstance(text, str):
            yield text
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _described(part)
