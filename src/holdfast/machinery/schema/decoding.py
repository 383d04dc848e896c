"""Strict decoding of built-in kinds, as Kubernetes' Go types do it; suggestions for unknown fields.

One walk over the object does what unmarshalling and marshalling it does in Go: a value of the wrong
type is an error, unknown fields are dropped and reported, nulls and empty optional parts are dropped,
parts that are always written are added, quantities and times take their canonical form. Unchanged parts
are shared with the object that was given. Types are compiled once into nested functions: a plain pod
takes a few tens of microseconds.

Typed views skip unknown fields, so JSON values in annotations are checked by `find_unknown` beside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from threading import Lock
from typing import Any

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.api.similar_names import did_you_mean
from holdfast.machinery.schema.field_errors import MALFORMED, FieldError, unknown_field
from holdfast.machinery.schema.scalars import DROP, Mismatch, leaf, zero_of
from holdfast.machinery.schema.shapes import JSON_SCHEMA, SCHEMA_OR_OTHER, FieldShape, builtin_shape

Path = tuple[Any, ...]
"""The path of a part, innermost step last in nested pairs: `(((), "containers"), 0)`; () is the top."""
Reader = Callable[[Any, Path, list[Path]], Any]

MOST_UNKNOWN = 100
"""How many unknown fields are reported: the limit of the API server's strict decoder."""

_readers: dict[int, Reader] = {}
"""Compiled readers by the identity of their shape."""
_unfinished: dict[int, Reader] = {}
_compiling = Lock()


def read(definition: str, raw: dict[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    """The decoded object, and its errors.

    A malformed object is returned as it was given, with one error. Unknown fields are dropped and
    reported, one error each, the first hundred of them.
    """
    unknown: list[Path] = []
    reader = reader_of(builtin_shape(definition))
    try:
        result = reader(raw, (), unknown)
    except Mismatch as mismatch:
        return raw, [FieldError(MALFORMED, mismatch.path, mismatch.text())]
    return result, [unknown_field(path_text(path)) for path in unknown]


def reader_of(shape: FieldShape) -> Reader:
    """The compiled reader of a struct, map or list; shapes are few and are never freed."""
    reader = _readers.get(id(shape))
    if reader is None:
        with _compiling:
            reader = _unfinished[id(shape)] = _compile(shape, keep_zero=True)
            _readers.update(_unfinished)
    return reader


def path_text(path: Path) -> str:
    """`spec.containers[0].image`."""
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


def _go_path(path: Path) -> str:
    """The same without indexes, as Go's decoder gives it."""
    steps: list[str] = []
    while path:
        path, step = path
        if not isinstance(step, int):
            steps.append(step)
    return ".".join(reversed(steps))


def _compile(shape: FieldShape, keep_zero: bool) -> Reader:
    if shape.kind == "struct":
        return _struct(shape)
    if shape.kind == "map":
        return _map(shape, keep_zero)
    if shape.kind == "list":
        return _list(shape, keep_zero)
    if shape.format == SCHEMA_OR_OTHER:
        return _schema_or_other()
    return leaf(shape, keep_zero)


def _schema_or_other() -> Reader:
    """A field of a JSON schema that is a schema, a list of schemas or a plain value."""

    def read_either(value: Any, path: Path, unknown: list[Path]) -> Any:
        if value is None:
            return DROP
        if value.__class__ is dict:
            return reader_of(builtin_shape(JSON_SCHEMA))(value, path, unknown)
        return value

    return read_either


def _struct(shape: FieldShape) -> Reader:
    existing = _unfinished.get(id(shape))
    if existing is not None:
        return existing
    fields: dict[str, Reader] = {}
    short_name = shape.name.rpartition(".")[2]
    go_type = f"v1.{short_name}"
    always: list[tuple[str, Any]] = []
    made: list[tuple[str, Reader]] = []

    def read_struct(value: Any, path: Path, unknown: list[Path]) -> Any:
        if value.__class__ is not dict:
            if value is None:
                return DROP
            raise Mismatch(value, go_type)
        out = value
        key = ""
        try:
            for key, item in value.items():
                reader = fields.get(key)
                if reader is None:
                    if len(unknown) < MOST_UNKNOWN:
                        unknown.append((path, key))
                    new = DROP
                else:
                    new = reader(item, (path, key), unknown)
                if new is not item:
                    if out is value:
                        out = dict(value)
                    if new is DROP:
                        del out[key]
                    else:
                        out[key] = new
        except Mismatch as mismatch:
            if not mismatch.field:
                mismatch.field = f"{short_name}.{_go_path((path, key))}"
                mismatch.path = mismatch.path or path_text((path, key))
            raise
        for name, zero in always:
            if name not in out:
                if out is value:
                    out = dict(value)
                out[name] = zero
        for name, make in made:
            if name not in out:
                if out is value:
                    out = dict(value)
                out[name] = make({}, path, unknown)
        return out

    _unfinished[id(shape)] = read_struct
    forced = {name.removesuffix("?") for name in shape.always}
    for name, part in shape.fields.items():
        fields[name] = _compile(part, keep_zero=name in shape.zeroes or name in forced)
    for name in shape.always:
        if name.endswith("?"):
            always.append((name[:-1], None))
        elif shape.fields[name].kind == "struct":
            made.append((name, fields[name]))
        else:
            always.append((name, zero_of(shape.fields[name])))
    return read_struct


def _map(shape: FieldShape, keep_zero: bool) -> Reader:
    assert shape.values is not None
    values = shape.values
    read_value = _compile(values, keep_zero=True)
    go_type = "map[string]string" if values.kind == "string" else "map[string]interface {}"

    def read_map(value: Any, path: Path, unknown: list[Path]) -> Any:
        if value.__class__ is not dict:
            if value is None:
                return DROP
            raise Mismatch(value, go_type)
        if not value:
            return value if keep_zero else DROP
        out = value
        key = ""
        try:
            for key, item in value.items():
                new = read_value(item, (path, key), unknown)
                if new is not item:
                    if out is value:
                        out = dict(value)
                    out[key] = _zero(values, read_value, (path, key), unknown) if new is DROP else new
        except Mismatch as mismatch:
            mismatch.path = mismatch.path or f"{path_text(path)}[{key}]"
            raise
        return out

    return read_map


def _list(shape: FieldShape, keep_zero: bool) -> Reader:
    assert shape.items is not None
    items = shape.items
    read_item = _compile(items, keep_zero=True)
    go_type = f"[]v1.{items.name.rpartition('.')[2]}" if items.name else "[]string"

    def read_list(value: Any, path: Path, unknown: list[Path]) -> Any:
        if value.__class__ is not list:
            if value is None:
                return DROP
            raise Mismatch(value, go_type)
        if not value:
            # A list that is always written is written as null when there is nothing in it.
            return None if keep_zero else DROP
        out = value
        i = 0
        try:
            for i, item in enumerate(value):
                new = read_item(item, (path, i), unknown)
                if new is not item:
                    if out is value:
                        out = list(value)
                    out[i] = _zero(items, read_item, (path, i), unknown) if new is DROP else new
        except Mismatch as mismatch:
            mismatch.path = mismatch.path or path_text((path, i))
            raise
        return out

    return read_list


def _zero(shape: FieldShape, read: Reader, path: Path, unknown: list[Path]) -> Any:
    """The zero value that Go decodes a null in a map or list to."""
    return read({}, path, unknown) if shape.kind == "struct" else zero_of(shape)


_DEEPEST = 8
"""Levels at which a misplaced field is looked for."""


def suggestion(shape: FieldShape, path: str) -> str:
    """A hint at the intended field of an unknown one: `did you mean nodeName?`, or where a field of
    this name belongs; empty if no field is similar."""
    *way, last = _steps(path)
    here: FieldShape = shape
    for step in way:
        inner = here.items if step.startswith("[") else here.field(step)
        if inner is None:
            return ""
        here = inner
    parent = path.removesuffix(last).removesuffix(".")
    for name, part in here.fields.items():
        if last in part.fields:
            return f"it belongs to {parent}.{name}".replace(" .", " ")
    if close := did_you_mean(last, here.fields):
        return close.removeprefix("; ")
    homes = [place for place, name in _places(shape, "") if name == last]
    if not path.startswith("status"):
        homes = [place for place in homes if not place.startswith("status")]
    home = min(homes, key=lambda place: place.count("."), default=None)
    return f"it belongs to {home or 'the top level'}" if home is not None else ""


def _steps(path: str) -> list[str]:
    return re.findall(r"\[\d+\]|[^.\[\]]+", path)


def _places(shape: FieldShape, path: str) -> Iterator[tuple[str, str]]:
    """Every field of the structs in a shape, with the path of the struct."""
    if path.count(".") >= _DEEPEST:
        return
    for name, part in shape.fields.items():
        yield path, name
        inner = part.items if part.kind == "list" and part.items is not None else part
        if inner.kind == "struct" and (not inner.name or inner.name != shape.name):
            yield from _places(inner, f"{path}.{name}" if path else name)


def find_unknown(
    raw: Any, type: type[msgspec.Struct], *, mistakes_only: bool = False
) -> Iterator[InvalidObject]:
    """The fields of a JSON value that a struct type does not have, with a suggestion. With
    `mistakes_only`, names that resemble no known one are accepted: the reader of the annotation may be
    newer than this version."""
    shape = _struct_shape(type)
    for path, known in _unknown_in(raw, shape, ""):
        hint = suggestion(shape, path)
        if hint.startswith("it belongs"):
            yield InvalidObject("", path, f"unknown field here; {hint}")
        elif hint:
            yield InvalidObject("", path, f"unknown field; {hint}")
        elif not mistakes_only:
            names = f"; known: {', '.join(known)}" if len(known) <= 12 else ""
            yield InvalidObject("", path, f"unknown field{names}")


def _unknown_in(raw: Any, shape: FieldShape, path: str) -> Iterator[tuple[str, list[str]]]:
    """The paths of unknown fields, with the fields that are known there."""
    if isinstance(raw, list) and shape.items is not None:
        for i, item in enumerate(raw):
            yield from _unknown_in(item, shape.items, f"{path}[{i}]")
    if not isinstance(raw, Mapping) or shape.kind != "struct":
        return
    for key, value in raw.items():
        where = f"{path}.{key}" if path else str(key)
        inner = shape.fields.get(key)
        if inner is None:
            yield where, [*shape.fields]
        else:
            yield from _unknown_in(value, inner, where)


@cache
def _struct_shape(type: type[msgspec.Struct]) -> FieldShape:
    info = msgspec.inspect.type_info(type)
    assert isinstance(info, msgspec.inspect.StructType)
    shape = FieldShape("struct")
    shape.name = type.__name__
    shape.fields = {field.encode_name: _shape_of(field.type) for field in info.fields}
    return shape


def _shape_of(type: msgspec.inspect.Type) -> FieldShape:
    if isinstance(type, msgspec.inspect.UnionType):
        shapes = map(_shape_of, type.types)
        return next((shape for shape in shapes if shape.kind != "any"), FieldShape("any"))
    if isinstance(type, msgspec.inspect.ListType):
        shape = FieldShape("list")
        shape.items = _shape_of(type.item_type)
        return shape
    return (
        _struct_shape(type.cls) if isinstance(type, msgspec.inspect.StructType) else FieldShape("any")
    )
