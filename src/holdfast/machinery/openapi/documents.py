"""The documents as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.machinery.openapi.models import (
    PATCH,
    V2,
    V3,
    Dialect,
    list_name,
    model_name,
    models_of,
    subresource_name,
)
from holdfast.machinery.schema.definitions import META, kubernetes_version
from holdfast.machinery.schema.types import ResourceType

Document = dict[str, Any]


def openapi_v3_paths(types: Iterable[ResourceType]) -> list[str]:
    """The names of the version 3 documents: `api/v1`, `apis/apps/v1`."""
    return sorted({document_path(type) for type in types})


def openapi_v3(types: Iterable[ResourceType], path: str) -> Document:
    """One of them, with the types of that group and version."""
    mine = [type for type in types if document_path(type) == path]
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": _paths(mine, V3),
        "components": {"schemas": models_of(mine, V3)},
    }


def openapi_v2(types: Iterable[ResourceType]) -> Document:
    everything = list(types)
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": _paths(everything, V2),
        "definitions": models_of(everything, V2),
    }


def document_path(type: ResourceType) -> str:
    return f"apis/{type.group}/{type.version}" if type.group else f"api/{type.version}"


def _info() -> Document:
    return {"title": "Kubernetes", "version": f"v{kubernetes_version()}"}


def _paths(types: list[ResourceType], dialect: Dialect) -> Document:
    paths: Document = {}
    for type in types:
        paths.update(paths_of(type, f"/{document_path(type)}", model_name(type), dialect))
    return dict(sorted(paths.items()))


# The paths of a document: what can be done with each type, and with which parameters.


_WRITTEN = ("application/json", "application/yaml")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC = "application/strategic-merge-patch+json"

_VERBS = {"post": "create", "put": "replace", "get": "read", "deletecollection": "deleteCollection"}
_STRING, _INTEGER, _BOOLEAN = "string", "integer", "boolean"
_WRITE = {"dryRun": _STRING, "fieldManager": _STRING, "fieldValidation": _STRING}
_LIST = {
    "allowWatchBookmarks": _BOOLEAN,
    "continue": _STRING,
    "fieldSelector": _STRING,
    "labelSelector": _STRING,
    "limit": _INTEGER,
    "resourceVersion": _STRING,
    "resourceVersionMatch": _STRING,
    "sendInitialEvents": _BOOLEAN,
    "timeoutSeconds": _INTEGER,
    "watch": _BOOLEAN,
}
_DELETE = {
    "dryRun": _STRING,
    "gracePeriodSeconds": _INTEGER,
    "orphanDependents": _BOOLEAN,
    "propagationPolicy": _STRING,
}


def paths_of(type: ResourceType, root: str, model: str, dialect: Dialect) -> dict[str, Any]:
    place = f"{root}/namespaces/{{namespace}}" if type.namespaced else root
    make = _Maker(type, model, dialect)
    found: dict[str, Any] = {}
    collection = make.collection()
    if collection:
        found[f"{place}/{type.plural}"] = {**collection, **make.placed(type.namespaced, False)}
    if type.namespaced and "list" in type.verbs:
        found[f"{root}/{type.plural}"] = make.everywhere()
    item = make.item()
    if item:
        found[f"{place}/{type.plural}/{{name}}"] = {**item, **make.placed(type.namespaced, True)}
    for sub in type.subresources:
        kind = (sub.group or type.group, sub.version or type.version, sub.kind)
        inner = _Maker(type, subresource_name(type, sub.kind), dialect, kind, sub.name)
        found[f"{place}/{type.plural}/{{name}}/{sub.name}"] = {
            **inner.item(sub.verbs),
            **make.placed(type.namespaced, True),
        }
    return found


class _Maker:
    """Operations of one type, or of one of its subresources."""

    def __init__(
        self,
        type: ResourceType,
        model: str,
        dialect: Dialect,
        kind: tuple[str, str, str] | None = None,
        subresource: str = "",
    ) -> None:
        self.type = type
        self.model = model
        self.dialect = dialect
        self.kind = kind or (type.group, type.version, type.kind)
        self.subresource = subresource

    def collection(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        verbs = self.type.verbs
        if "list" in verbs:
            made["get"] = self._operation("list", _LIST, answer=list_name(self.type))
        if "create" in verbs:
            made["post"] = self._operation("post", _WRITE, self.model, _WRITTEN)
        if "deletecollection" in verbs:
            options = META + "DeleteOptions"
            made["delete"] = self._operation(
                "deletecollection", {**_LIST, **_DELETE}, options, _WRITTEN, META + "Status"
            )
        return made

    def everywhere(self) -> dict[str, Any]:
        return {"get": self._operation("list", _LIST, answer=list_name(self.type), everywhere=True)}

    def item(self, verbs: tuple[str, ...] | None = None) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if verbs is None:
            verbs = tuple(verb for verb in self.type.verbs if verb != "create")
        if "get" in verbs:
            made["get"] = self._operation("get", {})
        if "update" in verbs:
            made["put"] = self._operation("put", _WRITE, self.model, _WRITTEN)
        if "patch" in verbs:
            patches = (*_PATCHES, _STRATEGIC) if self.type.builtin else _PATCHES
            made["patch"] = self._operation("patch", {**_WRITE, "force": _BOOLEAN}, PATCH, patches)
        if "create" in verbs:
            made["post"] = self._operation("post", _WRITE, self.model, _WRITTEN)
        if "delete" in verbs:
            options = META + "DeleteOptions"
            made["delete"] = self._operation("delete", _DELETE, options, _WRITTEN, META + "Status")
        return made

    def placed(self, namespaced: bool, named: bool) -> dict[str, Any]:
        """The parameters that stand in the path."""
        names = [name for name, has in (("name", named), ("namespace", namespaced)) if has]
        parameters = [self.dialect.parameter(name, "path", _STRING, True) for name in names]
        return {"parameters": [*parameters, self.dialect.parameter("pretty", "query", _STRING, False)]}

    def _operation(
        self,
        action: str,
        query: dict[str, str],
        body: str | None = None,
        consumes: tuple[str, ...] = (),
        answer: str = "",
        everywhere: bool = False,
    ) -> dict[str, Any]:
        group, version, kind = self.kind
        operation: dict[str, Any] = {
            "operationId": self._id(action, everywhere),
            "parameters": [
                self.dialect.parameter(name, "query", type, False) for name, type in query.items()
            ],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
        }
        return self.dialect.operation(operation, body, consumes, answer or self.model)

    def _id(self, action: str, everywhere: bool) -> str:
        group = "".join(part.capitalize() for part in (self.type.group or "core").split("."))
        scope = "Namespaced" if self.type.namespaced and not everywhere else ""
        tail = "ForAllNamespaces" if everywhere else ""
        version = self.type.version.capitalize()
        what = f"{self.type.kind}{self.subresource.capitalize()}"
        return f"{_VERBS.get(action, action)}{group}{version}{scope}{what}{tail}"
