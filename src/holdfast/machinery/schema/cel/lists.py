"""Functions of CEL on lists, sets and optional values."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from holdfast.machinery.schema.cel.overloads import (
    BOOL,
    DYN,
    INT,
    LIST,
    OPTIONAL,
    Functions,
    failed,
    function,
    method,
    whole,
)
from holdfast.machinery.schema.cel.syntax import Uint
from holdfast.machinery.schema.cel.times import checked_duration
from holdfast.machinery.schema.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    AddressValue,
    DurationValue,
    NetworkValue,
    OptionalValue,
    QuantityValue,
    UrlValue,
    compare,
    equal,
)

_MAX_RANGE = 1_000_000


def contains(item: Any, among: Any) -> bool:
    return any(equal(item, other) for other in among)


def _position(items: list[Any], item: Any, last: bool = False) -> int:
    found = [at for at, other in enumerate(items) if equal(item, other)]
    return found[-1 if last else 0] if found else -1


def _least(items: list[Any], sign: int) -> Any:
    if not items:
        raise failed(f"{'min' if sign > 0 else 'max'} called on empty list")
    best = items[0]
    for item in items[1:]:
        if sign * compare(item, best) < 0:
            best = item
    return best


def _summed(items: list[Any]) -> Any:
    if items and all(isinstance(item, DurationValue) for item in items):
        return checked_duration(sum(item.nano for item in items))
    total: Any = 0
    for item in items:
        if not isinstance(item, int | float) or isinstance(item, bool):
            raise failed(NO_OVERLOAD)
        total = total + item
    if isinstance(total, float):
        return total
    return Uint(total) if items and all(isinstance(item, Uint) for item in items) else whole(total)


def _sliced(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise failed(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise failed(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise failed(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flattened(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise failed("level must be non-negative")
    found: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth:
            found += _flattened(item, depth - 1)
        else:
            found.append(item)
    return found


def ordered(items: list[Any], keys: list[Any]) -> list[Any]:
    """Items in the order of their keys, which must be of one type."""
    if any(one.__class__ is not other.__class__ for one, other in pairwise(keys)):
        raise failed("list elements must have the same type")
    if len(keys) == 1:
        compare(keys[0], keys[0])
    by_key = cmp_to_key(compare)
    places = sorted(range(len(items)), key=lambda at: by_key(keys[at]))
    return [items[at] for at in places]


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not contains(item, found):
            found.append(item)
    return found


def _range(end: int) -> list[int]:
    if end > _MAX_RANGE:
        raise failed("operation cancelled: actual cost limit exceeded")
    return list(range(end))


def _includes(value: Any, item: Any) -> bool:
    return contains(item, value) if isinstance(value, list) else equal(value, item)


def _value(optional: OptionalValue) -> Any:
    if not optional.present:
        raise failed("optional.none() dereference")
    return optional.value


def _unwrapped(items: list[Any]) -> list[Any]:
    if not all(isinstance(item, OptionalValue) for item in items):
        raise failed(NO_OVERLOAD)
    return [item.value for item in items if item.present]


def _is_zero(value: Any) -> bool:
    match value:
        case QuantityValue() | DurationValue():
            return value.nano == 0
        case UrlValue() | AddressValue() | NetworkValue():
            return False
        case OptionalValue():
            return not value.present
        case _:
            return not value


def _end(items: list[Any], at: int) -> OptionalValue:
    return OptionalValue(True, items[at]) if items else NOTHING


LISTS: Functions = {
    "isSorted": [
        method((LIST,), BOOL, lambda items: all(compare(a, b) <= 0 for a, b in pairwise(items)))
    ],
    "sum": [method((LIST,), DYN, _summed)],
    "min": [method((LIST,), DYN, lambda items: _least(items, 1))],
    "max": [method((LIST,), DYN, lambda items: _least(items, -1))],
    "indexOf": [method((LIST, DYN), INT, _position)],
    "lastIndexOf": [method((LIST, DYN), INT, lambda items, item: _position(items, item, True))],
    "includes": [method((DYN, DYN), BOOL, _includes)],
    "slice": [method((LIST, INT, INT), LIST, _sliced)],
    "flatten": [method((LIST,), LIST, _flattened), method((LIST, INT), LIST, _flattened)],
    "sort": [method((LIST,), LIST, lambda items: ordered(items, items))],
    "distinct": [method((LIST,), LIST, _distinct)],
    "reverse": [method((LIST,), LIST, lambda items: items[::-1])],
    "lists.range": [function((INT,), ("list", INT), _range)],
    "first": [method((LIST,), OPTIONAL, lambda items: _end(items, 0))],
    "last": [method((LIST,), OPTIONAL, lambda items: _end(items, -1))],
    "sets.contains": [function((LIST, LIST), BOOL, lambda a, b: all(contains(item, a) for item in b))],
    "sets.intersects": [
        function((LIST, LIST), BOOL, lambda a, b: any(contains(item, a) for item in b))
    ],
    "sets.equivalent": [
        function(
            (LIST, LIST),
            BOOL,
            lambda a, b: all(contains(item, a) for item in b) and all(contains(i, b) for i in a),
        )
    ],
    "optional.of": [function((DYN,), OPTIONAL, lambda value: OptionalValue(True, value))],
    "optional.none": [function((), OPTIONAL, lambda: NOTHING)],
    "optional.ofNonZeroValue": [
        function((DYN,), OPTIONAL, lambda v: NOTHING if _is_zero(v) else OptionalValue(True, v))
    ],
    "optional.unwrap": [function((LIST,), LIST, _unwrapped)],
    "unwrapOpt": [method((LIST,), LIST, _unwrapped)],
    "hasValue": [method((OPTIONAL,), BOOL, lambda a: a.present)],
    "value": [method((OPTIONAL,), DYN, _value)],
}
