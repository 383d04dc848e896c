"""The OpenAPI documents clients learn types from.

`kubectl explain`, `apply` and `diff` read version 3, one document per group and version; older tools
read version 2, one document for everything. Both are made of the same definitions and operations,
spelt in two ways.
"""

from holdfast.machinery.openapi.documents import openapi_v2, openapi_v3, openapi_v3_paths

__all__ = ["openapi_v2", "openapi_v3", "openapi_v3_paths"]
