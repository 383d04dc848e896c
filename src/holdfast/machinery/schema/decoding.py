"""Reading an object of a built-in kind as Kubernetes' Go types would.

One walk over the object does what unmarshalling and marshalling it again does there: a value of the
wrong type is an error, unknown fields fall out (and are reported), nulls and empty optional parts
disappear, parts that are always written appear, quantities and times take their usual form. What did
not change is shared with the object that came in.

Types are compiled once into nested functions, so that a plain pod costs a few tens of microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from threading import Lock
from typing import Any

from holdfast.machinery.schema.field_errors import MALFORMED, FieldError, unknown_field
from holdfast.machinery.schema.scalars import DROP, Mismatch, leaf, zero_of
from holdfast.machinery.schema.shapes import JSON_SCHEMA, SCHEMA_OR_OTHER, FieldShape, builtin_shape

Path = tuple[Any, ...]
"""Where we are, innermost first: `(("containers", …), 0)` and so on; () is the top."""
Reader = Callable[[Any, Path, list[Path]], Any]

MOST_UNKNOWN = 100
"""How many unknown fields are reported, as the API server's strict decoder has it."""

_readers: dict[int, Reader] = {}
"""Finished ones, by the identity of their shape."""
_unfinished: dict[int, Reader] = {}
_compiling = Lock()


def read(definition: str, raw: dict[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    """The object as Kubernetes would keep it, and what is wrong with it.

    A malformed object is returned unchanged, with that one problem. Unknown fields are dropped from
    the answer and reported, one problem each, the first hundred of them.
    """
    unknown: list[Path] = []
    reader = reader_of(builtin_shape(definition))
    try:
        result = reader(raw, (), unknown)
    except Mismatch as mismatch:
        return raw, [FieldError(MALFORMED, mismatch.path, mismatch.text())]
    return result, [unknown_field(path_text(path)) for path in unknown]


def reader_of(shape: FieldShape) -> Reader:
    """The compiled reader of a struct, map or list; shapes are few and live as long as we do."""
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
    """Where a custom kind's schema may have a schema, or a list of them, or something simple."""

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
    """What Go makes of a null among the values of a map or the items of a list."""
    return read({}, path, unknown) if shape.kind == "struct" else zero_of(shape)


# Suggestions for unknown fields


_DEEPEST = 8
"""Levels at which a misplaced field is looked for."""


def suggestion(shape: FieldShape, path: str) -> str:
    """A suggestion for an unknown field of an object of this shape: `did you mean nodeName?`,
    or where a field of this name belongs; empty if nothing is like it."""
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
    close = get_close_matches(last, here.fields, n=1)
    if close:
        return f"did you mean {close[0]}?"
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
