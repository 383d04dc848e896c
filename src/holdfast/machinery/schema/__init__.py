"""The types an API server knows: built-in ones and those of CustomResourceDefinitions.

    catalogue = Catalogue()
    type = catalogue.resource("apps", "v1", "deployments")
    raw, problems = read_object(type, body)   # malformed: 400; unknown fields: 400 or a warning
    raw = apply_defaults(type, raw)

    catalogue, types            all types; one type, and its objects in storage and in a version
    shapes                      fields, lists and maps as merging and tracking need them
    decoding, scalars           strict decoding; scalar values
    defaults                    default values; default_values and pod_defaults have them
    custom                      objects of custom kinds: pruning, validation, rules
    cel                         the Common Expression Language
    device_selectors            CEL expressions that select devices
    field_errors                validation errors in Kubernetes' words

May import `api`; knows nothing of HTTP.
"""

from typing import Any

from holdfast.machinery.schema import decoding
from holdfast.machinery.schema.custom import pruning
from holdfast.machinery.schema.decoding import suggestion
from holdfast.machinery.schema.defaults import apply_defaults
from holdfast.machinery.schema.field_errors import MALFORMED, UNKNOWN, FieldError, strict_error
from holdfast.machinery.schema.types import PrinterColumn, ResourceType, ScalePaths, Subresource

__all__ = [
    "MALFORMED",
    "UNKNOWN",
    "FieldError",
    "PrinterColumn",
    "ResourceType",
    "ScalePaths",
    "Subresource",
    "apply_defaults",
    "read_object",
    "strict_error",
    "suggestion",
]


def read_object(type: ResourceType, raw: dict[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    """The decoded object, before defaults, and its malformed and unknown fields."""
    if type.definition:
        return decoding.read(type.definition, raw)
    return pruning.read(type, raw)
