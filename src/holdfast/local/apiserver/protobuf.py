"""Kubernetes' protobuf: request bodies to objects, and the OpenAPI version 2 document.

kubectl sends protobuf for the kinds it knows. Responses are JSON, which every client that sends
protobuf accepts; only the OpenAPI document is also written as protobuf, since kubectl reads no other.

`protobuf_fields.json` has the fields of each message by number: the JSON name ("" for an embedded
message), the type, and whether a zero value is written or omitted. Types: `s` string, `b` boolean,
`i` integer, `d` double, `y` bytes, `!Time` and the like for types with a JSON form of their own, the
name of a message, or a list or map of one of these.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from holdfast.api.errors import HoldfastError
from holdfast.api.times import format_micro_time, format_time
from holdfast.local.store import Raw

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 60
_FIXED64 = 1

Reader = Callable[[Any, int], Any]


class ProtobufError(HoldfastError):
    """A request body that is not protobuf, or of an unknown kind."""


def decode(data: bytes) -> Raw:
    """The object in Kubernetes' envelope. Raises ProtobufError."""
    if not data.startswith(_MAGIC):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = dict(_fields(data[len(_MAGIC) :]))
        said = {number: _text(value, 0) for number, value in _fields(envelope.get(1, b""))}
        api_version, kind = said.get(1, ""), said.get(2, "")
        body = _message(_name(api_version, kind), envelope.get(2, b""), 0)
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError, struct.error) as error:
        raise ProtobufError(f"protobuf: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **body}


def _name(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return "meta.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    package = group.partition(".")[0] or "core"
    name = f"{package}{version}.{kind}"  # of a version whose fields differ
    if name not in _table():
        name = f"{package}.{kind}"
    if name not in _table():
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return name


@cache
def _table() -> dict[str, dict[str, tuple[str, Any, int]]]:
    text = files(__package__).joinpath("protobuf_fields.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, tuple[str, Any, int]]])


@cache
def _readers(name: str) -> dict[int, tuple[str, Reader, bool, str]]:
    """By number: the JSON name, its reader, whether a zero value is kept, and "list" or "map" for a
    repeated field."""
    return {
        int(number): (field, _reader(type), bool(keep), type[0] if isinstance(type, list) else "")
        for number, (field, type, keep) in _table()[name].items()
    }


def _message(name: str, data: bytes, depth: int) -> Raw:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")
    readers = _readers(name)
    built: Raw = {}
    for number, value in _fields(data):
        known = readers.get(number)
        if known is None:
            continue
        field, read, keep, many = known
        if many == "list":
            built.setdefault(field, []).append(read(value, depth))
        elif many == "map":
            entry = dict(_fields(value))
            built.setdefault(field, {})[_text(entry.get(1, b""), 0)] = read(entry.get(2, b""), depth)
        else:
            said = read(value, depth)
            if not field:
                built.update(said)
            elif said is not None and (keep or said not in ("", 0, False)):
                built[field] = said
    return built


def _reader(type: Any) -> Reader:
    if isinstance(type, list):
        return _reader(type[1])
    return _LEAVES.get(type) or (lambda value, depth: _message(type, value, depth + 1))


def _text(value: Any, depth: int) -> str:
    if not isinstance(value, bytes):
        raise ValueError("wrong wireType")
    return value.decode()


def _integer(value: Any, depth: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else int(value)


def _boolean(value: Any, depth: int) -> bool:
    return bool(value)


def _double(value: Any, depth: int) -> float:
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])


def _bytes(value: Any, depth: int) -> str:
    return base64.b64encode(value).decode()


def _quantity(value: Any, depth: int) -> str:
    return _text(dict(_fields(value)).get(1, b"0"), depth)


def _time(value: Any, depth: int) -> str | None:
    parts = dict(_fields(value))
    return format_time(_integer(parts[1], 0)) if 1 in parts else None


def _micro_time(value: Any, depth: int) -> str | None:
    parts = dict(_fields(value))
    return format_micro_time(_integer(parts[1], 0) + parts.get(2, 0) / 1e9) if 1 in parts else None


def _int_or_string(value: Any, depth: int) -> int | str:
    parts = dict(_fields(value))
    return _text(parts.get(3, b""), 0) if parts.get(1) else _integer(parts.get(2, 0), 0)


def _raw_json(value: Any, depth: int) -> Any:
    raw = dict(_fields(value)).get(1, b"")
    return msgspec.json.decode(raw) if raw else None


_LEAVES: dict[str, Reader] = {
    "s": _text,
    "b": _boolean,
    "i": _integer,
    "d": _double,
    "y": _bytes,
    "!Quantity": _quantity,
    "!Time": _time,
    "!MicroTime": _micro_time,
    "!IntOrString": _int_or_string,
    "!RawExtension": _raw_json,
    "!FieldsV1": _raw_json,
}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and undecoded values of a message."""
    if not isinstance(data, bytes):
        raise ValueError("wrong wireType")
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(data, at)
                if at + size > end:
                    raise ValueError("unexpected EOF")
                yield tag >> 3, data[at : at + size]
                at += size
            case 1 | 5 as width:
                size = 8 if width == _FIXED64 else 4
                if at + size > end:
                    raise ValueError("unexpected EOF")
                yield tag >> 3, int.from_bytes(data[at : at + size], "little")
                at += size
            case other:
                raise ValueError(f"illegal wireType {other}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("integer overflow")


OPENAPI_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The media type that clients accept; `@` is not allowed in the Content-Type of a response."""
OPENAPI_CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def encode_openapi(document: Raw) -> bytes:
    """The document with what kubectl reads of it: the definitions, by which it checks manifests of
    `kind: List` and of kinds that the server does not have."""
    info = document["info"]
    return (
        _string(1, document["swagger"])
        + _message_field(2, _string(1, info["title"]) + _string(2, info["version"]))
        + _message_field(8, b"")
        + _message_field(9, _named_schemas(document["definitions"]))
    )


def _named_schemas(schemas: Raw) -> bytes:
    return b"".join(
        _message_field(1, _string(1, name) + _message_field(2, _encoded_schema(schema)))
        for name, schema in schemas.items()
    )


def _encoded_schema(schema: Raw) -> bytes:
    parts = [
        _string(1, schema.get("$ref", "")),
        _string(2, schema.get("format", "")),
        _string(4, schema.get("description", "")),
        *(_string(19, each) for each in schema.get("required") or ()),
    ]
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        parts.append(_message_field(21, _message_field(1, _encoded_schema(values))))
    if schema.get("type"):
        parts.append(_message_field(22, _string(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(_message_field(23, _message_field(1, _encoded_schema(schema["items"]))))
    if schema.get("properties"):
        parts.append(_message_field(25, _named_schemas(schema["properties"])))
    for name, value in schema.items():
        if name.startswith("x-"):
            said = msgspec.json.encode(value).decode()
            parts.append(_message_field(31, _string(1, name) + _message_field(2, _string(2, said))))
    return b"".join(parts)


def _string(number: int, text: str) -> bytes:
    return _message_field(number, text.encode()) if text else b""


def _message_field(number: int, content: bytes) -> bytes:
    return _encoded_varint(number << 3 | 2) + _encoded_varint(len(content)) + content


def _encoded_varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
