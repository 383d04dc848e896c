"""The rules of structural schemas."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.custom.checking import compile_schema
from holdfast.server.schema.custom.reading import unknown_in
from holdfast.server.schema.custom.regexp import BadPattern, compiled
from holdfast.server.schema.custom.rules import check_limits
from holdfast.server.schema.problems import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    Problem,
    field_problem,
    not_supported,
)
from holdfast.server.schema.semantics.lists import check_list_type

Found = list[Problem]
Schema = dict[str, Any]

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
        found.append(Problem(problem.reason, f"{path}.default{inside}", problem.message))


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
    """What an alternative at the root speaks of must be described outside of it."""
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
