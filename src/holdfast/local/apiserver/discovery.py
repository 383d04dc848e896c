"""Discovery (groups, versions, resources) and the OpenAPI documents.

OpenAPI documents are built on the first request and again when the types have changed. With large
definitions that takes a second, so it is done in a thread, one document at a time; the types do not
change during it, since a catalogue replaces types and does not modify them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from holdfast.local.apiserver import protobuf
from holdfast.local.apiserver import responses as answers
from holdfast.local.apiserver.responses import DISCOVERY_GROUP, JSON, not_acceptable
from holdfast.local.store import Raw
from holdfast.machinery import openapi
from holdfast.machinery.schema import ResourceType, Subresource
from holdfast.machinery.schema.catalogue import Catalogue

VERSION: Raw = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+holdfast",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def core_versions(host: str) -> Raw:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    }


def group_list(catalogue: Catalogue) -> Raw:
    groups = [_group(name, types) for name, types in _groups(catalogue) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(catalogue: Catalogue, name: str) -> Raw | None:
    types = [each for each in catalogue if each.group == name]
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, types)} if types and name else None


def resource_list(catalogue: Catalogue, group: str, version: str) -> Raw | None:
    types = [each for each in catalogue if (each.group, each.version) == (group, version)]
    if not types:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": types[0].api_version,
        "resources": [row for each in types for row in _resources(each)],
    }


def aggregated(catalogue: Catalogue, core: bool) -> Raw:
    """Everything in one document, of the core group or of all others."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{DISCOVERY_GROUP}/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None}
                if name
                else {"creationTimestamp": None},
                "versions": [_version(version, types) for version, types in _by_version(of_group)],
            }
            for name, of_group in _groups(catalogue)
            if (not name) is core
        ],
    }


def _groups(catalogue: Catalogue) -> Iterator[tuple[str, list[ResourceType]]]:
    known: dict[str, list[ResourceType]] = {}
    for each in catalogue:
        known.setdefault(each.group, []).append(each)
    yield from known.items()


def _by_version(types: Iterable[ResourceType]) -> Iterator[tuple[str, list[ResourceType]]]:
    known: dict[str, list[ResourceType]] = {}
    for each in types:
        known.setdefault(each.version, []).append(each)
    yield from known.items()


def _group(name: str, types: list[ResourceType]) -> Raw:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in dict.fromkeys(each.version for each in types)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(type: ResourceType) -> Iterator[Raw]:
    row: Raw = {
        "name": type.plural,
        "singularName": type.singular,
        "namespaced": type.namespaced,
        "kind": type.kind,
        "verbs": list(type.verbs),
        **_names_besides(type),
    }
    yield row
    for each in type.subresources:
        yield _subresource_row(type, each)


def _names_besides(type: ResourceType) -> Raw:
    """The short names and categories by which kubectl finds the resource."""
    given = {"shortNames": list(type.short_names), "categories": list(type.categories)}
    return {key: names for key, names in given.items() if names}


def _subresource_row(type: ResourceType, each: Subresource) -> Raw:
    row: Raw = {
        "name": f"{type.plural}/{each.name}",
        "singularName": "",
        "namespaced": type.namespaced,
        "kind": each.kind,
        "verbs": list(each.verbs),
    }
    if each.group or each.version:
        row["group"], row["version"] = each.group, each.version
    return row


def _version(version: str, types: list[ResourceType]) -> Raw:
    return {
        "version": version,
        "resources": [_aggregated(each) for each in types],
        "freshness": "Current",
    }


def _aggregated(type: ResourceType) -> Raw:
    row: Raw = {
        "resource": type.plural,
        "responseKind": {"group": type.group, "version": type.version, "kind": type.kind},
        "scope": "Namespaced" if type.namespaced else "Cluster",
        "singularResource": type.singular,
        "verbs": list(type.verbs),
        **_names_besides(type),
    }
    if type.subresources:
        row["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": {
                    "group": each.group or type.group,
                    "version": each.version or type.version,
                    "kind": each.kind,
                },
                "verbs": list(each.verbs),
            }
            for each in type.subresources
        ]
    return row


def all_paths(catalogue: Catalogue) -> list[str]:
    found = {"/api", "/apis", "/version", "/openapi/v2", "/openapi/v3", "/healthz", "/livez", "/readyz"}
    for each in catalogue:
        found.add(f"/apis/{each.group}/{each.version}" if each.group else f"/api/{each.version}")
        if each.group:
            found.add(f"/apis/{each.group}")
    return sorted(found)


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
                    "v2.pb", lambda: protobuf.encode_openapi(openapi.openapi_v2(catalogue))
                )
                return _served(request, made, protobuf.OPENAPI_CONTENT_TYPE)
            case ["v2"]:
                made = await self._made("v2", lambda: _json(openapi.openapi_v2(catalogue)))
                return _served(request, made)
            case ["v3"]:
                return _served(request, _hashed(await self._index()))
            case ["v3", *rest]:
                group_version = "/".join(rest)
                if group_version not in openapi.openapi_v3_paths(catalogue):
                    return None
                return _served(request, await self._v3(group_version))
            case _:
                return None

    async def _index(self) -> bytes:
        """Each document is named with the hash of what is in it, so that clients may keep it."""
        paths = {}
        for path in openapi.openapi_v3_paths(self._catalogue):
            made = await self._v3(path)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={made.hash}"}
        return _json({"paths": paths})

    async def _v3(self, path: str) -> _Made:
        return await self._made(f"v3/{path}", lambda: _json(openapi.openapi_v3(self._catalogue, path)))

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
    """Whether JSON will not do. Raises StatusError 406 if nothing will."""
    media = [each.partition(";")[0].strip() for each in accept.split(",")]
    if any(each in _ANY for each in media):
        return False
    if protobuf.OPENAPI_MEDIA_TYPE in media or protobuf.OPENAPI_CONTENT_TYPE in media:
        return True
    raise not_acceptable()
