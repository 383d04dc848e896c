"""Default values, as an API server sets them before validation.

    walk      constant defaults, by type
    computed  defaults that depend on other fields

A default belongs to a type wherever it occurs: a container in a Deployment's template gets the same
defaults as one in a pod.
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
