"""The part of Go's templates, and of Helm's functions, that our chart keeps to.

What is not known here is an error, so a template that needs more cannot slip through.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-\s)?\s*(.*?)\s*(\s-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:\\.|[^"\\])*")|(?P<number>-?\d+)|(?P<path>\$?[A-Za-z_]*(?:\.[A-Za-z_]\w*)+'
    r"|\$\w*|\.)|(?P<name>[A-Za-z_]\w*)|(?P<sign>:=|[()|]))"
)


class TemplateError(Exception):
    pass


@dataclass
class Block:
    """A piece of template: text, an action, or a block with branches."""

    kind: str
    source: str = ""
    branches: list[tuple[str, list[Block]]] = field(default_factory=list)


class Templates:
    """All templates of a chart, which can include what others define."""

    def __init__(self) -> None:
        self._defined: dict[str, list[Block]] = {}
        self._functions: dict[str, Callable[..., Any]] = {**_FUNCTIONS, "include": self._include}

    def add(self, source: str) -> list[Block]:
        """Takes in what the source defines; answers with the rest."""
        blocks, _ = _parse(_pieces(source))
        for block in blocks:
            if block.kind == "define":
                [(name, body)] = block.branches
                self._defined[name.strip('"')] = body
        return [block for block in blocks if block.kind != "define"]

    def render(self, blocks: list[Block], data: Any) -> str:
        return "".join(self._blocks(blocks, data, {"$": data}))

    def _include(self, name: str, data: Any) -> str:
        if name not in self._defined:
            raise TemplateError(f"no template {name!r}")
        return self.render(self._defined[name], data)

    def _blocks(self, blocks: list[Block], dot: Any, variables: dict[str, Any]) -> Iterator[str]:
        scope = dict(variables)
        for block in blocks:
            if block.kind == "text":
                yield block.source
            elif block.kind == "action":
                value = self._action(block.source, dot, scope)
                yield "" if value is None else _shown(value)
            else:
                yield from self._branches(block, dot, scope)

    def _action(self, source: str, dot: Any, scope: dict[str, Any]) -> Any:
        tokens = _tokens(source)
        if len(tokens) > 1 and tokens[1] == ("sign", ":="):
            scope[tokens[0][1]] = self._pipeline(tokens[2:], dot, scope)
            return None
        return self._pipeline(tokens, dot, scope)

    def _branches(self, block: Block, dot: Any, scope: dict[str, Any]) -> Iterator[str]:
        for condition, body in block.branches:
            value: Any = self._pipeline(_tokens(condition), dot, scope) if condition else True
            if not value:
                continue
            if block.kind == "range" and condition:
                for item in value.values() if isinstance(value, dict) else value:
                    yield from self._blocks(body, item, scope)
            else:
                inner = value if block.kind == "with" and condition else dot
                yield from self._blocks(body, inner, scope)
            return

    def _pipeline(self, tokens: list[tuple[str, str]], dot: Any, scope: dict[str, Any]) -> Any:
        parts: list[list[tuple[str, str]]] = [[]]
        depth = 0
        for token in tokens:
            depth += (token == ("sign", "(")) - (token == ("sign", ")"))
            if token == ("sign", "|") and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        value: Any = _NOTHING
        for part in parts:
            value = self._command(part, value, dot, scope)
        return value

    def _command(
        self, tokens: list[tuple[str, str]], piped: Any, dot: Any, scope: dict[str, Any]
    ) -> Any:
        terms = self._terms(tokens, dot, scope)
        if piped is not _NOTHING:
            terms.append(piped)
        first, *arguments = terms
        if isinstance(first, _Function):
            return first.call(*arguments)
        if arguments:
            raise TemplateError(f"not a function: {tokens}")
        return first

    def _terms(self, tokens: list[tuple[str, str]], dot: Any, scope: dict[str, Any]) -> list[Any]:
        terms: list[Any] = []
        i = 0
        while i < len(tokens):
            kind, text = tokens[i]
            if (kind, text) == ("sign", "("):
                end = _closing(tokens, i)
                terms.append(self._pipeline(tokens[i + 1 : end], dot, scope))
                i = end
            elif kind == "text":
                terms.append(yaml.safe_load(text))
            elif kind == "number":
                terms.append(int(text))
            elif kind == "path":
                value = _path(text, dot, scope)
                terms.append(_Function(value) if callable(value) else value)
            elif text in self._functions:
                terms.append(_Function(self._functions[text]))
            elif text in ("true", "false"):
                terms.append(text == "true")
            else:
                raise TemplateError(f"no function {text!r}")
            i += 1
        # Functions without arguments among the arguments of another.
        return terms[:1] + [t.call() if isinstance(t, _Function) else t for t in terms[1:]]


@dataclass
class _Function:
    call: Callable[..., Any]


_NOTHING = object()


def _pieces(source: str) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    position, trim = 0, False
    for match in _ACTION.finditer(source):
        text = source[position : match.start()]
        text = text.lstrip() if trim else text
        pieces.append(("text", text.rstrip() if match[1] else text))
        pieces.append(("action", match[2]))
        position, trim = match.end(), bool(match[3])
    rest = source[position:]
    pieces.append(("text", rest.lstrip() if trim else rest))
    return [piece for piece in pieces if piece[1]]


def _parse(pieces: list[tuple[str, str]], start: int = 0) -> tuple[list[Block], int]:
    """Up to the end of the block that begins here; an `else` or `end` is left to the caller."""
    blocks: list[Block] = []
    i = start
    while i < len(pieces):
        kind, source = pieces[i]
        word, _, rest = source.partition(" ")
        if kind == "text":
            blocks.append(Block("text", source))
        elif source.startswith("/*"):
            pass
        elif word in ("else", "end"):
            return blocks, i
        elif word in ("if", "with", "range", "define"):
            block, condition = Block(word), rest
            while True:
                body, i = _parse(pieces, i + 1)
                if i >= len(pieces):
                    raise TemplateError(f"{word} without end")
                block.branches.append((condition, body))
                word, _, condition = pieces[i][1].partition(" ")
                if word == "end":
                    break
                condition = condition.removeprefix("if ")
            blocks.append(block)
        else:
            blocks.append(Block("action", source))
        i += 1
    return blocks, i


def _tokens(source: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise TemplateError(f"cannot read {source[position:]!r} in {source!r}")
        assert match.lastgroup is not None
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return tokens


def _closing(tokens: list[tuple[str, str]], start: int) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i] == ("sign", "(")) - (tokens[i] == ("sign", ")"))
        if depth == 0:
            return i
    raise TemplateError(f"no closing parenthesis in {tokens}")


def _path(text: str, dot: Any, scope: dict[str, Any]) -> Any:
    if text == ".":
        return dot
    base, *fields = text.split(".")
    if base and base not in scope:
        raise TemplateError(f"no variable {base}")
    return _field(scope[base] if base else dot, fields)


def _field(value: Any, fields: list[str]) -> Any:
    for name in fields:
        if value is None:
            raise TemplateError(f"nothing has a field {name}")
        value = value.get(name)
    return value


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merge(into: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """What is there stays, unless it is empty: Helm's `merge`."""
    for other in others:
        for key, value in other.items():
            if isinstance(into.get(key), dict) and isinstance(value, dict):
                _merge(into[key], value)
            elif not into.get(key):
                into[key] = value
    return into


def _nindent(width: int, text: str) -> str:
    return "\n" + "\n".join(" " * width + line for line in text.split("\n"))


def _fail(message: str) -> None:
    raise ValueError(message)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": lambda part, text: part in text,
    "deepCopy": copy.deepcopy,
    "default": lambda other, value=None: value or other,
    "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "fail": _fail,
    "fromYaml": yaml.safe_load,
    "first": lambda items: items[0],
    "list": lambda *items: list(items),
    "merge": _merge,
    "nindent": _nindent,
    "printf": lambda text, *values: text % values,
    "quote": lambda value: f'"{value}"',
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
    "trimSuffix": lambda end, text: text.removesuffix(end),
    "trunc": lambda length, text: text[:length],
}
