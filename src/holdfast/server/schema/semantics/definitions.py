"""What a CustomResourceDefinition must have beside its names: columns, scale, structural schemas.

A schema is structural when every field says its type at one place, outside of alternatives, so that
objects can be pruned and defaulted without guessing.
"""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.crd import MAX_COLUMNS
from holdfast.server.schema.problems import (
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    Problem,
    field_problem,
)
from holdfast.server.schema.semantics.structural import check_schema

Found = list[Problem]
Part = dict[str, Any]

_LONGEST_PATH = 4096
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def check_definition(found: Found, raw: Part) -> None:
    versions = [v for v in (raw.get("spec") or {}).get("versions") or [] if isinstance(v, dict)]
    for field, check in (
        ("schema", _check_schema),
        ("subresources", _check_subresources),
        ("additionalPrinterColumns", _check_columns),
    ):
        # What all versions share is complained about once, at the place it had before versions.
        if len({repr(version.get(field)) for version in versions}) == 1:
            top = {"schema": "validation"}.get(field, field)
            check(found, versions[0], f"spec.{top}")
        else:
            for i, version in enumerate(versions):
                check(found, version, f"spec.versions[{i}].{field}")


def _check_schema(found: Found, version: Part, path: str) -> None:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if isinstance(schema, dict):
        check_schema(found, schema, f"{path}.openAPIV3Schema")


def _check_subresources(found: Found, version: Part, path: str) -> None:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    for field, places in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        where, text = f"{path}.scale.{field}", scale.get(field, "")
        if not text:
            if field != "labelSelectorPath":
                found.append(field_problem(REQUIRED, where))
        elif not text.startswith("."):
            found.append(field_problem(INVALID, where, text, _NO_PATH))
        elif not text.startswith(places):
            under = "either .spec or .status" if len(places) > 1 else places[0].rstrip(".")
            why = f"should be a json path under {under}"
            found.append(field_problem(INVALID, where, text, why))


_NO_PATH = "must be a simple json path starting with ."


def _check_columns(found: Found, version: Part, path: str) -> None:
    columns = version.get("additionalPrinterColumns") or ()
    if len(columns) > MAX_COLUMNS:
        why = f"Too many: {len(columns)}: must have at most {MAX_COLUMNS} items"
        found.append(Problem(TOO_MANY, path, why))
        return
    for i, column in enumerate(columns):
        where = f"{path}[{i}]"
        if not column.get("name"):
            found.append(field_problem(REQUIRED, f"{where}.name"))
        kind, format = column.get("type", ""), column.get("format", "")
        why = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not kind:
            found.append(field_problem(REQUIRED, f"{where}.type", detail=why))
        elif kind not in _COLUMN_TYPES:
            found.append(field_problem(INVALID, f"{where}.type", kind, why))
        if format and format not in _COLUMN_FORMATS:
            why = f"must be one of {','.join(_COLUMN_FORMATS)}"
            found.append(field_problem(INVALID, f"{where}.format", format, why))
        text = column.get("jsonPath", "")
        if not text:
            found.append(field_problem(REQUIRED, f"{where}.JSONPath"))
        elif not text.startswith("."):
            found.append(field_problem(INVALID, f"{where}.JSONPath", text, _NO_PATH))
        elif len(text) > _LONGEST_PATH:
            why = f"may not be more than {_LONGEST_PATH} bytes"
            found.append(field_problem(TOO_LONG, f"{where}.JSONPath", detail=why))
