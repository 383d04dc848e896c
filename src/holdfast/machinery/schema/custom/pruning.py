"""Custom objects read by their schema: pruning of unknown fields and nulls, then defaults."""

from __future__ import annotations

from typing import Any

from holdfast.machinery.schema import decoding
from holdfast.machinery.schema.field_errors import MALFORMED, FieldError, quoted, unknown_field
from holdfast.machinery.schema.scalars import Mismatch
from holdfast.machinery.schema.shapes import META, builtin_shape
from holdfast.machinery.schema.types import ResourceType

Raw = dict[str, Any]
Schema = dict[str, Any]

_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_OBJECT = ("apiVersion", "kind", "metadata")


def read(type: ResourceType, raw: Raw) -> tuple[Raw, list[FieldError]]:
    """The object without the fields that its schema lacks, and the malformed and unknown fields."""
    unknown: list[str] = []
    try:
        metadata, extra = _metadata(raw.get("metadata") or {}, "metadata")
        rest = {key: value for key, value in raw.items() if key not in _OBJECT}
        read = _Reader(unknown).part(type.schema or _OPEN, rest, "")
    except Mismatch as mismatch:
        return raw, [FieldError(MALFORMED, mismatch.path, mismatch.text())]
    head = {key: raw[key] for key in ("apiVersion", "kind") if key in raw}
    reported = [*extra, *sorted(unknown)][: decoding.MOST_UNKNOWN]
    problems = [unknown_field(path) for path in reported]
    return {**head, "metadata": metadata, **read}, problems


def unknown_in(schema: Schema, value: Any) -> list[str]:
    """The fields of a value that a schema would prune."""
    unknown: list[str] = []
    _Reader(unknown).part(schema, value, "")
    return unknown


def _metadata(raw: Any, path: str) -> tuple[Raw, list[str]]:
    found: list[decoding.Path] = []
    try:
        read = decoding.reader_of(builtin_shape(META + "ObjectMeta"))(raw, (), found)
    except Mismatch as mismatch:
        mismatch.path = f"{path}.{mismatch.path}".removesuffix(".")
        raise
    return read, [f"{path}.{decoding.path_text(inner)}" for inner in found]


class _Reader:
    def __init__(self, unknown: list[str]) -> None:
        self.unknown = unknown

    def part(self, schema: Schema, value: Any, path: str, keep_all: bool = False) -> Any:
        """A part of the object; `keep_all` is inherited from a part that keeps unknown fields."""
        if value.__class__ is dict:
            return self._map(schema, value, path, keep_all)
        if value.__class__ is list:
            items = schema.get("items")
            inner = items if isinstance(items, dict) else _OPEN
            return [
                self.part(inner, item, f"{path}[{i}]", keep_all and inner is _OPEN)
                for i, item in enumerate(value)
            ]
        if value.__class__ is float and value.is_integer():
            return int(value)
        return value

    def _map(self, schema: Schema, value: Raw, path: str, keep_all: bool) -> Raw:
        embedded = schema.get("x-kubernetes-embedded-resource") is True
        fields = schema.get("properties") or {}
        values = schema.get("additionalProperties")
        keep = keep_all or schema.get("x-kubernetes-preserve-unknown-fields") is True
        result: Raw = {}
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if embedded and key in _OBJECT:
                result[key] = self._embedded(key, item, where)
                continue
            inner = fields.get(key)
            if inner is None and isinstance(values, dict):
                inner = values
            if inner is None and not keep and values is not True:
                self.unknown.append(where)
                continue
            if item is None and inner is not None and not _takes_null(inner):
                if "default" in inner or key in fields:
                    continue
                result[key] = item
                continue
            result[key] = self.part(inner if inner is not None else _OPEN, item, where, inner is None)
        return result

    def _embedded(self, key: str, item: Any, where: str) -> Any:
        if key != "metadata" or item.__class__ is not dict:
            return item
        try:
            metadata, extra = _metadata(item, where)
        except Mismatch as mismatch:
            text = f"{where}: Invalid value: {quoted(item)}: {mismatch.text()}"
            raise Mismatch(item, "", text) from None
        self.unknown.extend(extra)
        return metadata


def _takes_null(schema: Schema) -> bool:
    return bool(schema.get("nullable")) or (
        "type" not in schema and not schema.get("x-kubernetes-int-or-string")
    )


def defaulted(type: ResourceType, raw: Raw) -> Raw:
    """The object with the defaults of its schema; the same object when there are none to add."""
    if type.schema is None:
        return raw
    filled: Raw = _filled(type.schema, raw)
    return filled


def _filled(schema: Schema, value: Any) -> Any:
    if value.__class__ is dict:
        return _filled_map(schema, value)
    if value.__class__ is list:
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        filled = [_given(items, item) for item in value]
        return value if all(map(_is, filled, value)) else filled
    return value


def _filled_map(schema: Schema, value: Raw) -> Raw:
    result = value
    fields = schema.get("properties") or {}
    values = schema.get("additionalProperties")
    for name, part in fields.items():
        if name not in value:
            if "default" not in part:
                continue
            new = _filled(part, part["default"])
        else:
            new = _given(part, value[name])
            if new is value[name]:
                continue
        if result is value:
            result = dict(value)
        result[name] = new
    if isinstance(values, dict):
        for name, item in value.items():
            if name not in fields:
                new = _given(values, item)
                if new is not item:
                    if result is value:
                        result = dict(value)
                    result[name] = new
    return result


def _given(schema: Schema, item: Any) -> Any:
    """A null that the schema does not allow counts as an absent value."""
    if item is None and "default" in schema and not schema.get("nullable"):
        item = schema["default"]
    return _filled(schema, item)


def _is(a: Any, b: Any) -> bool:
    return a is b
