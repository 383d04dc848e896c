"""The fields of an object that is created, straight to FieldsV1.

Most writes a busy cluster sees are creations of pods, and nobody else owns anything of a new object. So
what `track_update` would find by comparing it with an empty one is written down in one walk, by
functions compiled once per type. Where a type has no such function (a part of any shape), the general
way is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.machinery.patch.compare import ABSENT, NotComparable, added_fields, element_of, same
from holdfast.machinery.patch.fields import encode, order
from holdfast.machinery.schema.shapes import NOT_COMPILED, UNTYPED, FieldShape

Written = dict[str, Any]
Writer = Callable[[Any], Written]

_LEAF: Written = {}


def writer(shape: FieldShape) -> Writer | None:
    """What writes the fields of a part that was not there before; None where it is one field."""
    if shape.writer is NOT_COMPILED:
        shape.writer = _compile(shape)
    found: Writer | None = shape.writer
    return found


def _compile(shape: FieldShape) -> Writer | None:
    if shape.kind == "any":
        return None if shape.atomic else lambda value: _general(shape, value)
    if shape.kind in ("struct", "map"):
        return None if shape.atomic else _map(shape)
    if shape.kind == "list":
        return None if shape.list_type == "atomic" else _list(shape)
    return None


def _general(shape: FieldShape, value: Any) -> Written:
    written = encode({"x": added_fields(shape, value)})["x"]
    return written or _LEAF


def _map(shape: FieldShape) -> Writer:
    fields: dict[str, tuple[str, Writer | None]] = {}
    shape_of, values = shape.fields, shape.values or UNTYPED

    def write_map(value: Any) -> Written:
        if not value:
            return _LEAF
        if value.__class__ is not dict:
            raise NotComparable("expected map")
        written: Written = {".": _LEAF}
        for name in sorted(value) if len(value) > 1 else value:
            known = fields.get(name)
            if known is None:
                part = shape_of.get(name)
                known = (f"f:{name}", writer(part if part is not None else values))
                if part is not None:
                    fields[name] = known
            element, write = known
            written[element] = _LEAF if write is None else write(value[name])
        return written

    return write_map


def _list(shape: FieldShape) -> Writer:
    items = shape.items or UNTYPED

    def write_list(value: Any) -> Written:
        if not value:
            return _LEAF
        if value.__class__ is not list:
            raise NotComparable("expected list")
        write = writer(items)
        inner: Written = {}
        for item in value:
            element = element_of(shape, item)
            inner[element] = _LEAF if write is None or element in inner else write(item)
        if len(inner) > 1:
            inner = {element: inner[element] for element in sorted(inner, key=order)}
        return {".": _LEAF, **inner}

    return write_list


def created_fields(shape: FieldShape, empty: Written, raw: Written, skipped: dict[str, Any]) -> Written:
    """What the creator of an object owns: all that an empty one has not, but for what is skipped.

    `skipped` has the names of fields nobody owns: with None, or with those to skip inside.
    """
    written: Written = {}
    for name in sorted(raw):
        inside = skipped.get(name, _LEAF)
        if inside is None:
            continue
        part = shape.fields.get(name) or shape.values or UNTYPED
        old = empty.get(name, {} if inside else ABSENT)
        if old is ABSENT:
            write = writer(part)
            written[f"f:{name}"] = _LEAF if write is None else write(raw[name])
        else:
            found = _changed(part, old, raw[name], inside)
            if found is not None:
                written[f"f:{name}"] = found
    return written


def _changed(part: FieldShape, old: Any, value: Any, skipped: dict[str, Any]) -> Written | None:
    if old.__class__ is dict and value.__class__ is dict and not part.atomic:
        return created_fields(part, old, value, skipped) or None
    if same(old, value):
        return None
    write = writer(part)
    found = _LEAF if write is None else write(value)
    return {element: inner for element, inner in found.items() if element != "."}
