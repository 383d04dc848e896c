r"""Objects to Table documents; the printer columns of CustomResourceDefinitions.

A definition names the cells of its columns by JSONPath:

    .spec.replicas    .metadata.labels['a\.b']    .items[0]  [-1]  [1:3]  [*]    ..name
    .status.conditions[?(@.type=="Ready")].status

A path is evaluated in time linear in the object: a part that is reached twice counts once. A path that
visits more parts of an object than its budget allows finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from holdfast.api.errors import HoldfastError
from holdfast.local.apiserver.tables.columns import NAME, Printer, TableColumn, since
from holdfast.local.apiserver.tables.core_kinds import (
    DEFAULT,
    NODES,
    PLAIN,
    STORAGE,
)
from holdfast.local.apiserver.tables.devices import DEVICES
from holdfast.local.apiserver.tables.stored_kinds import STORED_ONLY
from holdfast.local.apiserver.tables.workloads import PODS, WORKLOADS, row_conditions
from holdfast.local.store import Raw
from holdfast.machinery.schema.field_errors import quoted
from holdfast.machinery.schema.types import PrinterColumn as Wanted
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.status import StatusError, bad_request

_PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "Pod"): PODS,
    ("", "Node"): NODES,
    **WORKLOADS,
    **STORAGE,
    **DEVICES,
    **STORED_ONLY,
    **PLAIN,
}
_INCLUDE = ("", "Metadata", "Object", "None")
_custom: WeakKeyDictionary[ResourceType, Printer] = WeakKeyDictionary()


def printer_of(type: ResourceType) -> Printer:
    if type.builtin:
        return _PRINTERS.get((type.group, type.kind), DEFAULT)
    known = _custom.get(type)
    if known is None:
        known = _custom[type] = custom_printer(type.columns)
    return known


def check_include(include: str) -> None:
    """`includeObject` of a query: what of the object comes with its row. Raises StatusError 400."""
    if include not in _INCLUDE:
        raise bad_request(
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{quoted(include)}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        )


def table(
    type: ResourceType,
    objects: Sequence[Raw],
    metadata: Raw,
    now: float,
    api_version: str,
    include: str = "",
    headers: bool = True,
) -> Raw:
    printer = printer_of(type)
    with_object = _object(include, api_version)
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": [each.definition() for each in printer.columns] if headers else None,
        "rows": [_row(type, printer, each, now, with_object) for each in objects],
    }


def _row(
    type: ResourceType, printer: Printer, raw: Raw, now: float, with_object: Callable[[Raw], Any]
) -> Raw:
    row: Raw = {"cells": printer.cells(raw, now)}
    if (type.group, type.kind) == ("", "Pod"):
        conditions = row_conditions(raw)
        if conditions:
            row["conditions"] = conditions
    row["object"] = with_object(raw)
    return row


def _object(include: str, api_version: str) -> Callable[[Raw], Any]:
    match include:
        case "None":
            return lambda raw: None
        case "Object":
            return lambda raw: raw
        case _:
            return lambda raw: partial_metadata(raw, api_version)


def partial_metadata(raw: Raw, api_version: str) -> Raw:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": api_version,
        "metadata": raw["metadata"],
    }


def not_a_list(kind: str, list_kind: str) -> StatusError:
    return StatusError(
        406,
        "NotAcceptable",
        f"you requested {kind}, but the requested object is a list (*{list_kind})",
    )


_AGE = Wanted(
    name="Age",
    type="date",
    json_path=".metadata.creationTimestamp",
    description="How long ago the object was created.",
)


def custom_printer(wanted: tuple[Wanted, ...]) -> Printer:
    """The table of a custom kind; without columns of its own it shows the age."""
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


MAX_LENGTH = 4096
_MAX_PARTS = 100_000


class Budget:
    """How many parts of an object may still be visited by the paths that share the budget."""

    __slots__ = ("left",)

    def __init__(self, parts: int = _MAX_PARTS) -> None:
        self.left = parts


class OutOfBudget(HoldfastError):
    """A JSONPath visited too many parts of an object."""


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
    """A function for the values at a JSONPath, which raises OutOfBudget. Raises ValueError if the text
    is not a path."""
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
