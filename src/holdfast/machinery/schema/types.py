"""A served type, built in or from a CustomResourceDefinition; its objects in storage and in a version.

The versions of a custom kind differ in their name only (the only conversion is None). Events are stored
as core/v1 and shown as events.k8s.io/v1 to requests for that version, HorizontalPodAutoscalers are
stored as v2 (`autoscalers`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from holdfast.api.raw_objects import Key, Raw
from holdfast.machinery.schema import autoscalers
from holdfast.machinery.schema.shapes import FieldShape, builtin_shape, schema_shape

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class PrinterColumn(msgspec.Struct, frozen=True, rename="camel"):
    """One of a custom kind's `additionalPrinterColumns`."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class Subresource(msgspec.Struct, frozen=True):
    """A subresource such as `pods/status`; `name` is the part after the slash."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    """Group of its kind, if not the parent's: Scale is in autoscaling/v1."""
    version: str = ""


class ScalePaths(msgspec.Struct, frozen=True):
    """The field paths of the scale subresource, without the leading dot."""

    replicas: str = "spec.replicas"
    status_replicas: str = "status.replicas"
    selector: str = "spec.selector"


class ResourceType:
    """One served (group, version, resource)."""

    def __init__(
        self,
        *,
        group: str,
        version: str,
        kind: str,
        plural: str,
        singular: str = "",
        list_kind: str = "",
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        namespaced: bool = True,
        verbs: tuple[str, ...] = VERBS,
        subresources: tuple[Subresource, ...] = (),
        columns: tuple[PrinterColumn, ...] = (),
        definition: str = "",
        schema: dict[str, Any] | None = None,
        crd: str = "",
        scale: ScalePaths | None = None,
        deprecation: str = "",
        storage: bool = True,
        selectable_fields: tuple[str, ...] = (),
    ) -> None:
        self.group = group
        self.version = version
        self.kind = kind
        self.plural = plural
        self.singular = singular or kind.lower()
        self.list_kind = list_kind or f"{kind}List"
        self.short_names = short_names
        self.categories = categories
        self.namespaced = namespaced
        self.verbs = verbs
        self.subresources = subresources
        self.columns = columns
        self.definition = definition
        """The OpenAPI name of a built-in type; "" for a custom one."""
        self.schema = schema
        """The `openAPIV3Schema` of a custom type; None for a built-in one, or where there is none."""
        self.crd = crd
        """The name of the CustomResourceDefinition it comes from."""
        self.scale = scale
        self.deprecation = deprecation
        """The warning of a deprecated version; "" for a current one."""
        self.storage = storage
        self.selectable_fields = selectable_fields
        """Field selectors of a custom type besides name and namespace: `spec.colour`."""
        self.made: dict[str, Any] = {}
        """Values that are compiled from the schema, kept as long as the type is served."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`plural.group`, as messages and RBAC write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def builtin(self) -> bool:
        return not self.crd

    @property
    def stored(self) -> bool:
        """Whether its objects are stored; reviews and bindings are only posted."""
        return "get" in self.verbs

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)

    @cached_property
    def shape(self) -> FieldShape:
        """How objects of this type are merged and tracked."""
        if self.definition:
            return builtin_shape(self.definition)
        shape = schema_shape({"type": "object", **(self.schema or {})})
        if shape.kind == "map":
            shape.kind = "struct"
        for name in ("apiVersion", "kind"):
            shape.fields[name] = FieldShape("string")
        shape.fields["metadata"] = builtin_shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        return shape

    def __repr__(self) -> str:
        return f"<ResourceType {self.resource}/{self.version}>"


EVENTS_GROUP = "events.k8s.io"

_EVENT_FIELDS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
"""The names of the same field in core/v1 and in events.k8s.io/v1."""
_LEFT_OUT_EMPTY = ("reportingController", "reportingInstance")
_TO_EVENTS = dict(_EVENT_FIELDS)
_TO_CORE = {theirs: ours for ours, theirs in _EVENT_FIELDS}


def storage_group(type: ResourceType) -> str:
    return "" if type.group == EVENTS_GROUP else type.group


def key_of(type: ResourceType, namespace: str, name: str) -> Key:
    return Key(storage_group(type), type.kind, namespace if type.namespaced else "", name)


def to_version(type: ResourceType, raw: Raw) -> Raw:
    """A stored object converted to the version of the type."""
    if raw.get("apiVersion") == type.api_version:
        return raw
    if type.group == EVENTS_GROUP:
        return _renamed(raw, _TO_EVENTS, type.api_version)
    if _is_old_autoscaler(type):
        return autoscalers.to_v1(raw)
    return {**raw, "apiVersion": type.api_version}


def to_storage(type: ResourceType, raw: Raw) -> Raw:
    """An object of the version of the type, converted to the version that is stored."""
    if type.group == EVENTS_GROUP:
        return _renamed(raw, _TO_CORE, "v1")
    if _is_old_autoscaler(type) and raw.get("apiVersion") == type.api_version:
        return autoscalers.to_v2(raw)
    return raw


def _is_old_autoscaler(type: ResourceType) -> bool:
    return type.builtin and type.api_version == autoscalers.V1


def _renamed(raw: Raw, names: dict[str, str], api_version: str) -> Raw:
    renamed = {names.get(name, name): value for name, value in raw.items()}
    if names is _TO_EVENTS:
        for name in _LEFT_OUT_EMPTY:
            if not renamed.get(name):
                renamed.pop(name, None)
    return {**renamed, "apiVersion": api_version}
