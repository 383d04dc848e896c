"""Validation of custom objects by their schema, with the messages of Kubernetes' validator.

A schema is compiled into a list of checks per part; each takes a value and its path and adds its errors
to the list. String formats that are not in `FORMATS` are not checked.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable
from datetime import date
from math import inf
from typing import Any
from urllib.parse import urlsplit

from holdfast.api.errors import MalformedText
from holdfast.api.times import parse_duration, parse_time
from holdfast.machinery.schema.custom.cel import check_rules, has_only_own_rules, has_rules
from holdfast.machinery.schema.custom.regexp import BadPattern, Regexp, TooCostly, compiled
from holdfast.machinery.schema.field_errors import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    FieldError,
    field_problem,
    not_supported,
    quoted,
)
from holdfast.machinery.schema.types import ResourceType

Schema = dict[str, Any]
Problems = list[FieldError]
Check = Callable[[Any, str, Problems], None]

_BLOCKING = frozenset({REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID})
_PATTERN_PER_BYTE = 20.0
"""Instructions of a pattern that cost about as much as what else is done with a byte."""
_RULES_LEFT = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_TYPES = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def weight(type: ResourceType) -> float:
    """What checking an object by its schema may cost per byte, compared with one that has no patterns
    and rules; infinite as long as the schema is not compiled, which costs more than that."""
    if type.schema is None:
        return 1.0
    return float(type.made.get("weight", inf))


def _weight(schema: Schema) -> float:
    rules = longest = 0
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            rules += len(part.get("x-kubernetes-validations") or ())
            pattern = _pattern(part.get("pattern"))
            longest = max(longest, pattern.size if pattern is not None else 0)
            waiting.extend(part.values())
    return 1 + rules + longest / _PATTERN_PER_BYTE


def check(type: ResourceType, raw: dict[str, Any], old: dict[str, Any] | None) -> Problems:
    """Everything the schema has against an object that was read and defaulted. Where parts of it are
    missing or of another type, rules that are expressions of CEL are not evaluated."""
    problems: Problems = []
    schema = type.schema
    if schema is None:
        return problems
    made = type.made.get("check")
    if made is None:
        made = compile_schema(schema), has_rules(schema), has_only_own_rules(schema)
        type.made["check"], type.made["weight"] = made, _weight(schema)
    by_schema, by_rules, only_own = made
    by_schema(raw, "", problems)
    if not by_rules:
        return problems
    if not any(problem.reason in _BLOCKING for problem in problems):
        check_rules(schema, raw, old, problems)
    elif only_own:
        further: Problems = []
        check_rules(schema, of_right_types(type, raw), None, further)
        problems += unreported(further, problems)
    else:
        problems.append(field_problem(INVALID, "<nil>", None, _RULES_LEFT))
    return problems


def of_right_types(type: ResourceType, raw: dict[str, Any]) -> dict[str, Any]:
    """The object without the fields of other types than its schema wants, and without the lists that
    have such items."""
    kept = raw if type.schema is None else _of_right_type(type.schema, raw)
    return {} if kept is _WRONG else kept


_WRONG: Any = object()


def _of_right_type(schema: Schema, value: Any) -> Any:
    wanted = _wanted_types(schema)
    if value is None:
        return None if schema.get("nullable") or not wanted else _WRONG
    if wanted and not _is_one_of(value, wanted):
        return _WRONG
    if isinstance(value, dict):
        fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
        kept = {
            name: _of_right_type(part, item)
            if isinstance(part := fields.get(name, values), dict)
            else item
            for name, item in value.items()
        }
        return {name: item for name, item in kept.items() if item is not _WRONG}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        items = [_of_right_type(schema["items"], item) for item in value]
        return _WRONG if any(item is _WRONG for item in items) else items
    return value


def unreported(found: Problems, before: Problems) -> Problems:
    """Errors of further checks, without those that may follow from the errors before: errors of the
    same field, or of a field that a part was left out of."""
    known = {_plain(each.field) for each in before}
    left_out = [f"{_plain(each.field)}." for each in before if each.reason == TYPE_INVALID]

    def follows(field: str) -> bool:
        return field in known or any(each.startswith(f"{field}.") for each in left_out)

    return [each for each in found if not follows(_plain(each.field))]


def _plain(path: str) -> str:
    """`requests.cpu` of `requests[cpu]`."""
    return path.replace("[", ".").replace("]", "")


def compile_schema(schema: Schema) -> Check:
    """Compiles a schema to a function that checks values."""
    wanted = _wanted_types(schema)
    nullable = bool(schema.get("nullable"))
    checks: list[Check] = []
    _add_alternatives(checks, schema)
    _add_strings(checks, schema)
    _add_numbers(checks, schema)
    _add_lists(checks, schema)
    _add_enum(checks, schema)
    _add_objects(checks, schema)
    checks.extend(list_checks(schema))

    def check_part(value: Any, path: str, problems: Problems) -> None:
        if value is None and (nullable or not wanted):
            return
        if wanted and not _is_one_of(value, wanted):
            kind = type_name(value)
            names = ",".join(wanted)
            text = f'{path} in body must be of type {names}: "{kind}"'
            problems.append(field_problem(TYPE_INVALID, path, kind, text))
            return
        for one in checks:
            one(value, path, problems)

    return check_part


def _wanted_types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string") is True:
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") in _TYPES else ()


def _is_one_of(value: Any, wanted: tuple[str, ...]) -> bool:
    for name in wanted:
        if isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)):
            return True
    return False


def type_name(value: Any) -> str:
    if value is None:
        return "null"
    for name in ("object", "array", "string", "boolean", "integer"):
        if isinstance(value, _TYPES[name]):
            return name
    return "number"


def _add_alternatives(checks: list[Check], schema: Schema) -> None:
    for word in ("anyOf", "oneOf", "allOf"):
        options = schema.get(word)
        if options and not schema.get("x-kubernetes-int-or-string"):
            checks.append(alternatives(word, [compile_schema(option) for option in options]))
    if isinstance(schema.get("not"), dict):
        checks.append(alternatives("not", [compile_schema(schema["not"])]))


def _add_strings(checks: list[Check], schema: Schema) -> None:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = _pattern(schema.get("pattern"))
    format = schema.get("format", "")
    well_formed = FORMATS.get(format)
    if longest is None and shortest is None and pattern is None and well_formed is None:
        return

    def check_string(value: Any, path: str, problems: Problems) -> None:
        if value.__class__ is not str:
            return
        if longest is not None and len(value) > longest:
            detail = f"may not be more than {longest} bytes"
            problems.append(field_problem(TOO_LONG, path, detail=detail))
        if shortest is not None and len(value) < shortest:
            text = f"{path} in body should be at least {shortest} chars long"
            problems.append(field_problem(INVALID, path, value, text))
        elif pattern is not None and (longest is None or len(value) <= longest):
            try:
                matches = pattern.search(value)
            except TooCostly:
                matches = False
            if not matches:
                text = f"{path} in body should match '{schema['pattern']}'"
                problems.append(field_problem(INVALID, path, value, text))
        if well_formed is not None and not well_formed(value):
            text = f"{path} in body must be of type {format}: {quoted(value)}"
            problems.append(field_problem(TYPE_INVALID, path, value, text))

    checks.append(check_string)


def _pattern(text: Any) -> Regexp | None:
    """A definition kept from before may have one that is refused now: it is not checked."""
    if not isinstance(text, str):
        return None
    try:
        return compiled(text)
    except BadPattern:
        return None


def _add_numbers(checks: list[Check], schema: Schema) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    step = schema.get("multipleOf")
    bits = {"int32": 32, "int64": 64}.get(schema.get("format", ""))
    if low is None and high is None and step is None and bits is None:
        return

    def check_number(value: Any, path: str, problems: Problems) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return

        def report(text: str) -> None:
            problems.append(field_problem(INVALID, path, value, text))

        if step is not None and step > 0 and not (value / step).is_integer():
            report(f"{path} in body should be a multiple of {step}")
        if high is not None and (value >= high if under else value > high):
            report(f"{path} in body should be less than {'' if under else 'or equal to '}{high}")
        if low is not None and (value <= low if over else value < low):
            report(f"{path} in body should be greater than {'' if over else 'or equal to '}{low}")
        if bits is not None and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            report(f"Checked value must be of type integer with format {schema['format']}")

    checks.append(check_number)


def _add_lists(checks: list[Check], schema: Schema) -> None:
    items = schema.get("items")
    check_item = compile_schema(items) if isinstance(items, dict) else None
    most, least = schema.get("maxItems"), schema.get("minItems")
    if check_item is None and most is None and least is None:
        return

    def check_list(value: Any, path: str, problems: Problems) -> None:
        if value.__class__ is not list:
            return
        if most is not None and len(value) > most:
            problems.append(_too_many(path, len(value), most))
        if least is not None and len(value) < least:
            text = f"{path} in body should have at least {least} items"
            problems.append(field_problem(INVALID, path, len(value), text))
        if check_item is not None:
            for i, item in enumerate(value):
                check_item(item, f"{path}[{i}]", problems)

    checks.append(check_list)


def _too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError(TOO_MANY, path, f"Too many: {count}: must have at most {most} items")


def _add_enum(checks: list[Check], schema: Schema) -> None:
    allowed = schema.get("enum")
    if not allowed:
        return

    def check_enum(value: Any, path: str, problems: Problems) -> None:
        if not any(value == one and (value is True) == (one is True) for one in allowed):
            problems.append(not_supported(path, value, allowed))

    checks.append(check_enum)


def _add_objects(checks: list[Check], schema: Schema) -> None:
    required = tuple(schema.get("required") or ())
    fields = {name: compile_schema(part) for name, part in (schema.get("properties") or {}).items()}
    values = schema.get("additionalProperties")
    check_value = compile_schema(values) if isinstance(values, dict) else None
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    embedded = schema.get("x-kubernetes-embedded-resource") is True
    if embedded:
        required = tuple(dict.fromkeys(("apiVersion", "kind", *required)))
    if not (required or fields or check_value or most is not None or least is not None):
        return

    def check_object(value: Any, path: str, problems: Problems) -> None:
        if value.__class__ is not dict:
            return
        before = f"{path}." if path else ""
        if most is not None and len(value) > most:
            problems.append(_too_many(path, len(value), most))
        if least is not None and len(value) < least:
            text = f"{path} in body should have at least {least} properties"
            problems.append(field_problem(INVALID, path, len(value), text))
        for name in required:
            if name not in value or (embedded and name in ("apiVersion", "kind") and not value[name]):
                problems.append(field_problem(REQUIRED, f"{before}{name}"))
        for name, item in value.items():
            inner = fields.get(name, check_value)
            if inner is not None:
                inner(item, f"{before}{name}", problems)

    checks.append(check_object)


def alternatives(word: str, options: list[Check]) -> Check:
    """The check of `anyOf`, `oneOf`, `allOf` or `not`."""

    def check_alternatives(value: Any, path: str, problems: list[FieldError]) -> None:
        tried: list[list[FieldError]] = []
        for option in options:
            found: list[FieldError] = []
            option(value, path, found)
            tried.append(found)
        good = sum(not found for found in tried)
        message = _complaint(word, path, good, len(options))
        if not message:
            return
        problems.append(field_problem(INVALID, "<nil>", "", message))
        if word == "allOf":
            problems.extend(problem for found in tried for problem in found)
        elif word != "not" and not good:
            problems.extend(sorted(tried, key=len)[0])

    return check_alternatives


def _complaint(word: str, path: str, good: int, count: int) -> str:
    if word == "not":
        return f'"{path}" must not validate the schema (not)' if good else ""
    if word == "allOf":
        none = ". None validated" if not good else ""
        return f'"{path}" must validate all the schemas (allOf){none}' if good < count else ""
    if word == "anyOf":
        return "" if good else f'"{path}" must validate at least one schema (anyOf)'
    if good == 1:
        return ""
    found = f"Found {good} valid alternatives" if good else "Found none valid"
    return f'"{path}" must validate one and only one schema (oneOf). {found}'


def list_checks(schema: dict[str, Any]) -> list[Check]:
    """The checks of lists that are sets or maps: no item, or key, occurs twice."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return [_unique(lambda item: item)]
    if kind == "map":
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        return [_unique(lambda item: _keys_of(item, keys))]
    return []


def _keys_of(item: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(item, dict):
        return item
    return {key: item[key] for key in keys if key in item}


def _unique(name: Callable[[Any], Any]) -> Check:
    def check_unique(value: Any, path: str, problems: list[FieldError]) -> None:
        if value.__class__ is not list:
            return
        seen: set[str] = set()
        reported: set[str] = set()
        for i, item in enumerate(value):
            named = name(item)
            text = json.dumps(named, sort_keys=True)
            if text in seen and text not in reported:
                problems.append(field_problem(DUPLICATE, f"{path}[{i}]", named))
                reported.add(text)
            seen.add(text)

    return check_unique


_HOST = re.compile(
    r"(?=.{1,255}$)[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
_UUID = re.compile(
    r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?([0-9a-fA-F])[0-9a-fA-F]{3}-?"
    r"[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
)


def _tried(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_readable(text: str) -> bool:
        try:
            read(text)
        except (ValueError, MalformedText, binascii.Error):
            return False
        return True

    return is_readable


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _uuid(version: str) -> Callable[[str], bool]:
    def is_uuid(text: str) -> bool:
        match = _UUID.fullmatch(text)
        return match is not None and match[1] == version

    return is_uuid


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _tried(lambda text: base64.b64decode(text, validate=True)),
    "cidr": _tried(lambda text: ipaddress.ip_network(text, strict=False)),
    "date": _tried(date.fromisoformat),
    "date-time": _tried(parse_time),
    "datetime": _tried(parse_time),
    "duration": _tried(parse_duration),
    "email": _matches(_EMAIL),
    "hostname": _matches(_HOST),
    "ipv4": _tried(ipaddress.IPv4Address),
    "ipv6": _tried(ipaddress.IPv6Address),
    "mac": _matches(_MAC),
    "uri": _is_uri,
    "uuid": _matches(_UUID),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
}
