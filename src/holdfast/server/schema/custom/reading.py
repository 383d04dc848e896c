"""Reading a custom object: pruning, nulls, and the metadata every object has."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema import decoding
from holdfast.server.schema.definitions import META
from holdfast.server.schema.leaves import Mismatch
from holdfast.server.schema.problems import MALFORMED, Problem, shown, unknown_field
from holdfast.server.schema.shapes import builtin_shape
from holdfast.server.schema.types import ResourceType

Raw = dict[str, Any]
Schema = dict[str, Any]

_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_OBJECT = ("apiVersion", "kind", "metadata")


def read(type: ResourceType, raw: Raw) -> tuple[Raw, list[Problem]]:
    """The object without what its schema does not know, and what was malformed or unknown."""
    unknown: list[str] = []
    try:
        metadata, extra = _metadata(raw.get("metadata") or {}, "metadata")
        rest = {key: value for key, value in raw.items() if key not in _OBJECT}
        read = _Reader(unknown).part(type.schema or _OPEN, rest, "")
    except Mismatch as mismatch:
        return raw, [Problem(MALFORMED, mismatch.field, mismatch.text())]
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
    read = decoding.reader_of(builtin_shape(META + "ObjectMeta"))(raw, (), found)
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
            text = f"{where}: Invalid value: {shown(item)}: {mismatch.text()}"
            raise Mismatch(item, "", text) from None
        self.unknown.extend(extra)
        return metadata


def _takes_null(schema: Schema) -> bool:
    return bool(schema.get("nullable")) or (
        "type" not in schema and not schema.get("x-kubernetes-int-or-string")
    )
