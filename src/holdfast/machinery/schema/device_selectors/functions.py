"""Functions and operators of CEL in device selectors, with the types they take.

A function has overloads. The checker chooses among them by the static types of an expression, where
`dyn` fits everything; the evaluator by the values. Those of Kubernetes' environment that make no sense
for devices (URLs, IP addresses, times) are left to the CEL library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from holdfast.api.errors import QuantityError
from holdfast.api.quantity import NANO
from holdfast.api.quantity import parse_exact as parse_quantity
from holdfast.machinery.schema.custom.regexp import BadPattern, TooCostly, compiled
from holdfast.machinery.schema.device_selectors.syntax import MAX_INT, MAX_UINT, MIN_INT, Uint
from holdfast.machinery.schema.device_selectors.values import (
    NO_OVERLOAD,
    NOTHING,
    OptionalValue,
    QuantityValue,
    SelectorRuntimeError,
    SemverValue,
    TypeValue,
    compare,
    equal,
    normalized_version,
    semver,
    type_name,
)

Type = Any
"""The name of a type, or a tuple of `list`, `map` or `optional_type` and the types of its parts."""
DYN, BOOL, INT, UINT, DOUBLE = "dyn", "bool", "int", "uint", "double"
STRING, BYTES, NULL = "string", "bytes", "null_type"
QUANTITY, SEMVER, TYPE = "kubernetes.Quantity", "kubernetes.Semver", "type"
LIST, MAP, OPTIONAL = ("list", DYN), ("map", DYN, DYN), ("optional_type", DYN)
STRINGS = ("list", STRING)


class Overload(NamedTuple):
    method: bool
    takes: tuple[Type, ...]
    returns: Type
    run: Callable[..., Any]

    def fits(self, types: Sequence[Type], method: bool) -> bool:
        return (
            self.method == method
            and len(types) == len(self.takes)
            and all(assignable(want, given) for want, given in zip(self.takes, types, strict=True))
        )


def assignable(want: Type, given: Type) -> bool:
    if DYN in (want, given):
        return True
    if isinstance(want, tuple) and isinstance(given, tuple):
        return want[0] == given[0] and all(
            assignable(a, b) for a, b in zip(want[1:], given[1:], strict=True)
        )
    return bool(want == given)


def type_text(of: Type) -> str:
    if isinstance(of, tuple):
        return f"{of[0]}({', '.join(type_text(part) for part in of[1:])})"
    return str(of)


def type_of(value: Any) -> Type:
    """The type of a value as overloads are chosen by it."""
    name = type_name(value)
    match name:
        case "list":
            kinds = {type_name(item) for item in value}
            return ("list", kinds.pop() if len(kinds) == 1 else DYN)
        case "map":
            return MAP
        case "optional_type":
            return OPTIONAL
        case _:
            return name


def failed(why: str) -> SelectorRuntimeError:
    return SelectorRuntimeError(why)


def whole(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise failed("integer overflow")
    return int(value)


def unsigned(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        raise failed("unsigned integer overflow")
    return Uint(value)


def _divided(one: int, other: int) -> int:
    if other == 0:
        raise failed("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise failed("modulus by zero")
    return one - other * _divided(one, other)


def _float_divided(one: float, other: float) -> float:
    if other == 0:
        return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one)
    return one / other


def _contains(item: Any, among: Any) -> bool:
    if isinstance(among, dict):
        return any(equal(item, key) for key in among)
    return any(equal(item, other) for other in among)


def _matches(text: str, pattern: str) -> bool:
    try:
        return compiled(pattern).search(text)
    except BadPattern as error:
        raise failed(str(error)) from None
    except TooCostly:
        raise failed("operation cancelled: actual cost limit exceeded") from None


def _quantity(text: str) -> QuantityValue:
    try:
        return QuantityValue(parse_quantity(text))
    except QuantityError as error:
        raise failed(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _as_integer(quantity: QuantityValue) -> int:
    if not _is_integer(quantity):
        raise failed("cannot convert value to integer")
    return quantity.nano // NANO


def _is_integer(quantity: QuantityValue) -> bool:
    return quantity.nano % NANO == 0 and MIN_INT <= quantity.nano // NANO <= MAX_INT


def _semver(text: str, normalize: bool = False) -> SemverValue:
    found = semver(normalized_version(text) if normalize else text)
    if found is None:
        raise failed(f'invalid semantic version "{text}"')
    return found


def _is_semver(text: str, normalize: bool = False) -> bool:
    return semver(normalized_version(text) if normalize else text) is not None


def _to_int(value: Any) -> int:
    try:
        if isinstance(value, float) and not (math.isfinite(value) and MIN_INT < value < MAX_INT):
            raise failed("integer overflow")
        return whole(int(value))
    except ValueError:
        raise failed(f"type conversion error from 'string' to 'int': {value}") from None


def _to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise failed("type conversion error from 'string' to 'double'") from None


def _to_bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise failed("type conversion error from 'string' to 'bool'")


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise failed("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    return str(value)


def _character(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise failed(f"index out of range: {at}")
    return text[at : at + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    for at in (start, last):
        if not 0 <= at <= len(text):
            raise failed(f"index out of range: {at}")
    if start > last:
        raise failed(f"invalid substring range. start: {start}, end: {last}")
    return text[start:last]


def _index(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise failed(f"index out of range: {start}")
    return text.find(part, start)


def _replaced(text: str, old: str, new: str, times: int = -1) -> str:
    return text.replace(old, new, times)


def _split(text: str, between: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not between:
        parts = list(text)
        return parts if limit < 0 else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(between, limit - 1 if limit > 0 else -1)


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
    total: Any = 0
    for item in items:
        if not isinstance(item, int | float) or isinstance(item, bool):
            raise failed(NO_OVERLOAD)
        total = total + item
    return total if isinstance(total, float) else whole(total)


def _value(optional: OptionalValue) -> Any:
    if not optional.present:
        raise failed("optional.none() dereference")
    return optional.value


def _includes(value: Any, item: Any) -> bool:
    return _contains(item, value) if isinstance(value, list) else equal(value, item)


def _negated(value: int) -> int:
    return whole(-value)


def _order(one: SemverValue, other: SemverValue) -> int:
    return (one.order > other.order) - (one.order < other.order)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def _stripped(text: str) -> str:
    return text.strip()


def _lower(text: str) -> str:
    return "".join(chr(ord(sign) + 32) if "A" <= sign <= "Z" else sign for sign in text)


def _upper(text: str) -> str:
    return "".join(chr(ord(sign) - 32) if "a" <= sign <= "z" else sign for sign in text)


def _function(takes: Sequence[Type], returns: Type, run: Callable[..., Any]) -> Overload:
    return Overload(False, tuple(takes), returns, run)


def _method(takes: Sequence[Type], returns: Type, run: Callable[..., Any]) -> Overload:
    return Overload(True, tuple(takes), returns, run)


def _comparison(test: Callable[[int], bool]) -> list[Overload]:
    numbers = (INT, UINT, DOUBLE)
    pairs = [(one, other) for one in numbers for other in numbers]
    pairs += [(kind, kind) for kind in (BOOL, STRING, BYTES)]
    return [_function(pair, BOOL, lambda a, b: test(compare(a, b))) for pair in pairs]


def _sized(kind: Type) -> list[Overload]:
    return [make((kind,), INT, len) for make in (_function, _method)]


FUNCTIONS: dict[str, list[Overload]] = {
    "_==_": [_function((DYN, DYN), BOOL, equal)],
    "_!=_": [_function((DYN, DYN), BOOL, lambda a, b: not equal(a, b))],
    "_<_": _comparison(lambda order: order < 0),
    "_<=_": _comparison(lambda order: order <= 0),
    "_>_": _comparison(lambda order: order > 0),
    "_>=_": _comparison(lambda order: order >= 0),
    "@in": [_function((DYN, LIST), BOOL, _contains), _function((DYN, MAP), BOOL, _contains)],
    "!_": [_function((BOOL,), BOOL, lambda a: not a)],
    "-_": [_function((INT,), INT, _negated), _function((DOUBLE,), DOUBLE, lambda a: -a)],
    "_+_": [
        _function((INT, INT), INT, lambda a, b: whole(a + b)),
        _function((UINT, UINT), UINT, lambda a, b: unsigned(a + b)),
        _function((DOUBLE, DOUBLE), DOUBLE, lambda a, b: a + b),
        _function((STRING, STRING), STRING, lambda a, b: a + b),
        _function((BYTES, BYTES), BYTES, lambda a, b: a + b),
        _function((LIST, LIST), LIST, lambda a, b: a + b),
    ],
    "_-_": [
        _function((INT, INT), INT, lambda a, b: whole(a - b)),
        _function((UINT, UINT), UINT, lambda a, b: unsigned(a - b)),
        _function((DOUBLE, DOUBLE), DOUBLE, lambda a, b: a - b),
    ],
    "_*_": [
        _function((INT, INT), INT, lambda a, b: whole(a * b)),
        _function((UINT, UINT), UINT, lambda a, b: unsigned(a * b)),
        _function((DOUBLE, DOUBLE), DOUBLE, lambda a, b: a * b),
    ],
    "_/_": [
        _function((INT, INT), INT, lambda a, b: whole(_divided(a, b))),
        _function((UINT, UINT), UINT, lambda a, b: unsigned(_divided(a, b))),
        _function((DOUBLE, DOUBLE), DOUBLE, _float_divided),
    ],
    "_%_": [
        _function((INT, INT), INT, _remainder),
        _function((UINT, UINT), UINT, lambda a, b: unsigned(_remainder(a, b))),
    ],
    "size": [over for kind in (STRING, BYTES, LIST, MAP) for over in _sized(kind)],
    "string": [
        _function((kind,), STRING, _to_text) for kind in (STRING, BOOL, INT, UINT, DOUBLE, BYTES)
    ],
    "int": [_function((kind,), INT, _to_int) for kind in (INT, UINT, DOUBLE, STRING)],
    "uint": [
        _function((kind,), UINT, lambda value: unsigned(_to_int(value)))
        for kind in (UINT, INT, DOUBLE, STRING)
    ],
    "double": [
        *(_function((kind,), DOUBLE, float) for kind in (DOUBLE, INT, UINT)),
        _function((STRING,), DOUBLE, _to_float),
    ],
    "bool": [_function((BOOL,), BOOL, bool), _function((STRING,), BOOL, _to_bool)],
    "bytes": [_function((BYTES,), BYTES, bytes), _function((STRING,), BYTES, lambda a: a.encode())],
    "dyn": [_function((DYN,), DYN, lambda value: value)],
    "type": [_function((DYN,), TYPE, lambda value: TypeValue(type_name(value)))],
    "contains": [_method((STRING, STRING), BOOL, lambda a, b: b in a)],
    "startsWith": [_method((STRING, STRING), BOOL, lambda a, b: a.startswith(b))],
    "endsWith": [_method((STRING, STRING), BOOL, lambda a, b: a.endswith(b))],
    "matches": [
        _method((STRING, STRING), BOOL, _matches),
        _function((STRING, STRING), BOOL, _matches),
    ],
    "charAt": [_method((STRING, INT), STRING, _character)],
    "indexOf": [
        _method((STRING, STRING), INT, _index),
        _method((STRING, STRING, INT), INT, _index),
        _method((LIST, DYN), INT, _position),
    ],
    "lastIndexOf": [
        _method((STRING, STRING), INT, lambda a, b: a.rfind(b)),
        _method((LIST, DYN), INT, lambda items, item: _position(items, item, True)),
    ],
    "join": [
        _method((STRINGS,), STRING, lambda items: "".join(items)),
        _method((STRINGS, STRING), STRING, lambda items, between: between.join(items)),
    ],
    "lowerAscii": [_method((STRING,), STRING, _lower)],
    "upperAscii": [_method((STRING,), STRING, _upper)],
    "replace": [
        _method((STRING, STRING, STRING), STRING, _replaced),
        _method((STRING, STRING, STRING, INT), STRING, _replaced),
    ],
    "split": [
        _method((STRING, STRING), STRINGS, _split),
        _method((STRING, STRING, INT), STRINGS, _split),
    ],
    "substring": [
        _method((STRING, INT), STRING, _substring),
        _method((STRING, INT, INT), STRING, _substring),
    ],
    "trim": [_method((STRING,), STRING, _stripped)],
    "isSorted": [
        _method((LIST,), BOOL, lambda items: all(compare(a, b) <= 0 for a, b in pairwise(items)))
    ],
    "sum": [_method((LIST,), DYN, _summed)],
    "min": [_method((LIST,), DYN, lambda items: _least(items, 1))],
    "max": [_method((LIST,), DYN, lambda items: _least(items, -1))],
    "includes": [_method((DYN, DYN), BOOL, _includes)],
    "sets.contains": [
        _function((LIST, LIST), BOOL, lambda a, b: all(_contains(item, a) for item in b))
    ],
    "sets.intersects": [
        _function((LIST, LIST), BOOL, lambda a, b: any(_contains(item, a) for item in b))
    ],
    "sets.equivalent": [
        _function(
            (LIST, LIST),
            BOOL,
            lambda a, b: all(_contains(item, a) for item in b) and all(_contains(i, b) for i in a),
        )
    ],
    "quantity": [_function((STRING,), QUANTITY, _quantity)],
    "isQuantity": [_function((STRING,), BOOL, _is_quantity)],
    "sign": [_method((QUANTITY,), INT, lambda a: _sign(a.nano))],
    "isInteger": [_method((QUANTITY,), BOOL, _is_integer)],
    "asInteger": [_method((QUANTITY,), INT, _as_integer)],
    "asApproximateFloat": [_method((QUANTITY,), DOUBLE, lambda a: a.nano / NANO)],
    "add": [
        _method((QUANTITY, QUANTITY), QUANTITY, lambda a, b: QuantityValue(a.nano + b.nano)),
        _method((QUANTITY, INT), QUANTITY, lambda a, b: QuantityValue(a.nano + b * NANO)),
    ],
    "sub": [
        _method((QUANTITY, QUANTITY), QUANTITY, lambda a, b: QuantityValue(a.nano - b.nano)),
        _method((QUANTITY, INT), QUANTITY, lambda a, b: QuantityValue(a.nano - b * NANO)),
    ],
    "isLessThan": [
        _method((QUANTITY, QUANTITY), BOOL, lambda a, b: a.nano < b.nano),
        _method((SEMVER, SEMVER), BOOL, lambda a, b: _order(a, b) < 0),
    ],
    "isGreaterThan": [
        _method((QUANTITY, QUANTITY), BOOL, lambda a, b: a.nano > b.nano),
        _method((SEMVER, SEMVER), BOOL, lambda a, b: _order(a, b) > 0),
    ],
    "compareTo": [
        _method((QUANTITY, QUANTITY), INT, lambda a, b: _sign(a.nano - b.nano)),
        _method((SEMVER, SEMVER), INT, _order),
    ],
    "semver": [
        _function((STRING,), SEMVER, _semver),
        _function((STRING, BOOL), SEMVER, _semver),
    ],
    "isSemver": [
        _function((STRING,), BOOL, _is_semver),
        _function((STRING, BOOL), BOOL, _is_semver),
    ],
    "major": [_method((SEMVER,), INT, lambda a: a.numbers[0])],
    "minor": [_method((SEMVER,), INT, lambda a: a.numbers[1])],
    "patch": [_method((SEMVER,), INT, lambda a: a.numbers[2])],
    "optional.of": [_function((DYN,), OPTIONAL, lambda value: OptionalValue(True, value))],
    "optional.none": [_function((), OPTIONAL, lambda: NOTHING)],
    "optional.ofNonZeroValue": [
        _function((DYN,), OPTIONAL, lambda value: OptionalValue(True, value) if value else NOTHING)
    ],
    "hasValue": [_method((OPTIONAL,), BOOL, lambda a: a.present)],
    "value": [_method((OPTIONAL,), DYN, _value)],
}
"""By name. `and`, `or`, conditions, indexes, macros and the `or`s of optional values are not functions:
they do not evaluate all of their arguments."""
