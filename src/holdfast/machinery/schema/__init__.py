"""The types an API server knows: built-in ones and those of CustomResourceDefinitions.

    catalogue = Catalogue()
    type = catalogue.resource("apps", "v1", "deployments")
    raw, problems = read_object(type, body)   # malformed: 400; unknown fields: 400 or a warning
    raw = apply_defaults(type, raw)
    problems = check_values(type, raw)        # 422, one cause each

    catalogue, types              all types; one type
    definitions, crd              built-in types; types of CustomResourceDefinitions
    versions                      an object in the versions of its kind
    decoding, scalars, shapes     strict decoding; scalar values; lists and maps as merging sees them
    defaults, custom              default values; custom objects by their schema
    validation, field_errors      checks before and after defaulting; errors in Kubernetes' words

May import `api`; knows nothing of HTTP.
"""

from holdfast.machinery.schema.catalogue import Catalogue, holdfast_catalogue, open_type
from holdfast.machinery.schema.crd import crd_warnings
from holdfast.machinery.schema.decoding import suggestion
from holdfast.machinery.schema.defaults import apply_defaults
from holdfast.machinery.schema.field_errors import MALFORMED, UNKNOWN, FieldError, strict_error
from holdfast.machinery.schema.types import PrinterColumn, ResourceType, ScalePaths, Subresource
from holdfast.machinery.schema.validation import check_values, read_object

__all__ = [
    "MALFORMED",
    "UNKNOWN",
    "Catalogue",
    "FieldError",
    "PrinterColumn",
    "ResourceType",
    "ScalePaths",
    "Subresource",
    "apply_defaults",
    "check_values",
    "crd_warnings",
    "holdfast_catalogue",
    "open_type",
    "read_object",
    "strict_error",
    "suggestion",
]
