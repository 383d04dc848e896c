"""A type of object the server knows, built in or brought by a CustomResourceDefinition."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

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
    """`pods/status`: the name is what stands after the slash."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    """Of the kind it takes, where that is not the parent's: Scale is of autoscaling/v1."""
    version: str = ""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where the scale subresource of a kind finds its numbers, without the leading dot."""

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
        """What to warn users of this version with; "" when it is current."""
        self.storage = storage
        self.selectable_fields = selectable_fields
        """Those a custom type is selected by besides its name and namespace: `spec.colour`."""
        self.made: dict[str, Any] = {}
        """What others have made of the schema, kept for as long as the type is served."""

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
        """Whether objects of it are kept; reviews and bindings are only posted."""
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
