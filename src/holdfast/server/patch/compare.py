"""What changed between two versions of an object, field by field."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.server.patch.fields import LEAF, MEMBER, Fields, union
from holdfast.server.patch.typed import (
    ABSENT,
    added_fields,
    element_of,
    is_granular,
    kind_of,
)
from holdfast.server.schema.shapes import UNTYPED, Shape


class Comparison(NamedTuple):
    """Three sets that have no field in common."""

    removed: Fields
    modified: Fields
    added: Fields


NOTHING = Comparison({}, {}, {})


def compare(shape: Shape, before: Any, after: Any) -> Comparison:
    """Which fields `after` has lost, changed and gained."""
    if before is after:
        return NOTHING
    if before is ABSENT:
        return Comparison({}, {}, added_fields(shape, after))
    if after is ABSENT:
        return Comparison(added_fields(shape, before), {}, {})
    kind, other = kind_of(shape, before), kind_of(shape, after)
    if before is None or after is None:
        kind = other = other if before is None else kind
    if kind != other:
        return _different_kinds(shape, before, after, kind, other)
    if not (before or after) or not is_granular(shape, kind):
        return NOTHING if same(before, after) else Comparison({}, LEAF, {})
    if kind == "map":
        return _maps(shape, before or {}, after or {})
    return _lists(shape, before or [], after or [])


def _different_kinds(shape: Shape, before: Any, after: Any, kind: str, other: str) -> Comparison:
    """A part that was one thing and is another: changed, and all that was or is in it comes or goes."""
    removed = added_fields(shape, before) if is_granular(shape, kind) else {}
    added = added_fields(shape, after) if is_granular(shape, other) else {}
    scalar = "scalar" in (kind, other) or not (removed and added)
    return Comparison(_inside(removed), LEAF if scalar else {}, _inside(added))


def _inside(fields: Fields) -> Fields:
    return {element: inner for element, inner in fields.items() if element != MEMBER}


def _maps(shape: Shape, before: dict[str, Any], after: dict[str, Any]) -> Comparison:
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    fields, values = shape.fields, shape.values or UNTYPED
    for name, new in after.items():
        old = before.get(name, ABSENT)
        if old is new:
            continue
        part = fields.get(name, values)
        if old is ABSENT:
            added[f"f:{name}"] = added_fields(part, new)
            continue
        lost, changed, gained = compare(part, old, new)
        element = f"f:{name}"
        if lost:
            removed[element] = lost
        if changed:
            modified[element] = changed
        if gained:
            added[element] = gained
    for name, old in before.items():
        if name not in after:
            removed[f"f:{name}"] = added_fields(fields.get(name, values), old)
    return Comparison(removed, modified, added)


def _lists(shape: Shape, before: list[Any], after: list[Any]) -> Comparison:
    removed: Fields = {}
    modified: Fields = {}
    added: Fields = {}
    items = shape.items or UNTYPED
    olds, news = by_element(shape, before), by_element(shape, after)
    for element in olds | news:
        old, new = olds.get(element, ()), news.get(element, ())
        if len(old) <= 1 and len(new) <= 1:
            lost, changed, gained = compare(items, old[0] if old else ABSENT, new[0] if new else ABSENT)
        elif len(old) > 1 and len(new) > 1:
            lost, changed, gained = {}, {} if same(old, new) else LEAF, {}
        elif len(old) > 1:
            lost, changed, gained = LEAF, {}, added_fields(items, new[0]) if new else {}
        else:
            lost, changed, gained = added_fields(items, old[0]) if old else {}, {}, LEAF
        if lost:
            removed[element] = union(removed.get(element, {}), lost)
        if changed:
            modified[element] = changed
        if gained:
            added[element] = gained
    return Comparison(removed, modified, added)


def by_element(shape: Shape, items: list[Any]) -> dict[str, list[Any]]:
    """The items of a list by name; more than one under a name are duplicates."""
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(element_of(shape, item), []).append(item)
    return found


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if a is b:
        return True
    if a.__class__ is bool or b.__class__ is bool:
        return False
    if a.__class__ is dict and b.__class__ is dict:
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
