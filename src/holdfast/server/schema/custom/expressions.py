"""What rules may call beside the language itself, and how they spell the names of fields."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

Schema = dict[str, Any]

_RESERVED = frozenset(
    """true false null in as break const continue else for function if import let loop package
    namespace return var void while""".split()
)
_SIGNS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escaped(schema: Schema, value: Any) -> Any:
    """A value as rules see it: fields whose names are no names in the language get others."""
    if isinstance(value, dict):
        fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
        return {
            field_name(name) if name in fields else name: escaped(
                fields.get(name) or (values if isinstance(values, dict) else {}), item
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items")
        return [escaped(items if isinstance(items, dict) else {}, item) for item in value]
    return value


def field_name(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return name


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def _substring(text: str, start: int, end: int | None = None) -> str:
    return text[start:end]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "indexOf": lambda text, part: text.find(part),
    "isSorted": _is_sorted,
    "join": lambda items, between="": between.join(items),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "lowerAscii": lambda text: text.lower(),
    "max": lambda *items: max(items[0] if len(items) == 1 else items),
    "min": lambda *items: min(items[0] if len(items) == 1 else items),
    "replace": lambda text, old, new: text.replace(old, new),
    "split": lambda text, between: text.split(between),
    "substring": _substring,
    "sum": lambda items: sum(items),
    "trim": lambda text: text.strip(),
    "upperAscii": lambda text: text.upper(),
}
