"""Decodes mappings into frozen structs and reports all errors together, each with its path.

HoldfastError
└── ConfigError     .problems: [(path, message), …]

The declaration of a struct is the schema: its field names (in camel case) are the known names, its
annotations the types and bounds, its defaults the defaults. This decoder does not stop at the first
error: it adds each to `Problems` and goes on with the default. So further checks of a value are made
only if there is no problem under its path. As in Kubernetes, a field that is null counts as absent.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import inspect as shapes

from holdfast.api.errors import HoldfastError
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_duration, parse_duration

Problem = tuple[str, str]


class ConfigError(HoldfastError):
    """A configuration that cannot be used. `problems` holds (path, message) in reading order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(with_path(*problem) for problem in self.problems))


class Problems:
    """The error list of a configuration, and warnings, which are not errors."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.warnings: list[str] = []

    def add(self, path: str, message: str) -> None:
        self.found.append((path, message))

    def warn(self, path: str, message: str) -> None:
        self.warnings.append(with_path(path, message))

    def raise_if_any(self) -> None:
        if self.found:
            raise ConfigError(self.found)

    def under(self, path: str) -> bool:
        """Whether there is a problem at this path or below it, so that the value is not reliable."""
        inside = (f"{path}.", f"{path}[")
        return any(each == path or each.startswith(inside) for each, _ in self.found)

    def unread_item(self, path: str) -> bool:
        """Whether an item of the list at this path was left out, so that indexes have shifted."""
        starts = f"{path}["
        return any(
            each == path or (each.startswith(starts) and "]" not in each[len(starts) : -1])
            for each, _ in self.found
        )

    def __len__(self) -> int:
        return len(self.found)


def with_path(path: str, message: str) -> str:
    return f"{path}: {message}" if path else message


def child(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def item(path: str, index: object) -> str:
    return f"{path}[{index}]"


def hint(name: object, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or the list of known names; empty if there are none."""
    names = list(known)
    return did_you_mean(str(name), names, f"known: {', '.join(names)}" if names else "", quoted=True)


S = TypeVar("S", bound=msgspec.Struct)

_DURATION = "duration"
_WRONG: Any = object()
_INT32 = 2**31 - 1
_INT64 = 2**63
_LONGEST = _INT64 / 10**9  # seconds in the longest Go duration

Seconds = Annotated[float, msgspec.Meta(ge=0, extra={_DURATION: True})]
"""A duration: a number of seconds, or a string such as `10m`."""
Name = Annotated[str, msgspec.Meta(min_length=1)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=_INT32)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Section(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all structs that are decoded from a mapping."""


def read(cls: type[S], raw: object, path: str, problems: Problems) -> S | None:
    """`raw` decoded as a `cls`; None if it is not a mapping. Check `problems` before using it."""
    value = _read(_shape(cls), raw, path, problems)
    return None if value is _WRONG else cast(S, value)


def write(section: msgspec.Struct) -> dict[str, Any]:
    """The mapping that `read` decodes into this struct; empty values are left out."""
    fields = cast(shapes.StructType, _shape(type(section))).fields
    written = {f.encode_name: _write(f.type, getattr(section, f.name)) for f in fields}
    return {name: value for name, value in written.items() if value not in (None, [], {})}


def described(value: object) -> str:
    """A value as a message shows it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"' if len(value) <= 60 else f'"{value[:57]}..."'
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() | float():
            return "a number out of range" if abs(value) >= _INT64 else str(value)
        case _:
            return f"a {type(value).__name__}"


@cache
def _shape(cls: type[msgspec.Struct]) -> shapes.Type:
    return shapes.type_info(cls)


def _read(shape: shapes.Type, raw: object, path: str, problems: Problems) -> Any:
    match shape:
        case shapes.StructType():
            return _read_struct(shape, raw, path, problems)
        case shapes.VarTupleType(item_type=inner):
            if not isinstance(raw, list | tuple):
                return _wrong("a list", raw, path, problems)
            read_items = (_read(inner, e, item(path, i), problems) for i, e in enumerate(raw))
            return tuple(value for value in read_items if value is not _WRONG)
        case shapes.DictType(value_type=inner):
            if not isinstance(raw, Mapping):
                return _wrong("a mapping", raw, path, problems)
            read_values = {str(k): _read(inner, v, item(path, k), problems) for k, v in raw.items()}
            return {key: value for key, value in read_values.items() if value is not _WRONG}
        case shapes.UnionType(types=types):
            inner, *others = (each for each in types if not isinstance(each, shapes.NoneType))
            if others:
                return _read_choice([inner, *others], raw, path, problems)
            return _read(inner, raw, path, problems)
        case shapes.Metadata(type=shapes.FloatType() as inner, extra=extra) if extra:
            return _read_seconds(inner, raw, path, problems)
        case shapes.AnyType():
            return raw
        case _:
            return _read_scalar(shape, raw, path, problems)


def _read_struct(shape: shapes.StructType, raw: object, path: str, problems: Problems) -> Any:
    if not isinstance(raw, Mapping):
        return _wrong("a mapping", raw, path, problems)
    fields = {field.encode_name: field for field in shape.fields}
    for name in raw:
        if name not in fields:
            problems.add(child(path, name), "unknown field" + hint(name, fields))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        given = raw.get(name)
        if given is None and not field.required:
            continue
        if given is None:
            problems.add(child(path, name), "required")
            value = _WRONG
        else:
            value = _read(field.type, given, child(path, name), problems)
        if value is not _WRONG:
            values[field.name] = value
        elif field.required:
            values[field.name] = None
    return shape.cls(**values)


def _read_choice(among: Sequence[shapes.Type], raw: object, path: str, problems: Problems) -> object:
    """One of some words; or true or false, if that is among the shapes."""
    if isinstance(raw, bool) and any(isinstance(each, shapes.BoolType) for each in among):
        return raw
    words: list[object] = []
    for each in among:
        if isinstance(each, shapes.LiteralType):
            words += each.values
    if not isinstance(raw, bool) and raw in words:
        return raw
    booleans = ["true", "false"] if len(among) > 1 else []
    choices = [*booleans, *(str(word) for word in words)]
    suggestion = did_you_mean(str(raw), choices, quoted=True)
    wanted = " or ".join(choices) if len(choices) < 3 else "one of " + ", ".join(choices)
    problems.add(path, f"expected {wanted}, got {described(raw)}{suggestion}")
    return _WRONG


def _read_scalar(shape: shapes.Type, raw: object, path: str, problems: Problems) -> Any:
    match shape:
        case shapes.BoolType():
            return raw if isinstance(raw, bool) else _wrong("true or false", raw, path, problems)
        case shapes.StrType(min_length=least):
            if not isinstance(raw, str):
                return _wrong("a string", raw, path, problems)
            if least and not raw:
                problems.add(path, "must not be empty")
                return _WRONG
            return raw
        case shapes.LiteralType():
            return _read_choice([shape], raw, path, problems)
        case shapes.IntType():
            if isinstance(raw, bool) or not isinstance(raw, int):
                return _wrong("an integer", raw, path, problems)
            return _bounded(shape, raw, path, problems)
        case shapes.FloatType():
            if not _is_number(raw):
                return _wrong("a number", raw, path, problems)
            return _bounded(shape, raw, path, problems)
    raise TypeError(f"no reader for {shape!r}")  # an error in a declaration, not in a file


def _read_seconds(shape: shapes.FloatType, raw: object, path: str, problems: Problems) -> Any:
    seconds = raw
    if isinstance(raw, str):
        try:
            seconds = parse_duration(raw)
        except ValueError:
            seconds = None
    if not _is_number(seconds) or abs(cast(float, seconds)) > _LONGEST:
        return _wrong("a number of seconds or a duration such as 10m", raw, path, problems)
    value = _bounded(shape, seconds, path, problems)
    return value if value is _WRONG else round(float(value), 9)


def _is_number(raw: object) -> bool:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return False
    return math.isfinite(raw) if isinstance(raw, float) else abs(raw) < _INT64


def _bounded(
    shape: shapes.IntType | shapes.FloatType, value: Any, path: str, problems: Problems
) -> Any:
    low, high = shape.ge, shape.le
    if (low is None or value >= low) and (high is None or value <= high) and -_INT64 <= value < _INT64:
        return value
    if low is not None and high is not None and high < _INT32:
        rule = f"must be between {low} and {high}"
    elif low is not None and value < low:
        rule = f"must be at least {low}"
    else:
        rule = "is too large"
    problems.add(path, f"{rule}, got {described(value)}")
    return _WRONG


def _wrong(expected: str, raw: object, path: str, problems: Problems) -> Any:
    problems.add(path, f"expected {expected}, got {described(raw)}")
    return _WRONG


def _write(shape: shapes.Type, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return write(value)
    match shape:
        case shapes.Metadata(extra=extra) if extra:
            return format_duration(value)
        case shapes.VarTupleType(item_type=inner):
            return [_write(inner, each) for each in value]
        case _:
            return value
