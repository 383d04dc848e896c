"""What an API server refuses in an object that is well-formed, for built-in kinds, in its words.

Metadata, and what may change in an update, are the server's; here is what makes a spec unacceptable
whatever came before: of pods and the templates they are made from, nodes, volumes and claims, budgets,
priorities, and the schemas of custom kinds. An object is looked at after it was read and defaulted.
"""

from __future__ import annotations

from typing import Any

from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.validation.table import CHECKS


def check_builtin(type: ResourceType, raw: dict[str, Any]) -> list[FieldError]:
    check = CHECKS.get((type.group, type.kind))
    if check is None:
        return []
    found: list[FieldError] = []
    check(found, raw)
    return found
