"""What an API server rejects in a well-formed object of a built-in kind, in its words.

    table             the rules of each kind
    pods, placement   containers and pod specs; affinity, tolerations, spread
    metadata, names   metadata; labels and label selectors
    others            resources, nodes, volumes, claims, disruption budgets, priority classes
    crds              CustomResourceDefinitions
    own_kinds         Reservations, Queues and PodGroups

Objects are validated after decoding and defaulting. Rules that need the cluster's
other objects, and those of updates, are in `machinery.strategies`.
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
