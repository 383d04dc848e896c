"""From protobuf to the object JSON would have said."""

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
    """Not protobuf, or not of a kind known."""


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
    group = api_version.rpartition("/")[0]
    name = f"{group.partition('.')[0] or 'core'}.{kind}"
    if name not in _table():
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return name


@cache
def _table() -> dict[str, dict[str, tuple[str, Any, int]]]:
    text = files(__package__).joinpath("fields.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, tuple[str, Any, int]]])


@cache
def _readers(name: str) -> dict[int, tuple[str, Reader, bool, str]]:
    """By number: the JSON name, how to read it, whether a zero is said, and whether it is one of
    many."""
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
    """Numbers and values as they stand on the wire."""
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
