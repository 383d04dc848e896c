r"""JSONPath, as CustomResourceDefinitions write it for their columns.

.spec.replicas    .metadata.labels['a\.b']    .items[0]  [-1]  [1:3]  [*]    ..name
.status.conditions[?(@.type=="Ready")].status

A path is evaluated in time linear in the object: what is reached twice counts once. What looks at more
parts of an object than its budget allows finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.api.errors import HoldfastError
from holdfast.local.apiserver.tables.columns import NAME, Printer, TableColumn, since
from holdfast.local.store import Raw
from holdfast.machinery.schema.types import PrinterColumn as Wanted

MAX_LENGTH = 4096
_MAX_PARTS = 100_000


class Budget:
    """How many parts of an object may still be looked at, by however many paths share it."""

    __slots__ = ("left",)

    def __init__(self, parts: int = _MAX_PARTS) -> None:
        self.left = parts


class OutOfBudget(HoldfastError):
    pass


Find = Callable[[Any, Budget], list[Any]]
Step = Callable[[Any, Budget], Iterable[Any]]

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
def compile_path(text: str) -> Find:
    """Raises ValueError for what is not a path; the answer raises OutOfBudget."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"not a JSONPath: longer than {MAX_LENGTH} characters")
    steps = list(_steps(text.removeprefix("{").removesuffix("}").removeprefix("$")))

    def find(root: Any, budget: Budget) -> list[Any]:
        found: list[Any] = [root]
        for step in steps:
            if step is _descendants:
                found = _all_below(found, budget)
            else:
                found = _once([inner for each in found for inner in step(each, budget)])
            budget.left -= len(found)
            if budget.left < 0:
                raise OutOfBudget
        return found

    return find


def _once(found: list[Any]) -> list[Any]:
    """Each map and list once, where it came first."""
    if len(found) < 2:
        return found
    seen: dict[int, Any] = {}
    for i, each in enumerate(found):
        seen.setdefault(id(each) if each.__class__ in (dict, list) else -i - 1, each)
    return [*seen.values()]


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
    def step(value: Any, budget: Budget) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _index(number: int) -> Step:
    def step(value: Any, budget: Budget) -> Iterable[Any]:
        inside = isinstance(value, list) and -len(value) <= number < len(value)
        return (value[number],) if inside else ()

    return step


def _slice(part: slice) -> Step:
    def step(value: Any, budget: Budget) -> Iterable[Any]:
        return value[part] if isinstance(value, list) else ()

    return step


def _children(value: Any, budget: Budget) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _descendants(value: Any, budget: Budget) -> Iterable[Any]:
    return _all_below([value], budget)


def _all_below(roots: list[Any], budget: Budget) -> list[Any]:
    """These parts and all that is in them, each map and list once."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting = roots[::-1]
    while waiting:
        each = waiting.pop()
        if each.__class__ in (dict, list):
            if id(each) in seen:
                continue
            seen.add(id(each))
            waiting.extend(reversed([*_children(each, budget)]))
        found.append(each)
        if len(found) > budget.left:
            raise OutOfBudget
    return found


def _filter(text: str) -> Step:
    condition = _CONDITION.fullmatch(text)
    if condition is None:
        raise ValueError(f"not a JSONPath condition: {text!r}")
    left = compile_path(condition["left"][1:])
    sign = _SIGNS.get(condition["sign"] or "")
    wanted = _literal(condition["right"]) if sign is not None else None

    def holds(value: Any, budget: Budget) -> bool:
        found = left(value, budget)
        if sign is None:
            return bool(found)
        try:
            return bool(found) and sign(found[0], wanted)
        except TypeError:
            return False

    def step(value: Any, budget: Budget) -> Iterable[Any]:
        return [each for each in _children(value, budget) if holds(each, budget)]

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


# The columns a CustomResourceDefinition names.


_AGE = Wanted(
    name="Age",
    type="date",
    json_path=".metadata.creationTimestamp",
    description="How long ago the object was created.",
)


def custom_printer(wanted: tuple[Wanted, ...]) -> Printer:
    """A definition that names no columns gets the age."""
    wanted = wanted or (_AGE,)
    finders = [(_finder(each.json_path), each.type) for each in wanted]
    columns = tuple(
        TableColumn(each.name, each.type, each.format, each.description, each.priority)
        for each in wanted
    )

    def cells(raw: Raw, now: float) -> list[Any]:
        budget = Budget()
        found = [_cell(find, type, raw, now, budget) for find, type in finders]
        return [raw["metadata"]["name"], *found]

    return Printer((NAME, *columns), cells)


def _finder(path: str) -> Find:
    try:
        return compile_path(path)
    except ValueError:
        return lambda raw, budget: []


def _cell(find: Find, type: str, raw: Raw, now: float, budget: Budget) -> Any:
    try:
        found = find(raw, budget)
    except OutOfBudget:
        return None
    if not found or found[0] is None:
        return None
    value = found[0]
    match type:
        case "string":
            return _text(value)
        case "integer":
            return int(value) if isinstance(value, int | float) else None
        case "number":
            return value if isinstance(value, int | float) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return since(value, now) if isinstance(value, str) else "<invalid>"
        case _:
            return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
