"""Scalars of built-in kinds: accepted values, and the canonical form in which they are stored.

A quantity keeps the kind of its suffix and takes the largest suffix with a whole number: `1000m`
becomes `1`, `0.5Gi` becomes `512Mi`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from holdfast.api.errors import HoldfastError, QuantityError, TimeError
from holdfast.api.quantity import NANO, Quantity, parse
from holdfast.api.times import format_micro_time, format_time, parse_time
from holdfast.machinery.schema.shapes import FieldShape

DROP: Any = type("Drop", (), {"__repr__": lambda self: "DROP"})()
"""The result of a reader for a part that is not written: a null, or an optional zero."""

Leaf = Callable[[Any, tuple[Any, ...], list[Any]], Any]


class Mismatch(HoldfastError):
    """A value that does not fit its field; `field`, as Go names it, and `path` are filled in on the
    way up."""

    def __init__(self, value: Any, go_type: str, text: str = "") -> None:
        super().__init__(go_type)
        self.value = value
        self.go_type = go_type
        self.field = ""
        self.path = ""
        self._text = text

    def text(self) -> str:
        if self._text:
            return self._text
        where = f"Go struct field {self.field}" if self.field else "Go value"
        return f"json: cannot unmarshal {_found(self.value)} into {where} of type {self.go_type}"


def _found(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 2**31):
        return f"number {value}"
    return "number"


def zero_of(shape: FieldShape) -> Any:
    """The zero value that Go writes."""
    return _ZEROES.get(shape.format or shape.kind)


_ZEROES: dict[str, Any] = {
    "string": "",
    "byte": "",
    "integer": 0,
    "int32": 0,
    "int64": 0,
    "boolean": False,
    "quantity": "0",
    "int-or-string": 0,
}


def leaf(shape: FieldShape, keep_zero: bool) -> Leaf:
    """The reader of a scalar; with `keep_zero`, an empty one that was given is kept."""
    make = _LEAVES.get(shape.format) or _LEAVES.get(shape.kind)
    if make is None:
        return _anything
    return make(keep_zero)


def _anything(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
    return DROP if value is None else value


def _string(keep_zero: bool) -> Leaf:
    def read_string(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value.__class__ is not str:
            if value is None:
                return DROP
            raise Mismatch(value, "string")
        return value if value or keep_zero else DROP

    return read_string


def _integer(keep_zero: bool, bits: int) -> Leaf:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    name = f"int{bits}"

    def read_integer(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value.__class__ is not int or not low <= value <= high:
            if value is None:
                return DROP
            raise Mismatch(value, name)
        return value if value or keep_zero else DROP

    return read_integer


def _number(keep_zero: bool) -> Leaf:
    def read_number(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value.__class__ is not float and value.__class__ is not int:
            if value is None:
                return DROP
            raise Mismatch(value, "float64")
        return value if value or keep_zero else DROP

    return read_number


def _boolean(keep_zero: bool) -> Leaf:
    def read_boolean(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value.__class__ is not bool:
            if value is None:
                return DROP
            raise Mismatch(value, "bool")
        return value if value or keep_zero else DROP

    return read_boolean


def _quantity(keep_zero: bool) -> Leaf:
    def read_quantity(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value is None:
            return DROP
        if value.__class__ not in (str, int, float):
            raise Mismatch(value, "resource.Quantity", _NO_QUANTITY)
        try:
            return canonical(value)
        except QuantityError as error:
            raise Mismatch(value, "resource.Quantity", str(error).rpartition(": ")[0]) from None

    return read_quantity


_NO_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def _int_or_string(keep_zero: bool) -> Leaf:
    def read_either(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value.__class__ is str or (value.__class__ is int and -(2**31) <= value < 2**31):
            return value
        if value is None:
            return DROP
        raise Mismatch(value, "int32" if value.__class__ in (int, float) else "string")

    return read_either


@lru_cache(maxsize=1024)
def _time_text(text: str, micro: bool) -> str:
    seconds = parse_time(text)
    return format_micro_time(seconds) if micro else format_time(seconds)


_MICROS = re.compile(r"\.[0-9]{6}(?![0-9])")


def _time(micro: bool) -> Leaf:
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"

    def read_time(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value is None or value == "":
            return DROP
        if value.__class__ is not str:
            raise Mismatch(
                value, "string", f"json: cannot unmarshal {_found(value)} into Go value of type string"
            )
        try:
            kept = _time_text(value, micro)
        except TimeError:
            text = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
            raise Mismatch(value, "v1.Time", text) from None
        if micro and not _MICROS.match(value, 19):
            text = f'parsing time "{value}" as "{layout}": cannot parse "{value[19:]}" as ".000000"'
            raise Mismatch(value, "v1.MicroTime", text)
        return value if kept == value else kept

    return read_time


def _bytes(keep_zero: bool) -> Leaf:
    def read_bytes(value: Any, path: tuple[Any, ...], unknown: list[Any]) -> Any:
        if value is None:
            return DROP
        if value.__class__ is not str:
            raise Mismatch(value, "[]uint8")
        try:
            kept = base64.b64encode(base64.b64decode(value.replace("\n", ""), validate=True)).decode()
        except (binascii.Error, ValueError):
            text = f"illegal base64 data at input byte {_bad_byte(value)}"
            raise Mismatch(value, "[]uint8", text) from None
        return value if kept == value else kept

    return read_bytes


def _bad_byte(text: str) -> int:
    alphabet = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n")
    return next((i for i, char in enumerate(text) if char not in alphabet), len(text) // 4 * 4)


_LEAVES: dict[str, Callable[[bool], Leaf]] = {
    "string": _string,
    "integer": lambda keep: _integer(keep, 64),
    "int32": lambda keep: _integer(keep, 32),
    "int64": lambda keep: _integer(keep, 64),
    "number": _number,
    "boolean": _boolean,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "date-time": lambda keep: _time(micro=False),
    "micro-time": lambda keep: _time(micro=True),
    "byte": _bytes,
}


_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+$")


def canonical(quantity: Quantity) -> str:
    """The usual spelling; raises `QuantityError` for an invalid quantity."""
    return _canonical(quantity if isinstance(quantity, str) else repr(quantity).replace("+", ""))


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    nano = parse(text)
    if nano == 0:
        return "0"
    if text.endswith("i") and abs(nano) >= 1024 * NANO and nano % NANO == 0:
        return _binary(nano // NANO)
    power = -9
    while nano % 1000 == 0 and power < 18:
        nano //= 1000
        power += 3
    if _EXPONENT.search(text):
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL[power]}"


def _binary(amount: int) -> str:
    steps = 0
    while amount % 1024 == 0 and steps < len(_BINARY) - 1:
        amount //= 1024
        steps += 1
    return f"{amount}{_BINARY[steps]}"
