"""All types the server knows: the built-in ones, and those users bring.

Looking one up is a dictionary access. `generation` grows with every change, so that discovery and
OpenAPI documents are made anew only when they must be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.server.schema import openapi
from holdfast.server.schema.builtin import builtin_types
from holdfast.server.schema.crd import crd_types
from holdfast.server.schema.types import ResourceType


class Catalogue:
    """Types by (group, version, plural)."""

    def __init__(self) -> None:
        self.generation = 1
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        self._kinds: dict[tuple[str, str, str], ResourceType] = {}
        for type in builtin_types():
            self._add(type)

    def __iter__(self) -> Iterator[ResourceType]:
        """Every served type; of one group together, its versions in the order of preference."""
        return iter(list(self._types.values()))

    def resource(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, version, plural))

    def kind(self, group: str, version: str, kind: str) -> ResourceType | None:
        """The type whose objects say this apiVersion and kind."""
        return self._kinds.get((group, version, kind))

    def versions(self, group: str, plural: str) -> list[ResourceType]:
        """All served versions of one resource; objects are kept in the one whose `storage` is set."""
        return [type for type in self._types.values() if (type.group, type.plural) == (group, plural)]

    def add_crd(self, raw: dict[str, Any]) -> tuple[ResourceType, ...]:
        """Serve what a CustomResourceDefinition describes, in place of what it described before."""
        types = crd_types(raw)
        self._drop(raw["metadata"]["name"])
        for type in types:
            self._add(type)
        self.generation += 1
        return types

    def remove_crd(self, name: str) -> None:
        if self._drop(name):
            self.generation += 1

    def openapi_v2(self) -> dict[str, Any]:
        """Everything in one document of OpenAPI 2."""
        return openapi.openapi_v2(self)

    def openapi_v3_paths(self) -> list[str]:
        """The names of the documents of OpenAPI 3: `api/v1`, `apis/apps/v1`."""
        return openapi.openapi_v3_paths(self)

    def openapi_v3(self, path: str) -> dict[str, Any]:
        """One of them."""
        return openapi.openapi_v3(self, path)

    def _add(self, type: ResourceType) -> None:
        self._types[type.group, type.version, type.plural] = type
        self._kinds[type.group, type.version, type.kind] = type

    def _drop(self, name: str) -> bool:
        gone = [type for type in self._types.values() if type.crd == name]
        for type in gone:
            del self._types[type.group, type.version, type.plural]
            self._kinds.pop((type.group, type.version, type.kind), None)
        return bool(gone)
