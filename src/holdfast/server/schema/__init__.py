"""What the API server knows of types: built-in ones and those of CustomResourceDefinitions.

    catalogue = Catalogue()
    type = catalogue.resource("apps", "v1", "deployments")
    raw, problems = read_object(type, body)   malformed: 400; unknown fields: 400, a warning, or nothing
    raw = apply_defaults(type, raw)
    problems = check_values(type, raw)        422, one cause each

May import `api`; knows nothing of HTTP.
"""

from holdfast.server.schema.catalogue import Catalogue
from holdfast.server.schema.crd import crd_warnings
from holdfast.server.schema.defaults import apply_defaults
from holdfast.server.schema.problems import MALFORMED, UNKNOWN, Problem, strict_error
from holdfast.server.schema.types import Column, ResourceType, ScalePaths, Subresource
from holdfast.server.schema.validation import check_values, prune, read_object, validate

__all__ = [
    "MALFORMED",
    "UNKNOWN",
    "Catalogue",
    "Column",
    "Problem",
    "ResourceType",
    "ScalePaths",
    "Subresource",
    "apply_defaults",
    "check_values",
    "crd_warnings",
    "prune",
    "read_object",
    "strict_error",
    "validate",
]
