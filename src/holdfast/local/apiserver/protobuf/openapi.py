"""The OpenAPI version 2 document as protobuf, the only form in which kubectl takes it.

Only what it reads there is written: the definitions, for checking manifests on the client's side. It
does that for a `kind: List`, and for kinds the server does not have, before it says so.
"""

from __future__ import annotations

from typing import Any

import msgspec

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""As it is asked for; an answer cannot be called that, since `@` has no place in a media type."""
ANSWER_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

Raw = dict[str, Any]


def encode_document(document: Raw) -> bytes:
    info = document["info"]
    return (
        _text(1, document["swagger"])
        + _part(2, _text(1, info["title"]) + _text(2, info["version"]))
        + _part(8, b"")
        + _part(9, _named(document["definitions"]))
    )


def _named(schemas: Raw) -> bytes:
    return b"".join(
        _part(1, _text(1, name) + _part(2, _schema(schema))) for name, schema in schemas.items()
    )


def _schema(schema: Raw) -> bytes:
    parts = [
        _text(1, schema.get("$ref", "")),
        _text(2, schema.get("format", "")),
        _text(4, schema.get("description", "")),
        *(_text(19, each) for each in schema.get("required") or ()),
    ]
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        parts.append(_part(21, _part(1, _schema(values))))
    if schema.get("type"):
        parts.append(_part(22, _text(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(_part(23, _part(1, _schema(schema["items"]))))
    if schema.get("properties"):
        parts.append(_part(25, _named(schema["properties"])))
    for name, value in schema.items():
        if name.startswith("x-"):
            said = msgspec.json.encode(value).decode()
            parts.append(_part(31, _text(1, name) + _part(2, _text(2, said))))
    return b"".join(parts)


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode()) if text else b""


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
