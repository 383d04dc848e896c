"""The OpenAPI documents, made when they are first asked for and again when the types have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from holdfast.server.api import answers
from holdfast.server.api.negotiate import not_acceptable
from holdfast.server.schema import Catalogue

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2"
_ANY = ("application/json", "*/*", "application/*", "")


class Documents:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._generation = -1
        self._made: dict[str, bytes] = {}

    def answer(self, path: list[str], request: web.Request, accept: str) -> web.StreamResponse | None:
        match path:
            case ["v2"]:
                _takes_json(accept)
                return self._served(request, "v2", self._catalogue.openapi_v2)
            case ["v3"]:
                return self._served(request, "v3", self._index)
            case ["v3", *rest]:
                group_version = "/".join(rest)
                if group_version not in self._catalogue.openapi_v3_paths():
                    return None
                return self._served(
                    request, f"v3/{group_version}", lambda: self._catalogue.openapi_v3(group_version)
                )
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
        body = self._body(f"v3/{path}", lambda: self._catalogue.openapi_v3(path))
        return hashlib.sha256(body).hexdigest().upper()

    def _served(self, request: web.Request, name: str, make: Callable[[], Any]) -> web.Response:
        body = self._body(name, make)
        tag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"Etag": tag})
        response = answers.answer(body)
        response.headers["Etag"] = tag
        if "hash" in request.query:
            response.headers["Cache-Control"] = "public, immutable"
        return response

    def _body(self, name: str, make: Callable[[], Any]) -> bytes:
        if self._generation != self._catalogue.generation:
            self._generation = self._catalogue.generation
            self._made.clear()
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = msgspec.json.encode(make())
        return made


def _takes_json(accept: str) -> None:
    """Protobuf is not spoken. Clients that ask for nothing else are told so, and go on without."""
    media = [each.partition(";")[0].strip() for each in accept.split(",")]
    if not any(each in _ANY for each in media):
        raise not_acceptable()
