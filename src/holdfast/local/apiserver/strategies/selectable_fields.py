"""The fields a CustomResourceDefinition says its objects can be selected by."""

from __future__ import annotations

import re
from typing import Any

from holdfast.local.apiserver import field_errors as fields
from holdfast.local.apiserver.field_errors import FieldError
from holdfast.local.store import Raw
from holdfast.machinery.schema import field_errors as problems

MOST = 8
_TOKENS = re.compile(r"[.\[\]]|[^.\[\]]+")
_TYPES = ("string", "boolean", "integer")


def check_selectable_fields(version: Raw, path: str) -> list[FieldError]:
    """Of one version, whose own path in the definition is given."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    listed = version.get("selectableFields") or ()
    known: set[str] = set()
    found: list[FieldError] = []
    for i, each in enumerate(listed):
        field, json_path = f"{path}.selectableFields[{i}].jsonPath", each.get("jsonPath")
        if not json_path:
            found.append(fields.required(field))
            continue
        meant, why = _field_at(schema, json_path)
        if meant is None:
            found.append(fields.invalid(field, json_path, f"is an invalid path: {why}"))
            continue
        if json_path.startswith(".metadata."):
            found.append(fields.invalid(field, json_path, "must not point to fields in metadata"))
        if meant.get("type") not in _TYPES:
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed."
            )
            found.append(fields.invalid(field, json_path, why))
        if json_path in known:
            found.append(fields.duplicate(field, json_path))
        known.add(json_path)
    if len(known) > MOST:
        text = f"Too many: {len(known)}: must have at most {MOST} items"
        found.append(FieldError(problems.TOO_MANY, f"{path}.selectableFields", text))
    return found


def _field_at(schema: Raw, json_path: str) -> tuple[Raw | None, str]:
    """The schema of the field a path leads to; or why it leads nowhere."""
    here: Any = schema
    tokens = _TOKENS.findall(json_path)
    while tokens:
        token = tokens.pop(0)
        if token == "[":
            return None, "array notation is not allowed"
        if token != ".":
            return None, f"expected [ or . but got: {token}"
        if not tokens:
            return None, "unexpected end of JSON path"
        name = tokens.pop(0)
        if here.get("properties") is not None:
            here = here["properties"].get(name)
        else:
            here = here.get("additionalProperties")
        if not isinstance(here, dict):
            return None, "does not refer to a valid field"
    return here, ""
