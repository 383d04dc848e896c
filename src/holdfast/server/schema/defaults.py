"""Filling in what a user left out."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.types import ResourceType


def apply_defaults(type: ResourceType, raw: dict[str, Any]) -> dict[str, Any]:
    """The object with the defaults its type has."""
    return raw
