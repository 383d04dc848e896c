"""The documents as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.server.schema.definitions import kubernetes_version
from holdfast.server.schema.openapi.dialects import V2, V3, Dialect
from holdfast.server.schema.openapi.models import model_name, models_of
from holdfast.server.schema.openapi.operations import paths_of
from holdfast.server.schema.types import ResourceType

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
