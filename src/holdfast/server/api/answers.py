"""Answers as HTTP responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from holdfast.server.api.encoding import to_bytes
from holdfast.server.api.negotiate import JSON, media_type
from holdfast.server.api.status import ApiError

_ALL_WARNINGS = 4 * 1024
_ONE_WARNING = 256
_MOST_WARNINGS = 64
"""Python's HTTP client, among others, refuses an answer of more than a hundred headers."""
_PLAIN = "text/plain; charset=utf-8"


def answer(
    body: bytes, code: int = 200, media: str = JSON, warnings: Iterable[str] = ()
) -> web.Response:
    headers: CIMultiDict[str] = CIMultiDict()
    headers["Content-Type"] = media
    for each in _fitting(warnings):
        headers.add("Warning", f'299 - "{_escaped(each)}"')
    return web.Response(body=body, status=code, headers=headers)


def _fitting(warnings: Iterable[str]) -> Iterator[str]:
    """As the API server bounds them: all in full, or as many as fit, each cut short."""
    warnings = list(warnings)
    if sum(map(len, warnings)) > _ALL_WARNINGS:
        warnings = [*dict.fromkeys(each[:_ONE_WARNING] for each in warnings)]
    written = 0
    for each in warnings[:_MOST_WARNINGS]:
        written += len(each)
        if written > _ALL_WARNINGS:
            return
        yield each


def document(value: Any, code: int = 200, media: str = JSON) -> web.Response:
    return answer(to_bytes(value, media), code, media)


def failure(error: ApiError, accept: str, warnings: Iterable[str] = ()) -> web.Response:
    try:
        media = media_type(accept)
    except ApiError:
        media = JSON
    response = answer(to_bytes(error.status(), media), error.code, media, warnings)
    response.headers.update(error.headers)
    return response


def page_not_found() -> web.Response:
    """Of a path that has never been one."""
    return text("404 page not found\n", 404)


def text(said: str, code: int = 200) -> web.Response:
    return answer(said.encode(), code, _PLAIN)


def _escaped(text: str) -> str:
    """As a quoted string of HTTP; what a header cannot hold is left out."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
