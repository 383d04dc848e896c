"""The schemas of a document: the types it is about, their lists, and all they are made of."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.definitions import META, Definition, definitions, described_definitions
from holdfast.server.schema.openapi.dialects import Dialect
from holdfast.server.schema.types import ResourceType

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
