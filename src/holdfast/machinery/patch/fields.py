"""Sets of field paths (FieldsV1), and the errors of patches.

A set is a tree of path elements: `f:name` is a field, `k:{"name":"c"}` the item of a list with those
keys, `v:"x"` the item of a set with that value. A node that has `MEMBER` is in the set; another node
only leads to members. In `managedFields` (FieldsV1) a leaf is written `{}`, and a member that has
children has an entry `.`; `decode` and `encode` translate. Sets are never changed in place, and share
their parts.

    PatchError          the patch, or the resulting object, is invalid
    └── ApplyConflict   server-side apply would take fields that others own
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.api.errors import HoldfastError
from holdfast.machinery.schema.shapes import FieldShape


class PatchError(HoldfastError):
    """The message is Kubernetes'; `code` and `reason` are those of the Status to answer with."""

    def __init__(self, message: str, code: int = 400, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason or {400: "BadRequest", 422: "Invalid", 409: "Conflict"}.get(code, "")


class Cause(NamedTuple):
    """One field somebody else owns, as a cause of the Status."""

    field: str
    message: str
    reason: str = "FieldManagerConflict"


class ApplyConflict(PatchError):
    """Fields of the applied configuration belong to other managers."""

    def __init__(self, message: str, causes: list[Cause]) -> None:
        super().__init__(message, code=409)
        self.causes = causes


MEMBER = "."
Fields = dict[str, Any]
LEAF: Fields = {MEMBER: {}}
EMPTY: Fields = {}


def decode(written: dict[str, Any]) -> Fields:
    """From FieldsV1; what is at the top is no member."""
    return {element: _decode_node(inner) for element, inner in written.items() if element != MEMBER}


def _decode_node(written: dict[str, Any]) -> Fields:
    if not written:
        return LEAF
    return {
        element: inner if element == MEMBER else _decode_node(inner)
        for element, inner in written.items()
    }


def encode(fields: Fields) -> dict[str, Any]:
    """To FieldsV1, in the order Kubernetes writes it."""
    written: dict[str, Any] = {}
    for element in _in_order(fields):
        inner = fields[element]
        if element == MEMBER:
            written[MEMBER] = {}
        elif len(inner) == 1 and MEMBER in inner:
            written[element] = {}
        else:
            written[element] = encode(inner)
    return written


def _in_order(fields: Fields) -> list[str]:
    """Sorting by text is enough for fields, which most elements are."""
    elements = sorted(fields)
    return elements if not elements or elements[-1][0] in ".f" else sorted(fields, key=order)


def order(element: str) -> tuple[Any, ...]:
    """Fields come before keys and keys before values, each in its own order."""
    kind = element[:2]
    if kind == "k:":
        return (1, *(_value_order(value) for _, value in sorted(json.loads(element[2:]).items())))
    if kind == "v:":
        return (2, _value_order(json.loads(element[2:])))
    return (0, element)


def _value_order(value: Any) -> tuple[int, Any]:
    """Numbers before strings before booleans."""
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, value if isinstance(value, str) else json.dumps(value))


def union(a: Fields, b: Fields) -> Fields:
    if not a or a is b:
        return b
    if not b:
        return a
    result = dict(a)
    for element, inner in b.items():
        mine = a.get(element)
        result[element] = inner if mine is None or element == MEMBER else union(mine, inner)
    return result


def intersection(a: Fields, b: Fields) -> Fields:
    result: Fields = {}
    for element, mine in a.items():
        other = b.get(element)
        if other is None:
            continue
        if element == MEMBER:
            result[MEMBER] = mine
        else:
            both = intersection(mine, other)
            if both:
                result[element] = both
    return result


def difference(a: Fields, b: Fields, recursive: bool = False) -> Fields:
    """What is in a and not in b. Children of a field that is in b stay, unless `recursive`."""
    if not b:
        return a
    result: Fields = {}
    for element, mine in a.items():
        other = b.get(element)
        if other is None:
            result[element] = mine
        elif element != MEMBER and not (recursive and MEMBER in other):
            left = difference(mine, other, recursive)
            if left:
                result[element] = left
    return result


def without(a: Fields, b: Fields) -> Fields:
    """What is in a, and neither in b nor below a field that is in b."""
    return difference(a, b, recursive=True)


def with_named_fields(fields: Fields, shape: FieldShape | None) -> Fields:
    """The set with every field of a struct that leads to a member made a member too."""
    result: Fields = {}
    for element, inner in fields.items():
        if element == MEMBER:
            result[MEMBER] = inner
            continue
        below, named = _below(element, shape)
        new = with_named_fields(inner, below)
        if named and MEMBER not in new:
            new = {MEMBER: {}, **new}
        result[element] = new
    return result


def reconciled(fields: Fields, shape: FieldShape | None) -> Fields:
    """The set after a part of the type has become atomic: an owner of something in it owns it whole."""
    if shape is None:
        return fields
    result = fields
    for element, inner in fields.items():
        if element == MEMBER:
            continue
        below, _ = _below(element, shape)
        if len(inner) == (MEMBER in inner) or below is None or below.kind == "any":
            continue
        whole = below.atomic if below.kind in ("struct", "map") else below.list_type == "atomic"
        new = LEAF if whole and below.kind in ("struct", "map", "list") else reconciled(inner, below)
        if new is not inner:
            if result is fields:
                result = dict(fields)
            result[element] = new
    return result


def _below(element: str, shape: FieldShape | None) -> tuple[FieldShape | None, bool]:
    if shape is None:
        return None, False
    if element.startswith("f:"):
        name = element[2:]
        return shape.field(name), name in shape.fields
    return shape.items, False


def members(fields: Fields, prefix: str = "") -> Iterator[str]:
    """The path of every member, as messages show it: `.spec.containers[name="c"].image`."""
    elements = sorted((e for e in fields if e != MEMBER), key=order)
    for element in elements:
        if MEMBER in fields[element]:
            yield prefix + path_step(element)
    for element in elements:
        yield from members(fields[element], prefix + path_step(element))


def path_step(element: str) -> str:
    kind, rest = element[:2], element[2:]
    if kind == "f:":
        return f".{rest}"
    if kind == "k:":
        keys = sorted(json.loads(rest).items())
        return "[" + ",".join(f"{name}={_shown(value)}" for name, value in keys) + "]"
    if kind == "v:":
        return f"[={_shown(json.loads(rest))}]"
    return f"[{rest}]"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def go_text(value: Any) -> str:
    """A value as Go prints it: `map[a:1 b:[x y]]`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    return str(value)


def go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    names = {bool: "bool", int: "int64", float: "float64", str: "string"}
    return names.get(type(value), "%!s(<nil>)")
