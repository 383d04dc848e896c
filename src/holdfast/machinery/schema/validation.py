"""Is this object acceptable? Asked in two steps, because defaults are filled in between.

`read_object` reads what came over the wire: malformed values, unknown fields, and the object
without them. `check_values` judges an object that was read and defaulted.
"""

from __future__ import annotations

from typing import Any

from holdfast.machinery.schema import custom, decoding
from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.validation import check_builtin
from holdfast.machinery.validation.own_kinds import check_own_kinds

Raw = dict[str, Any]


def read_object(type: ResourceType, raw: Raw) -> tuple[Raw, list[FieldError]]:
    """The object as it would be kept, before defaults; and what is malformed or unknown in it."""
    if type.definition:
        return decoding.read(type.definition, raw)
    return custom.read(type, raw)


def check_values(type: ResourceType, raw: Raw, old: Raw | None = None) -> list[FieldError]:
    """What makes an object that was read and defaulted unacceptable.

    `old` is what it replaces; rules of custom kinds may compare the two.
    """
    if type.definition:
        return check_builtin(type, raw)
    return custom.check(type, raw, old) or check_own_kinds(type, raw)
