"""JSONPath, as CustomResourceDefinitions write it for their columns.

.spec.replicas    .metadata.labels['a\\.b']    .items[0]  [-1]  [1:3]  [*]    ..name
.status.conditions[?(@.type=="Ready")].status
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""
    (?P<deep>\.\.(?=[^.\[]))
  | \.(?P<star>\*)
  | \.?(?P<field>(?:[^.\[\]\\*]|\\.)+)
  | \.?\[\s*(?P<quote>['"])(?P<key>.*?)(?P=quote)\s*\]
  | \.?\[\s*(?P<all>\*)\s*\]
  | \.?\[\s*(?P<index>-?\d+)\s*\]
  | \.?\[\s*(?P<start>-?\d*):(?P<stop>-?\d*)(?::(?P<by>-?\d*))?\s*\]
  | \.?\[\?\((?P<filter>.*?)\)\]
    """,
    re.VERBOSE,
)
_CONDITION = re.compile(r"\s*(?P<left>@[^=!<>]*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


@lru_cache(maxsize=1024)
def compile_path(text: str) -> Callable[[Any], list[Any]]:
    """Raises ValueError for what is not a path."""
    steps = list(_steps(text.removeprefix("{").removesuffix("}").removeprefix("$")))

    def find(root: Any) -> list[Any]:
        found: Iterable[Any] = [root]
        for step in steps:
            found = [inner for each in found for inner in step(each)]
        return list(found)

    return find


def _steps(text: str) -> Iterator[Step]:
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            if text[position:] == ".":
                return
            raise ValueError(f"not a JSONPath: {text!r}, at {text[position:]!r}")
        position = token.end()
        yield _step(token)


def _step(token: re.Match[str]) -> Step:
    if token["deep"]:
        return _descendants
    if token["star"] or token["all"]:
        return _children
    if token["index"]:
        return _index(int(token["index"]))
    if token["start"] is not None:
        bounds = [int(part) if part else None for part in (token["start"], token["stop"], token["by"])]
        if bounds[2] == 0:
            raise ValueError(f"not a JSONPath: the step of {token[0]!r} is 0")
        return _slice(slice(*bounds))
    if token["filter"] is not None:
        return _filter(token["filter"])
    name = token["key"] if token["key"] is not None else token["field"]
    return _field(re.sub(r"\\(.)", r"\1", name))


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(number: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= number < len(value):
            yield value[number]

    return step


def _slice(part: slice) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[part]

    return step


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for each in _children(value):
        yield from _descendants(each)


def _filter(text: str) -> Step:
    condition = _CONDITION.fullmatch(text)
    if condition is None:
        raise ValueError(f"not a JSONPath condition: {text!r}")
    left = compile_path(condition["left"][1:])
    sign = _SIGNS.get(condition["sign"] or "")
    wanted = _literal(condition["right"]) if sign is not None else None

    def holds(value: Any) -> bool:
        found = left(value)
        if sign is None:
            return bool(found)
        try:
            return bool(found) and sign(found[0], wanted)
        except TypeError:
            return False

    def step(value: Any) -> Iterator[Any]:
        yield from (each for each in _children(value) if holds(each))

    return step


def _literal(text: str) -> Any:
    if text[:1] in "'\"" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"not a value: {text!r}") from None
