"""The OpenAPI documents, made when they are first asked for and again when the types have changed.

With large definitions that takes a second, so it is done in a thread, one document at a time; the types
do not change under it, since a catalogue puts new ones in the place of the old."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from holdfast.server.api import answers
from holdfast.server.api.negotiate import JSON, not_acceptable
from holdfast.server.api.protobuf import openapi
from holdfast.server.schema import Catalogue

_ANY = ("application/json", "*/*", "application/*", "")
Make = Callable[[], bytes]
Compute = Callable[[Callable[[], "_Made"]], Awaitable["_Made"]]
"""Has a function called beside the event loop."""


class _Made(NamedTuple):
    body: bytes
    hash: str


class Documents:
    def __init__(self, catalogue: Catalogue, compute: Compute) -> None:
        self._catalogue = catalogue
        self._compute = compute
        self._generation = -1
        self._known: dict[str, _Made] = {}
        self._making = asyncio.Lock()

    async def answer(
        self, path: list[str], request: web.BaseRequest, accept: str
    ) -> web.StreamResponse | None:
        catalogue = self._catalogue
        match path:
            case ["v2"] if _wants_protobuf(accept):
                made = await self._made(
                    "v2.pb", lambda: openapi.encode_document(catalogue.openapi_v2())
                )
                return _served(request, made, openapi.ANSWER_TYPE)
            case ["v2"]:
                made = await self._made("v2", lambda: _json(catalogue.openapi_v2()))
                return _served(request, made)
            case ["v3"]:
                return _served(request, _hashed(await self._index()))
            case ["v3", *rest]:
                group_version = "/".join(rest)
                if group_version not in catalogue.openapi_v3_paths():
                    return None
                return _served(request, await self._v3(group_version))
            case _:
                return None

    async def _index(self) -> bytes:
        """Each document is named with the hash of what is in it, so that clients may keep it."""
        paths = {}
        for path in self._catalogue.openapi_v3_paths():
            made = await self._v3(path)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={made.hash}"}
        return _json({"paths": paths})

    async def _v3(self, path: str) -> _Made:
        return await self._made(f"v3/{path}", lambda: _json(self._catalogue.openapi_v3(path)))

    async def _made(self, name: str, make: Make) -> _Made:
        async with self._making:
            generation = self._catalogue.generation
            if self._generation != generation:
                self._generation = generation
                self._known.clear()
            made = self._known.get(name)
            if made is None:
                made = await self._compute(lambda: _hashed(make()))
                if self._catalogue.generation == generation:
                    self._known[name] = made
            return made


def _hashed(body: bytes) -> _Made:
    return _Made(body, hashlib.sha256(body).hexdigest().upper())


def _served(request: web.BaseRequest, made: _Made, media: str = JSON) -> web.Response:
    tag = f'"{made.hash}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"Etag": tag})
    response = answers.answer(made.body, media=media)
    response.headers["Etag"] = tag
    if "hash" in request.query:
        response.headers["Cache-Control"] = "public, immutable"
    return response


def _json(document: Any) -> bytes:
    return msgspec.json.encode(document)


def _wants_protobuf(accept: str) -> bool:
    """Whether JSON will not do. Raises ApiError 406 if nothing will."""
    media = [each.partition(";")[0].strip() for each in accept.split(",")]
    if any(each in _ANY for each in media):
        return False
    if openapi.MEDIA_TYPE in media or openapi.ANSWER_TYPE in media:
        return True
    raise not_acceptable()
