"""Filling in what a user left out, as an API server does before it looks any closer.

Defaults belong to types, wherever an object has a part of that type: a container in a Deployment's
template gets what a container in a pod gets. `tables` has the plain values, the other modules what
depends on other fields.
"""

from __future__ import annotations

from typing import Any

from holdfast.machinery.schema.custom import defaulted
from holdfast.machinery.schema.defaults.walk import defaulter
from holdfast.machinery.schema.types import ResourceType


def apply_defaults(type: ResourceType, raw: dict[str, Any]) -> dict[str, Any]:
    """The object with the defaults of its type; the same object when there is nothing to add."""
    if not type.definition:
        return defaulted(type, raw)
    fill = defaulter(type.shape)
    if fill is None:
        return raw
    filled: dict[str, Any] = fill(raw)
    return filled
