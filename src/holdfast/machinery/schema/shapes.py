"""The shapes of objects: fields, lists and maps, and how each is merged and tracked.

A shape is a struct (named fields), a map, a list, a scalar, or `any`. An atomic list or map is replaced
whole; items of a list of type `map` are matched by keys, those of type `set` by their values. Shapes of
built-in kinds come from Kubernetes' OpenAPI definitions, those of custom kinds from their schemas.

`data/kubernetes.json.gz`, written by `tools/kubernetes_schemas.py`, has the definitions without their
prose. `kubectl explain` shows that of the package `kubernetes-validate`, if it is installed (`pip
install 'holdfast[openapi-docs]'`).
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
SUBRESOURCE_STATUS = (
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus"
)
PRESENT = frozenset(
    (
        SUBRESOURCE_STATUS,
        "io.k8s.api.scheduling.v1beta1.AllCompositeDisruptionMode",
        "io.k8s.api.scheduling.v1beta1.AllDisruptionMode",
        "io.k8s.api.scheduling.v1beta1.BasicSchedulingPolicy",
        "io.k8s.api.scheduling.v1beta1.CompositeBasicSchedulingPolicy",
        "io.k8s.api.scheduling.v1beta1.SingleCompositeDisruptionMode",
        "io.k8s.api.scheduling.v1beta1.SingleDisruptionMode",
    )
)
"""Types without fields whose presence is their meaning."""
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
MICRO_TIME = META + "MicroTime"
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"

Definition = dict[str, Any]


@cache
def _data() -> dict[str, Any]:
    packed = files("holdfast.machinery.schema").joinpath("data/kubernetes.json.gz").read_bytes()
    data: dict[str, Any] = msgspec.json.decode(gzip.decompress(packed))
    return data


def kubernetes_version() -> str:
    """The minor version whose API this is: `1.37`."""
    return str(_data()["version"])


def definitions() -> dict[str, Definition]:
    """Every type by its OpenAPI name, such as `io.k8s.api.core.v1.Pod`."""
    found: dict[str, Definition] = _data()["definitions"]
    return found


@cache
def described_definitions() -> dict[str, Definition]:
    """The same types with the descriptions of `kubernetes-validate`; without any if it is absent."""
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        return {}
    folder = Path(package.origin).parent / "kubernetes-json-schema" / f"v{kubernetes_version()}.0-local"
    try:
        whole = msgspec.json.decode((folder / "_definitions.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    described: dict[str, Definition] = whole.get("$defs", {})
    return described


NOT_COMPILED: Any = object()


class FieldShape:
    """A node in the graph of shapes; built once per type, never changed, possibly in a cycle."""

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
        """The values of a map, or of other fields of a struct; None if no other field is allowed."""
        self.items: FieldShape | None = None
        self.list_type = "atomic"
        self.keys: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        """Values of absent fields that are keys of a list."""
        self.atomic = False
        self.merge_key: str | None = None
        self.strategies: frozenset[str] = frozenset()
        """The patch strategies of strategic merge: merge, replace, retainKeys."""
        self.nullable = False
        self.always: tuple[str, ...] = ()
        self.zeroes: frozenset[str] = frozenset()
        self.writer: Any = NOT_COMPILED
        """The compiled `patch.compare.created_fields`; here, since a kind can be redefined."""

    def field(self, name: str) -> FieldShape | None:
        """The shape of a field of a struct, or of a value of a map."""
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
            return self._with_merge_rules(self._named(schema["$ref"]), schema)
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
        if name in PRESENT:
            # It must not be dropped as an empty map.
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

    def _with_merge_rules(self, shape: FieldShape, schema: Definition) -> FieldShape:
        """The shape with the merge rules of the field, which override those of its type."""
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
        given = schema.get("x-kubernetes-list-type")
        if given in ("atomic", "set", "map"):
            shape.list_type = given
            shape.keys = tuple(schema.get("x-kubernetes-list-map-keys", ())) if given == "map" else ()
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
    given = schema.get("x-kubernetes-patch-strategy")
    return frozenset(given.split(",")) if given else frozenset()
