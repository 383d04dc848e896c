"""The fields of a JSON value in an annotation: the check against misspelt and misplaced ones.

Typed views skip what they do not know, so a `recomendedSize` would be silence. Schemas are derived from
the types. Objects themselves are decoded strictly: see `machinery.schema.decoding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from holdfast.api.errors import InvalidObject

Schema = Mapping[str, "Schema | None"]
"""Field name to the schema of what is in it; None is an open part or a plain value."""


def find_unknown(raw: Any, schema: Schema, *, mistakes_only: bool = False) -> Iterator[InvalidObject]:
    """Fields the schema does not have, with a suggestion for each. With
    `mistakes_only`, names that resemble no known one are accepted: the reader of the annotation may be
    newer than this version.
    """

    def visit(raw: Any, part: Schema, path: str) -> Iterator[InvalidObject]:
        if isinstance(raw, list):
            for i, item in enumerate(raw):
                yield from visit(item, part, f"{path}[{i}]")
        if not isinstance(raw, Mapping):
            return
        for key, value in raw.items():
            where = f"{path}.{key}" if path else str(key)
            if key in part:
                inner = part[key]
                if inner is not None:
                    yield from visit(value, inner, where)
                continue
            below = (name for name, inner in part.items() if inner is not None and key in inner)
            child = next(below, None)
            home = _homes(schema).get(key) if child is None else f"{path}.{child}".lstrip(".")
            close = get_close_matches(str(key), part, n=1)
            if home is not None:
                yield InvalidObject("", where, f"unknown field here; it belongs to {home}")
            elif close:
                yield InvalidObject("", where, f"unknown field; did you mean {close[0]}?")
            elif not mistakes_only:
                yield InvalidObject("", where, f"unknown field{_known(part)}")

    yield from visit(raw, schema, "")


def _known(schema: Schema) -> str:
    return f"; known: {', '.join(schema)}" if len(schema) <= 12 else ""


def _homes(schema: Schema) -> dict[str, str]:
    """Where each field name lives, the place nearest to the top winning."""
    homes: dict[str, str] = {}
    for key, parent in sorted(_places(schema, ""), key=lambda place: place[1].count(".")):
        homes.setdefault(key, parent or "the top level")
    return homes


def _places(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for key, inner in schema.items():
        yield key, path
        if inner is not None:
            yield from _places(inner, f"{path}.{key}" if path else key)


@cache
def schema_of(type: type[Any]) -> Schema:
    """The schema of a struct type and of the structs inside it."""
    info = msgspec.inspect.type_info(type)
    assert isinstance(info, msgspec.inspect.StructType)
    return {f.encode_name: _inner(f.type) for f in info.fields}


def _inner(type: msgspec.inspect.Type) -> Schema | None:
    if isinstance(type, msgspec.inspect.UnionType):
        return next((s for s in map(_inner, type.types) if s is not None), None)
    if isinstance(type, msgspec.inspect.ListType):
        return _inner(type.item_type)
    if isinstance(type, msgspec.inspect.StructType):
        return schema_of(type.cls)
    return None
