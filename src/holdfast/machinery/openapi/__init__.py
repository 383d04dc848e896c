"""The OpenAPI documents from which clients learn types.

    documents  versions 2 and 3, as whole documents
    models     the schemas in them

`kubectl explain`, `apply` and `diff` read version 3, one document per group and version; older tools
read version 2, one document for everything. Both have the same definitions and operations.
"""

from holdfast.machinery.openapi.documents import openapi_v2, openapi_v3, openapi_v3_paths

__all__ = ["openapi_v2", "openapi_v3", "openapi_v3_paths"]
