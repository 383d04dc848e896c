"""What an API server refuses in an object that is well-formed, for built-in kinds.

The rules are those of `holdfast.api`, which the simulator uses too; here they are put into Kubernetes'
words, with the value that is wrong.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.api.validation import validate
from holdfast.server.schema.problems import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    Problem,
    field_problem,
    not_supported,
)
from holdfast.server.schema.types import ResourceType

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[]+)")
_CHOICE = re.compile(r"unknown value .*; known: (.*)")


def check_builtin(type: ResourceType, raw: dict[str, Any]) -> list[Problem]:
    if (type.api_version, type.kind) not in KINDS:
        return []
    return [_in_their_words(error, raw) for error in validate(raw)]


def _in_their_words(error: InvalidObject, raw: dict[str, Any]) -> Problem:
    value = value_at(raw, error.field)
    if error.message.startswith("is required"):
        return field_problem(REQUIRED, error.field, detail=error.message.partition(": ")[2])
    if error.message.startswith("duplicate"):
        return field_problem(DUPLICATE, error.field, value)
    choice = _CHOICE.fullmatch(error.message)
    if choice is not None:
        return not_supported(error.field, value, choice[1].split(", "))
    return field_problem(INVALID, error.field, value, error.message)


def value_at(raw: Any, path: str) -> Any:
    """What an object has at a path such as `spec.containers[0].name`; None if nothing."""
    for index, name in _STEP.findall(path):
        if isinstance(raw, list):
            raw = raw[int(index)] if index.isdigit() and int(index) < len(raw) else None
        elif isinstance(raw, dict):
            raw = raw.get(name or index)
        else:
            return None
    return raw
