"""The body of a request, read within limits. Only for requests that have shown the token."""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

from holdfast.server.api.status import ApiError, bad_request, too_large
from holdfast.server.limits import BODY_BYTES, REQUEST_SECONDS

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_GZIP = 16 + zlib.MAX_WBITS
_INCOMPLETE = "unexpected EOF"


async def read_body(request: web.BaseRequest) -> bytes:
    """Raises ApiError 400, 413, 415 or 504."""
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
        raise ApiError(
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
    """Never more than may be sent uncompressed, however much is in it."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ApiError(
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
