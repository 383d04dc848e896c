"""What versions 2 and 3 of OpenAPI write differently."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.definitions import INT_OR_STRING, QUANTITY, Definition

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
