"""Objects of custom kinds: read, defaulted and judged by the schema of their definition.

read       fields the schema does not have fall out, and nulls where none are allowed
defaulted  what the schema gives where nothing was said
check      types, ranges, patterns, alternatives, lists that are sets or maps
weight     what checking costs, so that it is done where it keeps nobody waiting
"""

from holdfast.machinery.schema.custom.pruning import defaulted, read
from holdfast.machinery.schema.custom.validation import check, weight

__all__ = ["check", "defaulted", "read", "weight"]
