"""Operators and functions of CEL, as Kubernetes has them.

The standard functions are here; the other modules have the libraries that Kubernetes adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from holdfast.machinery.schema.cel.formats import FORMATS
from holdfast.machinery.schema.cel.lists import LISTS, contains
from holdfast.machinery.schema.cel.network import NETWORK
from holdfast.machinery.schema.cel.overloads import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Functions,
    Overload,
    Type,
    failed,
    function,
    merged,
    method,
    unsigned,
    whole,
)
from holdfast.machinery.schema.cel.quantities import QUANTITIES
from holdfast.machinery.schema.cel.regexps import REGEXPS
from holdfast.machinery.schema.cel.strings import STRING_FUNCTIONS, float_text, to_int, to_uint
from holdfast.machinery.schema.cel.syntax import MAX_INT, MAX_UINT, MIN_INT, Uint
from holdfast.machinery.schema.cel.times import TIMES
from holdfast.machinery.schema.cel.values import TypeValue, compare, equal, type_name


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


def _to_int(value: Any) -> int:
    if isinstance(value, float) and not (math.isfinite(value) and MIN_INT < value < MAX_INT):
        raise failed("integer overflow")
    return whole(to_int(value) if isinstance(value, str) else int(value))


def _to_uint(value: Any) -> Uint:
    if isinstance(value, float) and not (math.isfinite(value) and 0 <= value < MAX_UINT):
        raise failed("unsigned integer overflow")
    return unsigned(to_uint(value) if isinstance(value, str) else int(value))


def _to_float(text: str) -> float:
    try:
        if "_" in text or text != text.strip():
            raise ValueError(text)
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
        return float_text(value)
    return str(value)


def _negated(value: int) -> int:
    return whole(-value)


def _comparison(test: Callable[[int], bool]) -> list[Overload]:
    numbers = (INT, UINT, DOUBLE)
    pairs = [(one, other) for one in numbers for other in numbers]
    pairs += [(kind, kind) for kind in (BOOL, STRING, BYTES, TIMESTAMP, DURATION)]
    return [function(pair, BOOL, lambda a, b: test(compare(a, b))) for pair in pairs]


def _sized(kind: Type) -> list[Overload]:
    return [make((kind,), INT, len) for make in (function, method)]


_STANDARD: Functions = {
    "_==_": [function((DYN, DYN), BOOL, equal)],
    "_!=_": [function((DYN, DYN), BOOL, lambda a, b: not equal(a, b))],
    "_<_": _comparison(lambda order: order < 0),
    "_<=_": _comparison(lambda order: order <= 0),
    "_>_": _comparison(lambda order: order > 0),
    "_>=_": _comparison(lambda order: order >= 0),
    "@in": [function((DYN, LIST), BOOL, contains), function((DYN, MAP), BOOL, contains)],
    "!_": [function((BOOL,), BOOL, lambda a: not a)],
    "-_": [function((INT,), INT, _negated), function((DOUBLE,), DOUBLE, lambda a: -a)],
    "_+_": [
        function((INT, INT), INT, lambda a, b: whole(a + b)),
        function((UINT, UINT), UINT, lambda a, b: unsigned(a + b)),
        function((DOUBLE, DOUBLE), DOUBLE, lambda a, b: a + b),
        function((STRING, STRING), STRING, lambda a, b: a + b),
        function((BYTES, BYTES), BYTES, lambda a, b: a + b),
        function((LIST, LIST), LIST, lambda a, b: a + b),
    ],
    "_-_": [
        function((INT, INT), INT, lambda a, b: whole(a - b)),
        function((UINT, UINT), UINT, lambda a, b: unsigned(a - b)),
        function((DOUBLE, DOUBLE), DOUBLE, lambda a, b: a - b),
    ],
    "_*_": [
        function((INT, INT), INT, lambda a, b: whole(a * b)),
        function((UINT, UINT), UINT, lambda a, b: unsigned(a * b)),
        function((DOUBLE, DOUBLE), DOUBLE, lambda a, b: a * b),
    ],
    "_/_": [
        function((INT, INT), INT, lambda a, b: whole(_divided(a, b))),
        function((UINT, UINT), UINT, lambda a, b: unsigned(_divided(a, b))),
        function((DOUBLE, DOUBLE), DOUBLE, _float_divided),
    ],
    "_%_": [
        function((INT, INT), INT, _remainder),
        function((UINT, UINT), UINT, lambda a, b: unsigned(_remainder(a, b))),
    ],
    "size": [over for kind in (STRING, BYTES, LIST, MAP) for over in _sized(kind)],
    "string": [
        function((kind,), STRING, _to_text) for kind in (STRING, BOOL, INT, UINT, DOUBLE, BYTES)
    ],
    "int": [function((kind,), INT, _to_int) for kind in (INT, UINT, DOUBLE, STRING)],
    "uint": [function((kind,), UINT, _to_uint) for kind in (UINT, INT, DOUBLE, STRING)],
    "double": [
        *(function((kind,), DOUBLE, float) for kind in (DOUBLE, INT, UINT)),
        function((STRING,), DOUBLE, _to_float),
    ],
    "bool": [function((BOOL,), BOOL, bool), function((STRING,), BOOL, _to_bool)],
    "bytes": [function((BYTES,), BYTES, bytes), function((STRING,), BYTES, lambda a: a.encode())],
    "dyn": [function((DYN,), DYN, lambda value: value)],
    "type": [function((DYN,), TYPE, lambda value: TypeValue(type_name(value)))],
    "contains": [method((STRING, STRING), BOOL, lambda a, b: b in a)],
    "startsWith": [method((STRING, STRING), BOOL, lambda a, b: a.startswith(b))],
    "endsWith": [method((STRING, STRING), BOOL, lambda a, b: a.endswith(b))],
}
FUNCTIONS = merged(_STANDARD, STRING_FUNCTIONS, REGEXPS, LISTS, QUANTITIES, TIMES, NETWORK, FORMATS)
"""By name. `and`, `or`, conditions, indexes, macros and the `or`s of optional values are not functions:
they do not evaluate all of their arguments."""
