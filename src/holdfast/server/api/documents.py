"""The OpenAPI documents, made when they are first asked for and again when the types have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from holdfast.server.api import answers
from holdfast.server.api.negotiate import JSON, not_acceptable
from holdfast.server.api.protobuf import openapi
from holdfast.server.schema import Catalogue

_ANY = ("application/json", "*/*", "application/*", "")


class Documents:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._generation = -1
        self._made: dict[str, bytes] = {}

    def answer(
        self, path: list[str], request: web.BaseRequest, accept: str
    ) -> web.StreamResponse | None:
        match path:
            case ["v2"]:
                if _wants_protobuf(accept):
                    return self._served(request, "v2.pb", self._protobuf, openapi.ANSWER_TYPE)
                return self._served(request, "v2", lambda: _json(self._catalogue.openapi_v2()))
            case ["v3"]:
                return self._served(request, "v3", lambda: _json(self._index()))
            case ["v3", *rest]:
                group_version = "/".join(rest)
                if group_version not in self._catalogue.openapi_v3_paths():
                    return None
                return self._served(request, f"v3/{group_version}", lambda: self._v3(group_version))
            case _:
                return None

    def _index(self) -> Any:
        """Each document is named with the hash of what is in it, so that clients may keep it."""
        return {
            "paths": {
                path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash(path)}"}
                for path in self._catalogue.openapi_v3_paths()
            }
        }

    def _hash(self, path: str) -> str:
        body = self._body(f"v3/{path}", lambda: self._v3(path))
        return hashlib.sha256(body).hexdigest().upper()

    def _v3(self, path: str) -> bytes:
        return _json(self._catalogue.openapi_v3(path))

    def _protobuf(self) -> bytes:
        return openapi.encode_document(self._catalogue.openapi_v2())

    def _served(
        self, request: web.BaseRequest, name: str, make: Callable[[], bytes], media: str = JSON
    ) -> web.Response:
        body = self._body(name, make)
        tag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"Etag": tag})
        response = answers.answer(body, media=media)
        response.headers["Etag"] = tag
        if "hash" in request.query:
            response.headers["Cache-Control"] = "public, immutable"
        return response

    def _body(self, name: str, make: Callable[[], bytes]) -> bytes:
        if self._generation != self._catalogue.generation:
            self._generation = self._catalogue.generation
            self._made.clear()
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = make()
        return made


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
