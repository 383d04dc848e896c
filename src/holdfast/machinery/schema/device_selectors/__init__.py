"""CEL expressions that select devices (DRA), as Kubernetes evaluates them.

    program     a compiled selector: what it reads of a device, and whether a device matches
    syntax      text to a tree
    checker     static types
    evaluation  a tree evaluated on one device
    functions   operators and functions
    values      values, equality and order
    library     expressions with times, which the CEL library evaluates

cel-go's rules are rebuilt here and not taken from the CEL library, because the library lacks
`cel.bind`, optional values, and maps with a default, which selectors use.

May import `machinery.schema.custom` and `api`.
"""

from holdfast.machinery.schema.device_selectors.program import (
    DeviceValues,
    SelectorCompileError,
    SelectorProgram,
    compiled,
    with_hint,
)
from holdfast.machinery.schema.device_selectors.values import SelectorRuntimeError

__all__ = [
    "DeviceValues",
    "SelectorCompileError",
    "SelectorProgram",
    "SelectorRuntimeError",
    "compiled",
    "with_hint",
]
