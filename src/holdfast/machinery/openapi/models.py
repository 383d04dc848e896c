"""The schemas of a document: the types it is about, their lists, and all they are made of."""

from __future__ import annotations

from typing import Any

from holdfast.machinery.schema.definitions import (
    INT_OR_STRING,
    META,
    QUANTITY,
    Definition,
    definitions,
    described_definitions,
)
from holdfast.machinery.schema.types import ResourceType

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


# What versions 2 and 3 of OpenAPI write differently.


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
