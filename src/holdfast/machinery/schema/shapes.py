"""What a part of an object looks like, as merging and field tracking need to know it.

A shape is a struct (fields known by name), a map, a list, a scalar, or `any`. Lists and maps say how
they are merged: an *atomic* one is replaced whole; a list of type `map` has items told apart by keys,
one of type `set` by their values. Shapes of built-in kinds come from Kubernetes' definitions, those of
custom kinds from their schemas; both are the same here.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from holdfast.machinery.schema.definitions import (
    MICRO_TIME,
    QUANTITY,
    RAW_EXTENSION,
    SUBRESOURCE_STATUS,
    Definition,
    definitions,
)

NOT_COMPILED: Any = object()


class FieldShape:
    """One node. Built once per type and never changed after, but linked in cycles."""

    __slots__ = (
        "always",
        "atomic",
        "defaults",
        "fields",
        "format",
        "items",
        "keys",
        "kind",
        "list_type",
        "merge_key",
        "name",
        "nullable",
        "strategies",
        "values",
        "writer",
        "zeroes",
    )

    def __init__(self, kind: str, format: str = "") -> None:
        self.kind = kind
        """struct, map, list, any, or the scalars string, integer, number, boolean, untyped."""
        self.format = format
        self.name = ""
        self.fields: dict[str, FieldShape] = {}
        self.values: FieldShape | None = None
        """What a map holds, or a struct beside its named fields; None: nothing else is allowed."""
        self.items: FieldShape | None = None
        self.list_type = "atomic"
        self.keys: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        """What a field counts as when it is a key and was not given."""
        self.atomic = False
        self.merge_key: str | None = None
        self.strategies: frozenset[str] = frozenset()
        """The patch strategies of strategic merge: merge, replace, retainKeys."""
        self.nullable = False
        self.always: tuple[str, ...] = ()
        self.zeroes: frozenset[str] = frozenset()
        self.writer: Any = NOT_COMPILED
        """Kept here for `patch.creation`, so that it goes with the shape: kinds can be redefined."""

    def field(self, name: str) -> FieldShape | None:
        """The shape of what a map or struct has under a name."""
        return self.fields.get(name) or self.values

    def copy(self) -> FieldShape:
        other = FieldShape(self.kind)
        for slot in FieldShape.__slots__:
            if slot != "writer":
                setattr(other, slot, getattr(self, slot))
        return other

    def __repr__(self) -> str:
        return f"<Shape {self.name or self.kind}>"


def _deduced() -> FieldShape:
    shape = FieldShape("any")
    shape.values = shape
    return shape


UNTYPED = FieldShape("any")
"""Anything, replaced whole."""
UNTYPED.atomic = True
UNTYPED.values = UNTYPED
UNTYPED.items = UNTYPED

DEDUCED = _deduced()
"""Anything; maps in it are merged key by key, lists replaced."""
DEDUCED.items = UNTYPED


JSON_SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
SCHEMA_OR_OTHER = "schema-or-other"
_SCHEMA_OR_OTHER = DEDUCED.copy()
_SCHEMA_OR_OTHER.format = SCHEMA_OR_OTHER


@cache
def builtin_shape(name: str) -> FieldShape:
    """The shape of a built-in type, by its OpenAPI name."""
    with _building:
        return _Builder(_known).shape({"$ref": name})


_known: dict[str, FieldShape] = {}
_building = Lock()


def schema_shape(schema: Definition) -> FieldShape:
    """The shape a custom resource's schema describes."""
    return _Builder({}).shape(schema)


class _Builder:
    def __init__(self, known: dict[str, FieldShape]) -> None:
        self.known = known

    def shape(self, schema: Definition, preserve: bool = False) -> FieldShape:
        if "$ref" in schema:
            return self._merged_as_said(self._named(schema["$ref"]), schema)
        preserve = preserve or schema.get("x-kubernetes-preserve-unknown-fields") is True
        if schema.get("x-kubernetes-int-or-string") is True:
            return FieldShape("untyped", "int-or-string")
        kind = schema.get("type", "")
        if kind == "object":
            return self._object(schema, preserve)
        if kind == "array":
            return self._list(schema, preserve)
        if not kind:
            return self._anything(schema, preserve)
        return _scalar(kind, schema.get("format", ""))

    def _named(self, name: str) -> FieldShape:
        if name in self.known:
            return self.known[name]
        if name == RAW_EXTENSION:
            return UNTYPED
        if name == QUANTITY:
            return FieldShape("untyped", "quantity")
        if name == MICRO_TIME:
            return FieldShape("untyped", "micro-time")
        if name.startswith(JSON_SCHEMA + "Or"):
            return _SCHEMA_OR_OTHER
        definition = definitions()[name]
        if name == SUBRESOURCE_STATUS:
            # That it is there is all it says, so it must not be taken for an empty map.
            shape = self.known[name] = FieldShape("struct")
            shape.name = name
            return shape
        if definition.get("type") != "object" or "properties" not in definition:
            shape = self.known[name] = self.shape(definition)
            return shape
        shape = self.known[name] = FieldShape("struct")
        shape.name = name
        self._fill(shape, definition, False)
        shape.always = tuple(definition.get("always", ()))
        shape.zeroes = frozenset(definition.get("zeroes", ()))
        return shape

    def _merged_as_said(self, shape: FieldShape, schema: Definition) -> FieldShape:
        """A field may say otherwise than its type how it is merged."""
        granularity = schema.get("x-kubernetes-map-type")
        strategies = _strategies(schema)
        if granularity is None and not strategies:
            return shape
        shape = shape.copy()
        if granularity is not None:
            shape.atomic = granularity == "atomic"
        shape.strategies = strategies
        return shape

    def _object(self, schema: Definition, preserve: bool) -> FieldShape:
        shape = FieldShape("struct" if schema.get("properties") else "map")
        self._fill(shape, schema, preserve)
        return shape

    def _fill(self, shape: FieldShape, schema: Definition, preserve: bool) -> None:
        required = schema.get("required", ())
        for name, part in schema.get("properties", {}).items():
            shape.fields[name] = self.shape(part, preserve)
            if "default" in part:
                shape.defaults[name] = part["default"]
            elif shape.name and name in required and part.get("type") in _ZEROES:
                shape.defaults[name] = _ZEROES[part["type"]]
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            shape.values = self.shape(values, preserve)
        elif values is True or (values is None and (preserve or not shape.fields)):
            shape.values = DEDUCED
        shape.atomic = schema.get("x-kubernetes-map-type") == "atomic"
        shape.nullable = bool(schema.get("nullable"))
        shape.strategies = _strategies(schema)

    def _list(self, schema: Definition, preserve: bool) -> FieldShape:
        shape = FieldShape("list")
        items = schema.get("items")
        shape.items = self.shape(items, preserve) if isinstance(items, dict) else UNTYPED
        shape.merge_key = schema.get("x-kubernetes-patch-merge-key")
        shape.strategies = _strategies(schema)
        said = schema.get("x-kubernetes-list-type")
        if said in ("atomic", "set", "map"):
            shape.list_type = said
            shape.keys = tuple(schema.get("x-kubernetes-list-map-keys", ())) if said == "map" else ()
        elif "merge" in shape.strategies:
            shape.list_type = "map" if shape.merge_key else "set"
            shape.keys = (shape.merge_key,) if shape.merge_key else ()
        shape.nullable = bool(schema.get("nullable"))
        return shape

    def _anything(self, schema: Definition, preserve: bool) -> FieldShape:
        if not schema.get("properties") and not schema.get("additionalProperties"):
            return DEDUCED
        shape = self._object(schema, preserve)
        shape.kind = "any"
        shape.items = UNTYPED
        return shape


_ZEROES: dict[str, Any] = {"string": "", "integer": 0, "boolean": False}


def _scalar(kind: str, format: str) -> FieldShape:
    if kind == "string" and format not in ("", "byte"):
        return FieldShape("untyped", format)
    return FieldShape(kind, format)


def _strategies(schema: Definition) -> frozenset[str]:
    said = schema.get("x-kubernetes-patch-strategy")
    return frozenset(said.split(",")) if said else frozenset()
