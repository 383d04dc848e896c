"""Request bodies: JSON, YAML or protobuf, read within limits.

No body exhausts the machine: it has at most 3 MiB and 200 levels, and what YAML aliases expand to is
bounded. Of several YAML documents the first is read. Only requests with the token are read.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections import Counter
from typing import Any

import msgspec
from aiohttp import web

from holdfast.api.documents import BadFileError, read_first
from holdfast.api.errors import HoldfastError
from holdfast.local.apiserver import protobuf
from holdfast.machinery.status import StatusError, bad_request, too_large
from holdfast.serving.limits import BODY_BYTES, REQUEST_SECONDS

MAX_DEPTH = 200

_POSITION = re.compile(r" \(byte (\d+)\)$")
_NOT_JSON = "couldn't get version/kind; json parse error: "
_GO_TYPES = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


class _TooDeepError(HoldfastError):
    pass


class Body:
    """What a client sent, and the text it was read from if that was JSON."""

    __slots__ = ("_data", "_keys", "_kind", "value")

    def __init__(self, value: Any, data: bytes = b"", kind: str = "", keys: int = 0) -> None:
        self.value = value
        self._data = data
        self._kind = kind
        self._keys = keys

    @property
    def colons(self) -> int:
        """How many keys the text has at most; two texts of one value have the same number, unless one
        gives a key twice."""
        return self._data.count(b'":') + self._data.count(b'" :')

    def lacks(self, field: str) -> StatusError:
        """Checks that a custom object has kind and apiVersion."""
        text = self._data.decode(errors="replace") or json.dumps(self.value)
        why = f"Object '{field}' is missing in '{text}'"
        return _unrecognized(self._kind, why, text.encode())

    def duplicates(self) -> list[str]:
        """Keys that were given twice, as paths; the last one counted."""
        # Colons inside of strings can make the count too large, never too small, and then the slow
        # way finds nothing.
        return _duplicates(self._data) if self._data and self.colons != self._keys else []


def media_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def read_object(data: bytes, content_type: str, kind: str) -> Body:
    """The body of a request that carries an object of a kind. Raises StatusError 400 or 415."""
    media = media_of(content_type)
    if media in ("", "application/json"):
        return _json(data, kind)
    if media == "application/yaml":
        return _yaml(data, kind)
    if media == protobuf.MEDIA_TYPE:
        try:
            return Body(protobuf.decode(data))
        except protobuf.ProtobufError as error:
            raise _unrecognized(kind, str(error), data) from None
    raise unsupported_media(("application/json", "application/yaml", protobuf.MEDIA_TYPE))


def unsupported_media(accepted: tuple[str, ...]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def read_applied(data: bytes, kind: str) -> Body:
    """The body of an apply, which is YAML. JSON is YAML too, and read in a tenth of the time."""
    if data[:1] == b"{":
        try:
            body = _json(data, kind)
        except StatusError:
            return _yaml(data, kind)
        if not body.duplicates():
            return body
    return _yaml(data, kind)


def read_json(data: bytes) -> Any:
    """Any JSON, within the limits. Raises StatusError 400."""
    data = _unicode(data)
    try:
        value = msgspec.json.decode(data)
        _survey(value, MAX_DEPTH)
    except msgspec.DecodeError as error:
        raise bad_request(_go_message(error, data)) from None
    except (RecursionError, _TooDeepError):
        raise bad_request("exceeded max depth") from None
    return value


def _unicode(data: bytes) -> bytes:
    """As Go's JSON reads it: what is not UTF-8 is replaced, byte by byte, with U+FFFD."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="replace").encode()
    return data


def _json(data: bytes, kind: str) -> Body:
    data = _unicode(data)
    try:
        value = msgspec.json.decode(data)
        keys = _survey(value, MAX_DEPTH)
    except msgspec.DecodeError as error:
        raise _unrecognized(kind, _NOT_JSON + _go_message(error, data), data) from None
    except (RecursionError, _TooDeepError):
        raise _unrecognized(kind, f"{_NOT_JSON}exceeded max depth", data) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise _unrecognized(kind, _not_an_object(value), data)
    return Body(value, data, kind, keys)


def _yaml(data: bytes, kind: str) -> Body:
    try:
        value = read_first(data.decode())
    except UnicodeDecodeError:
        raise _unrecognized(kind, "yaml: invalid leading UTF-8 octet", data) from None
    except BadFileError as error:
        if str(error).startswith("unsupported map key"):
            raise _unrecognized(kind, str(error), data) from None
        message = str(error).removeprefix("not YAML: ").rpartition(", ")[2]
        raise _unrecognized(kind, f"yaml: line {error.line}: {message}", data) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise _unrecognized(kind, _not_an_object(value), data)
    return Body(value)


def _not_an_object(value: Any) -> str:
    return f"{_NOT_JSON}json: cannot unmarshal {go_kind(value)} into Go value of type {_GO_TYPES}"


def _unrecognized(kind: str, why: str, data: bytes) -> StatusError:
    excerpt = data[:1024]
    text = excerpt.decode(errors="replace")
    shown = text if excerpt[:1] == b"{" and text.isprintable() else excerpt.hex() or "<empty>"
    if len(data) > len(excerpt):
        shown += " ..."
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({shown})")


def _survey(value: Any, left: int) -> int:
    """How many keys there are in all; raises _TooDeepError."""
    if left == 0:
        raise _TooDeepError
    if isinstance(value, dict):
        keys = len(value)
        for each in value.values():
            if isinstance(each, dict | list):
                keys += _survey(each, left - 1)
        return keys
    keys = 0
    if isinstance(value, list):
        for each in value:
            if isinstance(each, dict | list):
                keys += _survey(each, left - 1)
    return keys


def _duplicates(data: bytes) -> list[str]:
    """Paths of keys that occur twice in one object."""

    class Twice(dict[str, Any]):
        again: tuple[str, ...] = ()

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = Twice(pairs)
        if len(built) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            built.again = tuple(name for name, count in counts.items() if count > 1)
        return built

    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Twice):
            found.extend(f"{path}.{key}" if path else key for key in value.again)
            for key, each in value.items():
                walk(each, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for i, each in enumerate(value):
                walk(each, f"{path}[{i}]")

    walk(json.loads(data, object_pairs_hook=build), "")
    return found


def go_kind(value: Any) -> str:
    """The name of a value's type in Go's JSON messages."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"


_GO_MESSAGES = (
    ("object keys must be strings", "looking for beginning of object key string"),
    ("trailing comma in object", "looking for beginning of object key string"),
    ("expected ':'", "after object key"),
    ("expected ',' or '}'", "after object key:value pair"),
    ("expected ',' or ']'", "after array element"),
    ("trailing characters", "after top-level value"),
    ("", "looking for beginning of value"),
)


def _go_message(error: msgspec.DecodeError, data: bytes) -> str:
    message = str(error)
    where = _POSITION.search(message)
    if where is None:
        return "unexpected end of JSON input" if "truncated" in message else message
    at = int(where[1])
    if "trailing characters" in message:
        at = len(data) - len(data[at:].lstrip()) if at < len(data) else len(data) - 1
    character = data[at : at + 1].decode(errors="replace")
    place = next(place for mark, place in _GO_MESSAGES if mark in message)
    return f"invalid character {character!r} {place}"


_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_GZIP = 16 + zlib.MAX_WBITS
_INCOMPLETE = "unexpected EOF"


async def read_body(request: web.BaseRequest) -> bytes:
    """Raises StatusError 400, 413, 415 or 504."""
    declared = request.content_length
    if declared is not None and declared > BODY_BYTES:
        raise too_large(BODY_BYTES)
    if not request.can_read_body:
        return b""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(_CONTINUE)
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            data = await _received(request)
    except TimeoutError:
        raise StatusError(
            504, "Timeout", "Timeout: request did not complete within the allotted timeout", {}
        ) from None
    except (web.RequestPayloadError, EOFError):
        raise bad_request(_INCOMPLETE) from None
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    return _decompressed(data, encoding) if encoding not in ("", "identity") else data


async def _received(request: web.BaseRequest) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await request.content.readany():
        size += len(part)
        if size > BODY_BYTES:
            raise too_large(BODY_BYTES)
        parts.append(part)
    return b"".join(parts) if len(parts) != 1 else parts[0]


def _decompressed(data: bytes, encoding: str) -> bytes:
    """Decompresses at most as much as may be sent uncompressed."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise StatusError(
            415,
            "UnsupportedMediaType",
            f"the body of the request was in an unknown format - content encoding {encoding!r} is not "
            "supported: use gzip, deflate or none",
        )
    name = "flate" if encoding == "deflate" else "gzip"
    tries = (zlib.MAX_WBITS, -zlib.MAX_WBITS) if encoding == "deflate" else (_GZIP,)
    for window in tries:
        decompressor = zlib.decompressobj(window)
        try:
            plain = decompressor.decompress(data, BODY_BYTES + 1)
        except zlib.error:
            continue
        if len(plain) > BODY_BYTES:
            raise too_large(BODY_BYTES)
        if not decompressor.eof:
            raise bad_request(_INCOMPLETE)
        return plain
    raise bad_request(f"{name}: invalid header")
