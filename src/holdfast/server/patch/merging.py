"""Laying an applied configuration over an object, and taking fields out of one."""

from __future__ import annotations

from typing import Any

from holdfast.server.patch.compare import by_element
from holdfast.server.patch.fields import MEMBER, Fields
from holdfast.server.patch.typed import ABSENT, NotComparable, element_of, is_granular, kind_of
from holdfast.server.schema.shapes import UNTYPED, Shape


def merged(shape: Shape, live: Any, applied: Any) -> Any:
    """The live part with everything the applied one says; nothing is removed."""
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


def _merged_maps(shape: Shape, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    result = dict(live)
    for name, value in applied.items():
        result[name] = merged(shape.field(name) or UNTYPED, live.get(name, ABSENT), value)
    return result


def _merged_lists(shape: Shape, live: list[Any], applied: list[Any]) -> list[Any]:
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


def removed(shape: Shape, value: Any, fields: Fields) -> Any:
    """The value without these fields; what becomes empty by it is gone (None)."""
    kind = kind_of(shape, value)
    if kind == "scalar":
        return value
    if not value or not is_granular(shape, kind):
        return None
    if kind == "map":
        return _removed_from_map(shape, value, fields)
    return _removed_from_list(shape, value, fields)


def _removed_from_map(shape: Shape, value: dict[str, Any], fields: Fields) -> Any:
    result: dict[str, Any] = {}
    for name, item in value.items():
        inner = fields.get(f"f:{name}")
        if inner is None:
            result[name] = item
        elif MEMBER not in inner:
            result[name] = removed(shape.field(name) or UNTYPED, item, inner)
    return result or None


def _removed_from_list(shape: Shape, value: list[Any], fields: Fields) -> Any:
    result: list[Any] = []
    items = shape.items or UNTYPED
    for item in value:
        inner = fields.get(element_of(shape, item))
        if inner is None:
            result.append(item)
        elif MEMBER not in inner:
            result.append(removed(items, item, inner))
    return result or None
