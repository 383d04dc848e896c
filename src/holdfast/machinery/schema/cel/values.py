"""Values of CEL, and their equality and order.

| CEL | Python |
|---|---|
| bool, string, bytes, null, double | bool, str, bytes, None, float |
| int, uint | int, Uint |
| list, map | list, dict |
| timestamp, duration | TimestampValue, DurationValue |
| Quantity, Semver | QuantityValue, SemverValue |
| URL, IP, CIDR, named format | UrlValue, AddressValue, NetworkValue, FormatValue |
| optional | OptionalValue |
| type | TypeValue |

Numbers of different types compare by value; other values of different types are unequal and have no
order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from holdfast.api.errors import HoldfastError
from holdfast.machinery.schema.cel.syntax import Uint

NO_OVERLOAD = "no such overload"


class CelRuntimeError(HoldfastError):
    """An expression that cannot be evaluated on some values."""


@dataclass(frozen=True, slots=True)
class QuantityValue:
    nano: int


@dataclass(frozen=True, slots=True)
class TimestampValue:
    nano: int
    """Nanoseconds since 1970."""


@dataclass(frozen=True, slots=True)
class DurationValue:
    nano: int


@dataclass(frozen=True, slots=True)
class UrlValue:
    scheme: str
    host: str
    """With the port."""
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class AddressValue:
    """An IP address."""

    version: int
    number: int

    @property
    def bits(self) -> int:
        return 32 if self.version == 4 else 128


@dataclass(frozen=True, slots=True)
class NetworkValue:
    """A CIDR; the address may have bits that the mask does not cover."""

    address: AddressValue
    length: int


@dataclass(frozen=True, slots=True)
class FormatValue:
    """A named format of strings."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeValue:
    name: str


@dataclass(frozen=True, slots=True)
class OptionalValue:
    present: bool
    value: Any = None


NOTHING = OptionalValue(False)


class DomainMap(dict[str, Any]):
    """`device.attributes` and `device.capacity`: a domain that a device lacks is an empty map."""


_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SemverValue:
    """A semantic version. Its build metadata counts neither for equality nor for order."""

    numbers: tuple[int, int, int]
    prerelease: tuple[tuple[int, int, str], ...]
    """Its identifiers as they sort; a version without any follows those with some."""

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.numbers, not self.prerelease, self.prerelease)


@lru_cache(maxsize=4096)
def semver(text: str) -> SemverValue | None:
    """The version, None if the text is none."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        return None
    major, minor, patch = (int(found[i]) for i in (1, 2, 3))
    parts = [] if found[4] is None else found[4].split(".")
    prerelease = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return SemverValue((major, minor, patch), prerelease)


def normalized_version(text: str) -> str:
    """A version without a leading `v`, with three numbers and no leading zeros."""
    text = text.removeprefix("v")
    cut = min((at for at in (text.find("-"), text.find("+")) if at >= 0), default=len(text))
    numbers, rest = text[:cut].split("."), text[cut:]
    if len(numbers) < 3 and not rest:
        numbers += ["0"] * (3 - len(numbers))
    return ".".join(number.lstrip("0") or "0" if number else "" for number in numbers) + rest


_TYPES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    DomainMap: "map",
    QuantityValue: "kubernetes.Quantity",
    SemverValue: "kubernetes.Semver",
    TimestampValue: "google.protobuf.Timestamp",
    DurationValue: "google.protobuf.Duration",
    UrlValue: "kubernetes.URL",
    AddressValue: "net.IP",
    NetworkValue: "net.CIDR",
    FormatValue: "kubernetes.NamedFormat",
    OptionalValue: "optional_type",
    TypeValue: "type",
}


def type_name(value: Any) -> str:
    return _TYPES[value.__class__]


def is_number(value: Any) -> bool:
    return value.__class__ in (int, Uint, float)


def equal(one: Any, other: Any) -> bool:
    if is_number(one) and is_number(other):
        return bool(one == other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            key in other and equal(value, other[key]) for key, value in one.items()
        )
    if one.__class__ is not other.__class__:
        return False
    if isinstance(one, OptionalValue):
        return one.present == other.present and (not one.present or equal(one.value, other.value))
    return bool(one == other)


def compare(one: Any, other: Any) -> int:
    """Negative, zero or positive, as for `<`; raises CelRuntimeError for values without an
    order. A NaN compares as larger."""
    if one.__class__ is other.__class__ and one.__class__ in (TimestampValue, DurationValue):
        one, other = one.nano, other.nano
    if not (is_number(one) and is_number(other)) and (
        one.__class__ is not other.__class__ or one.__class__ not in (bool, str, bytes)
    ):
        raise CelRuntimeError(NO_OVERLOAD)
    if one == other:
        return 0
    return -1 if one < other else 1
