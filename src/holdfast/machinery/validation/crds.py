"""Validation of CustomResourceDefinitions besides names: columns, scale, structural schemas.

A schema is structural when every field has its type in one place, outside of alternatives, so that
objects can be pruned and defaulted without guessing.
"""

from __future__ import annotations

from typing import Any

from holdfast.machinery.schema.catalogue import MAX_COLUMNS
from holdfast.machinery.schema.custom.cel import check_limits
from holdfast.machinery.schema.custom.pruning import unknown_in
from holdfast.machinery.schema.custom.regexp import BadPattern, compiled
from holdfast.machinery.schema.custom.validation import compile_schema
from holdfast.machinery.schema.field_errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    FieldError,
    field_problem,
    not_supported,
)

Found = list[FieldError]
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
        # Errors that all versions share are reported once, at the path of v1beta1.
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
        found.append(FieldError(TOO_MANY, path, why))
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


Schema = dict[str, Any]

_NEEDS_DEFAULT = (
    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
    "property"
)
_KINDS = ("atomic", "set", "map")


def check_list_type(found: Found, schema: Schema, path: str) -> None:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    items = schema.get("items")
    where = f"{path}.x-kubernetes-list-type"
    if kind is not None:
        said = schema.get("type", "")
        if said != "array":
            why = "must be array if x-kubernetes-list-type is specified"
            found.append(field_problem(INVALID if said else REQUIRED, f"{path}.type", said, why))
        elif kind == "set" and isinstance(items, dict):
            _check_set_items(found, items, f"{path}.items")
        if kind not in _KINDS:
            found.append(not_supported(where, kind, _KINDS))
    if keys and kind != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(field_problem(REQUIRED if kind is None else INVALID, where, kind, why))
    if kind == "map":
        _check_keys(found, schema, keys, path)
    if kind in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
        why = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        found.append(field_problem(FORBIDDEN, f"{path}.items.nullable", detail=why))


def _check_set_items(found: Found, items: Schema, path: str) -> None:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in (None, "atomic"):
        found.append(field_problem(INVALID, f"{path}.x-kubernetes-list-type", inner, why))
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        found.append(field_problem(INVALID, f"{path}.x-kubernetes-map-type", inner, why))


def _check_keys(found: Found, schema: Schema, keys: list[str], path: str) -> None:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        why = "must not be empty if x-kubernetes-list-type is map"
        found.append(field_problem(REQUIRED, where, detail=why))
    items = schema.get("items")
    if not isinstance(items, dict):
        why = "must have a schema if x-kubernetes-list-type is map"
        found.append(field_problem(REQUIRED, f"{path}.items", detail=why))
        return
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        found.append(field_problem(INVALID, f"{path}.items.type", items.get("type", ""), why))
        return
    fields = items.get("properties") or {}
    for i, key in enumerate(keys):
        place = f"{path}.items.properties[{key}]"
        if key in keys[:i]:
            found.append(field_problem(INVALID, where, keys, "must not contain duplicate entries"))
        if key not in fields:
            why = "entries must all be names of item properties"
            found.append(field_problem(INVALID, where, keys, why))
            continue
        if fields[key].get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            found.append(field_problem(INVALID, f"{place}.type", items["type"], why))
        if key not in (items.get("required") or ()) and "default" not in fields[key]:
            found.append(field_problem(REQUIRED, f"{place}.default", detail=_NEEDS_DEFAULT))
        if fields[key].get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            found.append(field_problem(FORBIDDEN, f"{place}.nullable", detail=why))


_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_NO_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_NOT_IN_ALTERNATIVES = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_EITHER = [{"type": "integer"}, {"type": "string"}]
_OBJECT = ("apiVersion", "kind", "metadata")


def check_schema(found: Found, schema: Schema, path: str) -> None:
    """Everything wrong with the schema of one version."""
    if schema.get("nullable"):
        why = "nullable cannot be true at the root"
        found.append(field_problem(FORBIDDEN, f"{path}.nullable", detail=why))
    mine: Found = []
    _check_part(mine, schema, path, "root")
    mine.sort(key=lambda problem: problem.text)
    found.extend(mine)
    _check_complete(found, schema, path)
    check_limits(found, schema, path)


def _check_part(found: Found, schema: Schema, path: str, level: str) -> None:
    _check_plain(found, schema, path, level)
    check_list_type(found, schema, path)
    if "default" in schema:
        _check_default(found, schema, path)
    items = schema.get("items")
    if isinstance(items, dict):
        _check_part(found, items, f"{path}.items", "item")
    for name, part in (schema.get("properties") or {}).items():
        where = f"{path}.properties[{name}]"
        if level == "root" and name in _OBJECT and "default" in part:
            why = f"must not be set in top-level {name}"
            found.append(field_problem(FORBIDDEN, f"{where}.default", detail=why))
            part = {key: value for key, value in part.items() if key != "default"}
        if level == "root" and name == "metadata":
            _check_metadata(found, part, where)
        else:
            _check_part(found, part, where, "field")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        _check_part(found, values, f"{path}.additionalProperties", "field")
    _check_alternatives(found, schema, path)


def _check_plain(found: Found, schema: Schema, path: str, level: str) -> None:
    kind = schema.get("type", "")
    either = schema.get("x-kubernetes-int-or-string")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    embedded = schema.get("x-kubernetes-embedded-resource")
    if kind and kind not in _TYPES:
        found.append(not_supported(f"{path}.type", kind, _TYPES))
    for word in _UNSUPPORTED:
        if word in schema:
            found.append(field_problem(FORBIDDEN, f"{path}.{word}", detail=f"{word} is not supported"))
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(field_problem(FORBIDDEN, f"{path}.uniqueItems", detail=why))
    if keeps is False:
        why = "must be true or undefined"
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        found.append(field_problem(INVALID, where, False, why))
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        reason = INVALID if kind else REQUIRED
        found.append(field_problem(reason, f"{path}.type", kind, why))
    elif not (kind or either or keeps or "$ref" in schema):
        found.append(field_problem(REQUIRED, f"{path}.type", detail=_NO_TYPE[level]))
    if level == "root" and kind and kind != "object":
        found.append(field_problem(INVALID, f"{path}.type", kind, "must be object at the root"))
    if kind == "array" and not isinstance(schema.get("items"), dict):
        found.append(field_problem(REQUIRED, f"{path}.items", detail="must be specified"))
    _check_maps(found, schema, path, level)
    if embedded and not keeps and not schema.get("properties"):
        why = (
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        )
        found.append(field_problem(REQUIRED, f"{path}.properties", detail=why))
    _check_pattern(found, schema, path)


def _check_maps(found: Found, schema: Schema, path: str, level: str) -> None:
    values = schema.get("additionalProperties")
    if values is not None:
        if level == "root":
            why = "must not be used at the root"
            found.append(field_problem(FORBIDDEN, f"{path}.additionalProperties", detail=why))
        if schema.get("properties") and values is not True:
            why = "additionalProperties and properties are mutual exclusive"
            found.append(field_problem(FORBIDDEN, f"{path}.additionalProperties", detail=why))
    kind = schema.get("x-kubernetes-map-type")
    if kind is not None:
        if schema.get("type") != "object":
            why = "must be object if x-kubernetes-map-type is specified"
            said = schema.get("type", "")
            found.append(field_problem(INVALID if said else REQUIRED, f"{path}.type", said, why))
        if kind not in ("atomic", "granular"):
            where = f"{path}.x-kubernetes-map-type"
            found.append(not_supported(where, kind, ("atomic", "granular")))


def _check_pattern(found: Found, schema: Schema, path: str) -> None:
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            compiled(pattern)
        except BadPattern as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            found.append(field_problem(INVALID, f"{path}.pattern", pattern, why))


def _check_default(found: Found, schema: Schema, path: str) -> None:
    default = schema["default"]
    if unknown_in(schema, default):
        why = "must not have unknown fields"
        found.append(field_problem(INVALID, f"{path}.default", default, why))
    mine: Found = []
    compile_schema(schema)(default, "", mine)
    for problem in mine:
        inside = f".{problem.field}" if problem.field else ""
        found.append(FieldError(problem.reason, f"{path}.default{inside}", problem.message))


def _check_metadata(found: Found, schema: Schema, path: str) -> None:
    """Every object has metadata; a schema may only narrow the name."""
    if schema.get("type") != "object":
        found.append(field_problem(INVALID, f"{path}.type", schema.get("type", ""), "must be object"))
    fields = set(schema.get("properties") or ())
    extra = set(schema) - {"type", "properties", "description", "default"}
    if extra or not fields <= {"name", "generateName"}:
        why = (
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified"
        )
        found.append(field_problem(FORBIDDEN, path, detail=why))


def _check_alternatives(found: Found, schema: Schema, path: str) -> None:
    first = (schema.get("allOf") or [{}])[0]
    for word in ("anyOf", "allOf", "oneOf"):
        options = schema.get(word) or []
        if word == "anyOf" and options == _EITHER:
            continue
        for i, option in enumerate(options):
            skip = word == "allOf" and option is first and option.get("anyOf") == _EITHER
            _check_nested(found, option, f"{path}.{word}[{i}]", skip)
    if isinstance(schema.get("not"), dict):
        _check_nested(found, schema["not"], f"{path}.not")


def _check_nested(found: Found, schema: Schema, path: str, skip_any_of: bool = False) -> None:
    """Inside alternatives values are only narrowed, never described."""
    _check_pattern(found, schema, path)
    for word, why in _NOT_IN_ALTERNATIVES.items():
        if schema.get(word) not in (None, "", False, []) or (word == "default" and word in schema):
            found.append(field_problem(FORBIDDEN, f"{path}.{word}", detail=why))
    if skip_any_of:
        schema = {word: value for word, value in schema.items() if word != "anyOf"}
    if isinstance(schema.get("items"), dict):
        _check_nested(found, schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        where = f"{path}.properties[{name}]"
        _check_nested(found, part, where)
        if name == "metadata":
            why = "must not be specified in a nested context"
            found.append(field_problem(FORBIDDEN, where, detail=why))
    _check_alternatives(found, schema, path)


def _check_complete(found: Found, schema: Schema, path: str) -> None:
    """Fields in an alternative at the root must be defined outside of it."""
    for word in ("anyOf", "allOf", "oneOf"):
        for i, option in enumerate(schema.get(word) or ()):
            _check_described(found, schema, option, path, f"{path}.{word}[{i}]")
    if isinstance(schema.get("not"), dict):
        _check_described(found, schema, schema["not"], path, f"{path}.not")


def _check_described(found: Found, outer: Schema, inner: Schema, path: str, said_at: str) -> None:
    fields = outer.get("properties") or {}
    for name, part in (inner.get("properties") or {}).items():
        where, said = f"{path}.properties[{name}]", f"{said_at}.properties[{name}]"
        if name in fields:
            _check_described(found, fields[name], part, where, said)
        elif isinstance(outer.get("additionalProperties"), dict):
            _check_described(found, outer["additionalProperties"], part, where, said)
        else:
            found.append(field_problem(REQUIRED, where, detail=f"because it is defined in {said}"))
    if isinstance(inner.get("items"), dict):
        where, said = f"{path}.items", f"{said_at}.items"
        if isinstance(outer.get("items"), dict):
            _check_described(found, outer["items"], inner["items"], where, said)
        else:
            found.append(field_problem(REQUIRED, where, detail=f"because it is defined in {said}"))
    for word in ("anyOf", "allOf", "oneOf"):
        for i, option in enumerate(inner.get(word) or ()):
            _check_described(found, outer, option, path, f"{said_at}.{word}[{i}]")
