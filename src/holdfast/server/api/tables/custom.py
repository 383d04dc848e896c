"""The columns a CustomResourceDefinition names."""

from typing import Any

import msgspec

from holdfast.server.api.tables.columns import NAME, Column, Printer, since
from holdfast.server.api.tables.jsonpath import Budget, Find, OutOfBudget, compile_path
from holdfast.server.schema.types import Column as Wanted
from holdfast.store import Raw

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
        Column(each.name, each.type, each.format, each.description, each.priority) for each in wanted
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
