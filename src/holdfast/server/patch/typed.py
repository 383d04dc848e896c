"""Objects looked at with their shapes: which fields they have, and how two of them differ.

This is where lists are taken apart by keys or by values, and where a part that is replaced whole (an
atomic one) counts as one field.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from holdfast.server.patch.errors import PatchError
from holdfast.server.patch.fields import LEAF, MEMBER, Fields
from holdfast.server.schema.shapes import UNTYPED, Shape

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()

_encode = msgspec.json.Encoder(order="sorted").encode
_set = lru_cache(maxsize=4096)(lambda text: f"v:{_encode(text).decode()}")
_key = lru_cache(maxsize=4096)(lambda name, text: f"k:{_encode({name: text}).decode()}")


class NotComparable(PatchError):
    """A value is not of its type, or an item of a list cannot be told from the others."""


def kind_of(shape: Shape, value: Any) -> str:
    """map, list or scalar: what a value is; raises where it is no map or list, and ought to be."""
    kind = expected_kind(shape, value)
    if value is not None:
        if kind == "map":
            if value.__class__ is not dict:
                raise NotComparable("expected map")
        elif kind == "list" and value.__class__ is not list:
            raise NotComparable("expected list")
    return kind


def expected_kind(shape: Shape, value: Any) -> str:
    """map, list or scalar: what a value is to be taken for."""
    kind = shape.kind
    if kind == "struct" or kind == "map":
        return "map"
    if kind == "list":
        return "list"
    if kind == "any":
        if value.__class__ is dict:
            return "map"
        if value.__class__ is list:
            return "list"
    return "scalar"


def is_granular(shape: Shape, kind: str) -> bool:
    """Whether the parts of such a value are fields of their own."""
    if kind == "map":
        return not shape.atomic
    return kind == "list" and shape.list_type != "atomic" and shape.kind != "any"


def element_of(shape: Shape, item: Any) -> str:
    """How an item of a list is named: by its keys, or by its value."""
    if shape.list_type == "set":
        if item.__class__ is str:
            return _set(item)
        if item is None or item.__class__ in (dict, list):
            what = "an element that's a map type" if item.__class__ is dict else "a list as an element"
            what = "an element that's an explicit null" if item is None else what
            raise NotComparable(f"associative list without keys has {what}")
        return f"v:{_encode(item).decode()}"
    if item.__class__ is not dict:
        what = "a null element" if item is None else "non-map elements"
        raise NotComparable(f"associative list with keys may not have {what}")
    if len(shape.keys) == 1:
        value = item.get(shape.keys[0])
        if value.__class__ is str:
            return _key(shape.keys[0], value)
    keys: dict[str, Any] = {}
    defaults = shape.items.defaults if shape.items is not None else {}
    for name in shape.keys:
        if name in item:
            keys[name] = item[name]
        elif name in defaults:
            keys[name] = defaults[name]
    if not keys:
        names = " ".join(f'"{name}"' for name in shape.keys)
        raise NotComparable(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{_encode(keys).decode()}"


def field_set(shape: Shape, value: Any) -> Fields:
    """Every field an applied configuration mentions."""
    kind = kind_of(shape, value)
    if not is_granular(shape, kind):
        return LEAF
    if kind == "map":
        return _map_fields(shape, value) if value else {}
    return _list_fields(shape, value) if value else {}


def _map_fields(shape: Shape, value: dict[str, Any]) -> Fields:
    result: Fields = {}
    for name, item in value.items():
        inner = field_set(shape.field(name) or UNTYPED, item)
        empty = item is None or (item.__class__ is dict and not item)
        if (empty or name not in shape.fields) and MEMBER not in inner:
            inner = {MEMBER: {}, **inner}
        if inner:
            result[f"f:{name}"] = inner
    return result


def _list_fields(shape: Shape, value: list[Any]) -> Fields:
    result: Fields = {}
    items = shape.items or UNTYPED
    seen: dict[str, int] = {}
    elements = [element_of(shape, item) for item in value]
    for element in elements:
        seen[element] = seen.get(element, 0) + 1
    for element, item in zip(elements, value, strict=True):
        if seen[element] > 1:
            result[element] = LEAF
        else:
            inner = field_set(items, item)
            result[element] = inner if MEMBER in inner else {MEMBER: {}, **inner}
    return result


def added_fields(shape: Shape, value: Any) -> Fields:
    """The fields of a part that was not there before: it, and all that is in it."""
    kind = kind_of(shape, value)
    if not value or not is_granular(shape, kind):
        return LEAF
    result: Fields = {MEMBER: {}}
    if kind == "map":
        fields = shape.fields
        values = shape.values or UNTYPED
        for name, item in value.items():
            result[f"f:{name}"] = added_fields(fields.get(name, values), item)
        return result
    items = shape.items or UNTYPED
    for item in value:
        element = element_of(shape, item)
        result[element] = LEAF if element in result else added_fields(items, item)
    return result
