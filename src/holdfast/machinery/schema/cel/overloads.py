"""Types of CEL, and the overloads of functions.

A function has overloads. The checker chooses among them by the static types of an expression, where
`dyn` fits everything; the evaluator by the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.machinery.schema.cel.syntax import MAX_INT, MAX_UINT, MIN_INT, Uint
from holdfast.machinery.schema.cel.values import CelRuntimeError, type_name

Type = Any
"""The name of a type, or a tuple of `list`, `map` or `optional_type` and the types of its parts."""
DYN, BOOL, INT, UINT, DOUBLE = "dyn", "bool", "int", "uint", "double"
STRING, BYTES, NULL = "string", "bytes", "null_type"
QUANTITY, SEMVER, TYPE = "kubernetes.Quantity", "kubernetes.Semver", "type"
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
URL, IP, CIDR, FORMAT = "kubernetes.URL", "net.IP", "net.CIDR", "kubernetes.NamedFormat"
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


def failed(why: str) -> CelRuntimeError:
    return CelRuntimeError(why)


def whole(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise failed("integer overflow")
    return int(value)


def unsigned(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        raise failed("unsigned integer overflow")
    return Uint(value)


def function(takes: Sequence[Type], returns: Type, run: Callable[..., Any]) -> Overload:
    return Overload(False, tuple(takes), returns, run)


def method(takes: Sequence[Type], returns: Type, run: Callable[..., Any]) -> Overload:
    return Overload(True, tuple(takes), returns, run)


Functions = dict[str, list[Overload]]
"""Overloads by the name of a function."""


def merged(*libraries: Functions) -> Functions:
    """The functions of several libraries; a name may occur in more than one."""
    found: Functions = {}
    for library in libraries:
        for name, overloads in library.items():
            found[name] = found.get(name, []) + overloads
    return found
