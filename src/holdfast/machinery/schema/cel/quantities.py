"""Quantities and semantic versions of CEL in Kubernetes."""

from __future__ import annotations

from holdfast.api.errors import QuantityError
from holdfast.api.quantity import NANO
from holdfast.api.quantity import parse_exact as parse_quantity
from holdfast.machinery.schema.cel.overloads import (
    BOOL,
    DOUBLE,
    INT,
    QUANTITY,
    SEMVER,
    STRING,
    Functions,
    failed,
    function,
    method,
)
from holdfast.machinery.schema.cel.syntax import MAX_INT, MIN_INT
from holdfast.machinery.schema.cel.values import (
    QuantityValue,
    SemverValue,
    normalized_version,
    semver,
)

_NO_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def _quantity(text: str) -> QuantityValue:
    try:
        return QuantityValue(parse_quantity(text))
    except QuantityError:
        raise failed(_NO_QUANTITY) from None


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


def _order(one: SemverValue, other: SemverValue) -> int:
    return (one.order > other.order) - (one.order < other.order)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


QUANTITIES: Functions = {
    "quantity": [function((STRING,), QUANTITY, _quantity)],
    "isQuantity": [function((STRING,), BOOL, _is_quantity)],
    "sign": [function((QUANTITY,), INT, lambda a: _sign(a.nano))],
    "isInteger": [method((QUANTITY,), BOOL, _is_integer)],
    "asInteger": [method((QUANTITY,), INT, _as_integer)],
    "asApproximateFloat": [method((QUANTITY,), DOUBLE, lambda a: a.nano / NANO)],
    "add": [
        method((QUANTITY, QUANTITY), QUANTITY, lambda a, b: QuantityValue(a.nano + b.nano)),
        method((QUANTITY, INT), QUANTITY, lambda a, b: QuantityValue(a.nano + b * NANO)),
    ],
    "sub": [
        method((QUANTITY, QUANTITY), QUANTITY, lambda a, b: QuantityValue(a.nano - b.nano)),
        method((QUANTITY, INT), QUANTITY, lambda a, b: QuantityValue(a.nano - b * NANO)),
    ],
    "isLessThan": [
        method((QUANTITY, QUANTITY), BOOL, lambda a, b: a.nano < b.nano),
        method((SEMVER, SEMVER), BOOL, lambda a, b: _order(a, b) < 0),
    ],
    "isGreaterThan": [
        method((QUANTITY, QUANTITY), BOOL, lambda a, b: a.nano > b.nano),
        method((SEMVER, SEMVER), BOOL, lambda a, b: _order(a, b) > 0),
    ],
    "compareTo": [
        method((QUANTITY, QUANTITY), INT, lambda a, b: _sign(a.nano - b.nano)),
        method((SEMVER, SEMVER), INT, _order),
    ],
    "semver": [
        function((STRING,), SEMVER, _semver),
        function((STRING, BOOL), SEMVER, _semver),
    ],
    "isSemver": [
        function((STRING,), BOOL, _is_semver),
        function((STRING, BOOL), BOOL, _is_semver),
    ],
    "major": [method((SEMVER,), INT, lambda a: a.numbers[0])],
    "minor": [method((SEMVER,), INT, lambda a: a.numbers[1])],
    "patch": [method((SEMVER,), INT, lambda a: a.numbers[2])],
}
