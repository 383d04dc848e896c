"""Defaults a custom kind's schema gives."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.types import ResourceType


def custom_defaults(type: ResourceType, raw: dict[str, Any]) -> dict[str, Any]:
    return raw
