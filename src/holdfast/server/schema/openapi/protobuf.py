"""The version 2 document in protobuf, the only form older clients take it in.

The message types are those of the project gnostic (`openapi.v2`); the numbers below are their fields.
What has no field of its own, such as the `x-kubernetes-…` words, is put down as JSON text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec

Json = dict[str, Any]

_TEXT = 2
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_SCHEMA_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_SCHEMA_DOUBLES = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_SCHEMA_FLAGS = {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "uniqueItems": 16}
_SCHEMA_COUNTS = {
    "maxLength": 11,
    "minLength": 12,
    "maxItems": 14,
    "minItems": 15,
    "maxProperties": 17,
    "minProperties": 18,
}


def openapi_v2_protobuf(document: Json) -> bytes:
    """The document of `openapi_v2`, encoded."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    paths = b"".join(
        _part(2, _text(1, path) + _part(2, _path_item(item)))
        for path, item in document["paths"].items()
    )
    return (
        _text(1, document["swagger"])
        + _part(2, info)
        + _part(8, paths)
        + _part(9, _named_schemas(document["definitions"]))
    )


def _path_item(item: Json) -> bytes:
    methods = (
        _part(number, _operation(item[name])) for name, number in _METHODS.items() if name in item
    )
    parameters = (_part(9, _parameter(parameter)) for parameter in item.get("parameters", ()))
    return b"".join([*methods, *parameters])


def _operation(operation: Json) -> bytes:
    answers = b"".join(
        _part(1, _text(1, code) + _part(2, _part(1, _answer(answer))))
        for code, answer in operation["responses"].items()
    )
    return b"".join(
        [
            _text(5, operation["operationId"]),
            *(_text(6, media) for media in operation["produces"]),
            *(_text(7, media) for media in operation["consumes"]),
            *(_part(8, _parameter(parameter)) for parameter in operation["parameters"]),
            _part(9, answers),
            _extensions(13, operation),
        ]
    )


def _answer(answer: Json) -> bytes:
    return _text(1, answer["description"]) + _part(2, _part(1, _schema(answer["schema"])))


def _parameter(parameter: Json) -> bytes:
    """One of three kinds, each wrapped in what says which it is."""
    if parameter["in"] == "body":
        body = _text(2, parameter["name"]) + _text(3, "body") + _flag(4, True)
        return _part(1, _part(1, body + _part(5, _schema(parameter["schema"]))))
    common = _flag(1, parameter.get("required", False)) + _text(2, parameter["in"])
    common += _text(4, parameter["name"])
    if parameter["in"] == "query":
        inner = _part(3, common + _text(6, parameter["type"]) + _flag(20, True))
    else:
        inner = _part(4, common + _text(5, parameter["type"]) + _flag(19, True))
    return _part(1, _part(2, inner))


def _named_schemas(schemas: Json) -> bytes:
    return b"".join(
        _part(1, _text(1, name) + _part(2, _schema(schema))) for name, schema in schemas.items()
    )


def _schema(schema: Json) -> bytes:
    written: list[bytes] = []
    for word, value in schema.items():
        if word in _SCHEMA_TEXTS:
            written.append(_text(_SCHEMA_TEXTS[word], value))
        elif word in _SCHEMA_DOUBLES:
            written.append(_tag(_SCHEMA_DOUBLES[word], 1) + struct.pack("<d", value))
        elif word in _SCHEMA_FLAGS:
            written.append(_flag(_SCHEMA_FLAGS[word], value))
        elif word in _SCHEMA_COUNTS:
            written.append(_tag(_SCHEMA_COUNTS[word], 0) + _varint(value))
        elif word in _SCHEMA_PARTS:
            written.append(_SCHEMA_PARTS[word](value))
    written.append(_extensions(31, schema))
    return b"".join(written)


def _additional(value: Any) -> bytes:
    inner = _part(1, _schema(value)) if isinstance(value, dict) else _flag(2, bool(value))
    return _part(21, inner)


_SCHEMA_PARTS: dict[str, Any] = {
    "required": lambda names: b"".join(_text(19, name) for name in names),
    "enum": lambda values: b"".join(_part(20, _any(value)) for value in values),
    "additionalProperties": _additional,
    "type": lambda name: _part(22, _text(1, name)),
    "items": lambda items: _part(23, _part(1, _schema(items))),
    "allOf": lambda parts: b"".join(_part(24, _schema(part)) for part in parts),
    "properties": lambda fields: _part(25, _named_schemas(fields)),
}


def _extensions(number: int, holder: Json) -> bytes:
    found: Iterable[tuple[str, Any]] = (
        (word, value) for word, value in holder.items() if word.startswith("x-")
    )
    return b"".join(_part(number, _text(1, word) + _part(2, _any(value))) for word, value in found)


def _any(value: Any) -> bytes:
    return _text(2, msgspec.json.encode(value).decode() + "\n")


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _part(number: int, content: bytes) -> bytes:
    return _tag(number, _TEXT) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode()) if text else b""


def _flag(number: int, value: bool) -> bytes:
    return _tag(number, 0) + b"\x01" if value else b""
