"""Objects compared and merged by their shapes: fields removed, changed and added; the fields of a new
object; an applied configuration merged into an object.

Items of a list are matched by keys or by values. An atomic part, which is replaced whole, is one field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from holdfast.machinery.patch.fields import LEAF, MEMBER, Fields, PatchError, encode, order, union
from holdfast.machinery.schema.shapes import NOT_COMPILED, UNTYPED, FieldShape


class Comparison(NamedTuple):
    """Three sets that have no field in common."""

    removed: Fields
    modified: Fields
    added: Fields


NOTHING = Comparison({}, {}, {})


def compare(shape: FieldShape, before: Any, after: Any) -> Comparison:
    """The fields that `after` lost, changed and gained."""
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


def _different_kinds(shape: FieldShape, before: Any, after: Any, kind: str, other: str) -> Comparison:
    """A part of another kind than before is modified; what was in it is removed, what is in it
    added."""
    removed = added_fields(shape, before) if is_granular(shape, kind) else {}
    added = added_fields(shape, after) if is_granular(shape, other) else {}
    scalar = "scalar" in (kind, other) or not (removed and added)
    return Comparison(_inside(removed), LEAF if scalar else {}, _inside(added))


def _inside(fields: Fields) -> Fields:
    return {element: inner for element, inner in fields.items() if element != MEMBER}


def _maps(shape: FieldShape, before: dict[str, Any], after: dict[str, Any]) -> Comparison:
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


def _lists(shape: FieldShape, before: list[Any], after: list[Any]) -> Comparison:
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


def by_element(shape: FieldShape, items: list[Any]) -> dict[str, list[Any]]:
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


ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()

_encode = msgspec.json.Encoder(order="sorted").encode
_set = lru_cache(maxsize=4096)(lambda text: f"v:{_encode(text).decode()}")
_key = lru_cache(maxsize=4096)(lambda name, text: f"k:{_encode({name: text}).decode()}")


class NotComparable(PatchError):
    """A value is not of its type, or an item of a list is not unique."""


def kind_of(shape: FieldShape, value: Any) -> str:
    """map, list or scalar: what a value is; raises where it is no map or list, and ought to be."""
    kind = expected_kind(shape, value)
    if value is not None:
        if kind == "map":
            if value.__class__ is not dict:
                raise NotComparable("expected map")
        elif kind == "list" and value.__class__ is not list:
            raise NotComparable("expected list")
    return kind


def expected_kind(shape: FieldShape, value: Any) -> str:
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


def is_granular(shape: FieldShape, kind: str) -> bool:
    """Whether the parts of such a value are fields of their own."""
    if kind == "map":
        return not shape.atomic
    return kind == "list" and shape.list_type != "atomic" and shape.kind != "any"


def element_of(shape: FieldShape, item: Any) -> str:
    """The path element of a list item: its keys, or its value."""
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


def field_set(shape: FieldShape, value: Any) -> Fields:
    """Every field an applied configuration mentions."""
    kind = kind_of(shape, value)
    if not is_granular(shape, kind):
        return LEAF
    if kind == "map":
        return _map_fields(shape, value) if value else {}
    return _list_fields(shape, value) if value else {}


def _map_fields(shape: FieldShape, value: dict[str, Any]) -> Fields:
    result: Fields = {}
    for name, item in value.items():
        inner = field_set(shape.field(name) or UNTYPED, item)
        empty = item is None or (item.__class__ is dict and not item)
        if (empty or name not in shape.fields) and MEMBER not in inner:
            inner = {MEMBER: {}, **inner}
        if inner:
            result[f"f:{name}"] = inner
    return result


def _list_fields(shape: FieldShape, value: list[Any]) -> Fields:
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


def added_fields(shape: FieldShape, value: Any) -> Fields:
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


Written = dict[str, Any]
Writer = Callable[[Any], Written]

_LEAF: Written = {}


def _writer(shape: FieldShape) -> Writer | None:
    """The compiled function for the fields of a part that is added; None if the part is one field."""
    if shape.writer is NOT_COMPILED:
        shape.writer = _compile_writer(shape)
    found: Writer | None = shape.writer
    return found


def _compile_writer(shape: FieldShape) -> Writer | None:
    if shape.kind == "any":
        return None if shape.atomic else lambda value: _any_fields(shape, value)
    if shape.kind in ("struct", "map"):
        return None if shape.atomic else _map_writer(shape)
    if shape.kind == "list":
        return None if shape.list_type == "atomic" else _list_writer(shape)
    return None


def _any_fields(shape: FieldShape, value: Any) -> Written:
    written = encode({"x": added_fields(shape, value)})["x"]
    return written or _LEAF


def _map_writer(shape: FieldShape) -> Writer:
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
                known = (f"f:{name}", _writer(part if part is not None else values))
                if part is not None:
                    fields[name] = known
            element, write = known
            written[element] = _LEAF if write is None else write(value[name])
        return written

    return write_map


def _list_writer(shape: FieldShape) -> Writer:
    items = shape.items or UNTYPED

    def write_list(value: Any) -> Written:
        if not value:
            return _LEAF
        if value.__class__ is not list:
            raise NotComparable("expected list")
        write = _writer(items)
        inner: Written = {}
        for item in value:
            element = element_of(shape, item)
            inner[element] = _LEAF if write is None or element in inner else write(item)
        if len(inner) > 1:
            inner = {element: inner[element] for element in sorted(inner, key=order)}
        return {".": _LEAF, **inner}

    return write_list


def created_fields(shape: FieldShape, empty: Written, raw: Written, skipped: dict[str, Any]) -> Written:
    """The fields of a new object as FieldsV1: all that an empty object has not, except for `skipped`.

    Most writes in a busy cluster create pods, and a new object has no other field owner. So what a
    comparison with an empty object would find is written in one walk, by functions compiled once per
    type. `skipped` has the names of fields without an owner: with None, or with those to skip inside.
    """
    written: Written = {}
    for name in sorted(raw):
        inside = skipped.get(name, _LEAF)
        if inside is None:
            continue
        part = shape.fields.get(name) or shape.values or UNTYPED
        old = empty.get(name, {} if inside else ABSENT)
        if old is ABSENT:
            write = _writer(part)
            written[f"f:{name}"] = _LEAF if write is None else write(raw[name])
        else:
            found = _changed_fields(part, old, raw[name], inside)
            if found is not None:
                written[f"f:{name}"] = found
    return written


def _changed_fields(part: FieldShape, old: Any, value: Any, skipped: dict[str, Any]) -> Written | None:
    if old.__class__ is dict and value.__class__ is dict and not part.atomic:
        return created_fields(part, old, value, skipped) or None
    if same(old, value):
        return None
    write = _writer(part)
    found = _LEAF if write is None else write(value)
    return {element: inner for element, inner in found.items() if element != "."}


def merged(shape: FieldShape, live: Any, applied: Any) -> Any:
    """The live part merged with the applied one; nothing is removed."""
    if applied is ABSENT:
        return live
    if live is ABSENT or live is applied:
        return applied
    kind = kind_of(shape, applied)
    if live is not None and applied is not None and kind_of(shape, live) != kind:
        return applied
    if applied is None:
        kind = kind_of(shape, live)
    if not (live or applied) or not is_granular(shape, kind):
        return applied
    if kind == "map":
        return _merged_maps(shape, live or {}, applied or {})
    return _merged_lists(shape, live or [], applied or [])


def _merged_maps(shape: FieldShape, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    result = dict(live)
    for name, value in applied.items():
        result[name] = merged(shape.field(name) or UNTYPED, live.get(name, ABSENT), value)
    return result


def _merged_lists(shape: FieldShape, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items in the applied order; those only the live list has stay beside their neighbours."""
    items = shape.items or UNTYPED
    wanted = by_element(shape, applied)
    for element, found in wanted.items():
        if len(found) > 1:
            raise NotComparable(f"duplicate entries for key {element}")
    here = by_element(shape, live)

    def both(element: str) -> Any:
        old = here.get(element, ())
        new = wanted[element][0]
        return merged(items, old[0], new) if len(old) == 1 else new

    left = [(element_of(shape, item), item) for item in live]
    right = list(wanted)
    shared = [element for element in right if element in here]
    next_shared = 0
    done: set[str] = set()
    result: list[Any] = []
    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left) and j < len(right):
            element = left[i][0]
            if element == right[j]:
                done.add(element)
                result.append(both(element))
                i, j, next_shared = i + 1, j + 1, next_shared + 1
                continue
            expected = shared[next_shared] if next_shared < len(shared) else None
            if element in wanted and expected is not None and expected != element:
                i += 1
                continue
        if i < len(left):
            element, item = left[i]
            if element not in wanted:
                result.append(item)
                i += 1
                continue
            if element in done:
                i += 1
        if j < len(right):
            element = right[j]
            done.add(element)
            result.append(both(element))
            j += 1
            if next_shared < len(shared) and shared[next_shared] == element:
                next_shared += 1
    return result


def removed(shape: FieldShape, value: Any, fields: Fields) -> Any:
    """The value without these fields; what becomes empty by it is gone (None)."""
    kind = kind_of(shape, value)
    if kind == "scalar":
        return value
    if not value or not is_granular(shape, kind):
        return None
    if kind == "map":
        return _removed_from_map(shape, value, fields)
    return _removed_from_list(shape, value, fields)


def _removed_from_map(shape: FieldShape, value: dict[str, Any], fields: Fields) -> Any:
    result: dict[str, Any] = {}
    for name, item in value.items():
        inner = fields.get(f"f:{name}")
        if inner is None:
            result[name] = item
        elif MEMBER not in inner:
            result[name] = removed(shape.field(name) or UNTYPED, item, inner)
    return result or None


def _removed_from_list(shape: FieldShape, value: list[Any], fields: Fields) -> Any:
    result: list[Any] = []
    items = shape.items or UNTYPED
    for item in value:
        inner = fields.get(element_of(shape, item))
        if inner is None:
            result.append(item)
        elif MEMBER not in inner:
            result.append(removed(items, item, inner))
    return result or None
