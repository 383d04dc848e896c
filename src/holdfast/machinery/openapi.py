"""The OpenAPI documents from which clients learn types.

`kubectl explain`, `apply` and `diff` read version 3, one document per group and version; older tools
read version 2, one document for everything. Both have the same definitions and operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.machinery.schema.shapes import (
    INT_OR_STRING,
    META,
    QUANTITY,
    Definition,
    definitions,
    described_definitions,
    kubernetes_version,
)
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


PATCH = META + "Patch"
_ALWAYS = (META + "DeleteOptions", META + "Status", META + "ListMeta", META + "ObjectMeta")
_SCALE = "io.k8s.api.autoscaling.v1.Scale"
_EVICTION = "io.k8s.api.policy.v1.Eviction"


def model_name(type: ResourceType) -> str:
    """`io.k8s.api.core.v1.Pod`; for custom kinds the group backwards: `com.example.v1.Widget`."""
    if type.definition:
        return type.definition
    backwards = ".".join(reversed(type.group.split(".")))
    return f"{backwards}.{type.version}.{type.kind}"


def list_name(type: ResourceType) -> str:
    return f"{model_name(type).rpartition('.')[0]}.{type.list_kind}"


def subresource_name(type: ResourceType, kind: str) -> str:
    """The model a subresource takes and gives."""
    if kind == type.kind:
        return model_name(type)
    return {"Scale": _SCALE, "Eviction": _EVICTION}.get(kind) or f"io.k8s.api.core.v1.{kind}"


def models_of(types: list[ResourceType], dialect: Dialect) -> dict[str, Definition]:
    models: dict[str, Definition] = {PATCH: {"type": "object"}}
    waiting = list(_ALWAYS)
    for type in types:
        waiting.extend(subresource_name(type, sub.kind) for sub in type.subresources)
        if type.definition:
            waiting.append(type.definition)
        else:
            models[model_name(type)] = dialect.custom(_custom_schema(type))
        if "list" in type.verbs:
            models[list_name(type)] = dialect.part(_list_schema(type))
    while waiting:
        name = waiting.pop()
        if name not in models and name in definitions():
            schema = definitions()[name]
            models[name] = dialect.definition(name, _described(name, schema))
            waiting.extend(_references(schema))
    return dict(sorted(models.items()))


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [name for value in schema.values() for name in _references(value)]


def _described(name: str, schema: Definition) -> Definition:
    """With the descriptions of the type and of its fields, where there are any to be had."""
    prose = described_definitions().get(name)
    if prose is None:
        return schema
    described = {**schema}
    if "description" in prose:
        described["description"] = prose["description"]
    fields = prose.get("properties", {})
    if "properties" in schema:
        described["properties"] = {
            field: {**part, "description": text}
            if (text := fields.get(field, {}).get("description"))
            else part
            for field, part in schema["properties"].items()
        }
    return described


def _kind(type: ResourceType, kind: str) -> list[dict[str, str]]:
    return [{"group": type.group, "kind": kind, "version": type.version}]


def _custom_schema(type: ResourceType) -> Definition:
    schema = dict(type.schema or {"x-kubernetes-preserve-unknown-fields": True})
    fields: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": META + "ObjectMeta"},
    }
    schema["type"] = "object"
    schema["properties"] = dict(sorted({**schema.get("properties", {}), **fields}.items()))
    schema["x-kubernetes-group-version-kind"] = _kind(type, type.kind)
    return {**schema, **_selectable(type)}


def _selectable(type: ResourceType) -> Definition:
    if not type.selectable_fields:
        return {}
    return {"x-kubernetes-selectable-fields": [{"fieldPath": each} for each in type.selectable_fields]}


def _list_schema(type: ResourceType) -> Definition:
    return {
        "description": f"{type.list_kind} is a list of {type.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": model_name(type)}},
            "kind": {"type": "string"},
            "metadata": {"$ref": META + "ListMeta"},
        },
        "x-kubernetes-group-version-kind": _kind(type, type.list_kind),
        **_selectable(type),
    }


_OURS = ("always", "zeroes")
_JSON = "application/json"


class Dialect:
    """Version 3."""

    prefix = "#/components/schemas/"

    def reference(self, name: str) -> Definition:
        return {"$ref": self.prefix + name}

    def definition(self, name: str, schema: Definition) -> Definition:
        """A built-in type, in this dialect."""
        if name == QUANTITY:
            return {"oneOf": [{"type": "string"}, {"type": "number"}]}
        if name == INT_OR_STRING:
            return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
        return self.part({key: value for key, value in schema.items() if key not in _OURS})

    def part(self, schema: Definition) -> Definition:
        """A piece of a schema with everything in it."""
        spelt: Definition = {}
        for key, value in schema.items():
            if key == "$ref":
                spelt.update(self._refer(value, alone=len(schema) == 1))
            elif key == "properties":
                spelt[key] = {name: self.part(inner) for name, inner in value.items()}
            elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
                spelt[key] = self.part(value)
            elif key in ("allOf", "anyOf", "oneOf"):
                spelt[key] = [self.part(inner) for inner in value]
            else:
                spelt[key] = value
        return spelt

    def _refer(self, name: str, alone: bool) -> Definition:
        """A reference may have nothing beside it, so one that has is wrapped."""
        reference = self.reference(name)
        return reference if alone else {"allOf": [reference]}

    def custom(self, schema: Definition) -> Definition:
        """A custom kind's schema, which is already written as version 3 wants it."""
        return self.part(schema)

    def parameter(self, name: str, where: str, kind: str, required: bool) -> Definition:
        parameter: Definition = {"name": name, "in": where, "schema": {"type": kind}}
        return {**parameter, "required": True} if required else parameter

    def operation(
        self, operation: Definition, body: str | None, consumes: tuple[str, ...], answer: str
    ) -> Definition:
        if body is not None:
            schema = self.reference(body)
            operation["requestBody"] = {
                "content": {media: {"schema": schema} for media in consumes},
                "required": True,
            }
        answered = {_JSON: {"schema": self.reference(answer)}}
        operation["responses"] = {"200": {"description": "OK", "content": answered}}
        return operation


class _Version2(Dialect):
    prefix = "#/definitions/"

    def definition(self, name: str, schema: Definition) -> Definition:
        if name == QUANTITY:
            return {"type": "string"}
        if name == INT_OR_STRING:
            return {"type": "string", "format": "int-or-string"}
        return super().definition(name, schema)

    def _refer(self, name: str, alone: bool) -> Definition:
        return self.reference(name)

    def custom(self, schema: Definition) -> Definition:
        """Version 2 has no alternatives, nulls or defaults: what it lacks is left out."""
        spelt: Definition = {}
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields") is True
        for key, value in schema.items():
            if key in _NOT_IN_V2 or (open_ended and key in ("type", "properties", "items")):
                continue
            if key == "properties":
                spelt[key] = {name: self.custom(inner) for name, inner in value.items()}
            elif key in ("items", "additionalProperties") and isinstance(value, dict):
                spelt[key] = self.custom(value)
            elif key == "$ref":
                spelt[key] = self.prefix + value
            else:
                spelt[key] = value
        if schema.get("nullable"):
            spelt.pop("type", None)
        return spelt

    def parameter(self, name: str, where: str, kind: str, required: bool) -> Definition:
        parameter: Definition = {"name": name, "in": where, "type": kind, "uniqueItems": True}
        return {**parameter, "required": True} if required else parameter

    def operation(
        self, operation: Definition, body: str | None, consumes: tuple[str, ...], answer: str
    ) -> Definition:
        operation["consumes"] = list(consumes) or ["*/*"]
        operation["produces"] = [_JSON]
        if body is not None:
            whole: dict[str, Any] = {"name": "body", "in": "body", "required": True}
            operation["parameters"] = [
                {**whole, "schema": self.reference(body)},
                *operation["parameters"],
            ]
        operation["responses"] = {"200": {"description": "OK", "schema": self.reference(answer)}}
        return operation


_NOT_IN_V2 = frozenset(
    {"default", "nullable", "oneOf", "anyOf", "allOf", "not", "x-kubernetes-validations"}
)

V2 = _Version2()
V3 = Dialect()
