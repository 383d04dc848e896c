"""Defaults of a schema, outermost first: a part that comes in by default is itself filled in."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.types import ResourceType

Raw = dict[str, Any]
Schema = dict[str, Any]


def defaulted(type: ResourceType, raw: Raw) -> Raw:
    """The object with the defaults of its schema; the same object when there are none to add."""
    if type.schema is None:
        return raw
    filled: Raw = _filled(type.schema, raw)
    return filled


def _filled(schema: Schema, value: Any) -> Any:
    if value.__class__ is dict:
        return _filled_map(schema, value)
    if value.__class__ is list:
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        filled = [_given(items, item) for item in value]
        return value if all(map(_is, filled, value)) else filled
    return value


def _filled_map(schema: Schema, value: Raw) -> Raw:
    result = value
    fields = schema.get("properties") or {}
    values = schema.get("additionalProperties")
    for name, part in fields.items():
        if name not in value:
            if "default" not in part:
                continue
            new = _filled(part, part["default"])
        else:
            new = _given(part, value[name])
            if new is value[name]:
                continue
        if result is value:
            result = dict(value)
        result[name] = new
    if isinstance(values, dict):
        for name, item in value.items():
            if name not in fields:
                new = _given(values, item)
                if new is not item:
                    if result is value:
                        result = dict(value)
                    result[name] = new
    return result


def _given(schema: Schema, item: Any) -> Any:
    """A null where none is allowed counts as nothing said."""
    if item is None and "default" in schema and not schema.get("nullable"):
        item = schema["default"]
    return _filled(schema, item)


def _is(a: Any, b: Any) -> bool:
    return a is b
