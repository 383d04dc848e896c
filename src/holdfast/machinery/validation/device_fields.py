"""Fields that claims, classes, slices and taint rules have in common: names of drivers, pools and
attributes, taints and tolerations, binding conditions, CEL selectors, parameters, conditions.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from holdfast.api.name_rules import dns_label, dns_subdomain, label_key, label_value
from holdfast.machinery.schema.custom.cel import depth_problem
from holdfast.machinery.schema.device_selectors import SelectorCompileError, compiled
from holdfast.machinery.schema.field_errors import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_MANY,
    FieldError,
    field_problem,
    not_supported,
    too_long,
)

Found = list[FieldError]
Part = dict[str, Any]
Check = Callable[[Found, Any, str], None]

MAX_SELECTORS = 32
MAX_CONFIGS = 32
_MAX_DRIVER = 63
_MAX_POOL = 253
_MAX_ID = 32
_MAX_EXPRESSION = 10 * 1024
_MAX_PARAMETERS = 10 * 1024
_MAX_BINDING_CONDITIONS = 4
_MAX_ADDRESSES = 16
_MAX_REASON, _MAX_MESSAGE = 1024, 32 * 1024
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_STATUSES = ("False", "True", "Unknown")

_is_identifier = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch
_BAD_IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_is_reason = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?").fullmatch
_BAD_REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used "
    "for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_is_uuid = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_BAD_UUID = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
    "hexadecimal characters"
)
_BAD_ADDRESS = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


def check_list(
    found: Found,
    items: list[Any] | None,
    path: str,
    most: int,
    check: Check,
    key: Callable[[Any], Hashable] | None = None,
) -> None:
    """At most so many items (-1: any number), each valid; with `key`, no two with the same one."""
    items = items or []
    if 0 <= most < len(items):
        message = f"Too many: {len(items)}: must have at most {most} items"
        found.append(FieldError(TOO_MANY, path, message))
        return
    for i, item in enumerate(items):
        check(found, item, f"{path}[{i}]")
    if key is None:
        return
    seen: set[Hashable] = set()
    for i, item in enumerate(items):
        identity = key(item)
        if identity in seen:
            found.append(field_problem(DUPLICATE, f"{path}[{i}]", identity))
        seen.add(identity)


def name_of(part: Part) -> str:
    return str(part.get("name", ""))


def check_label(found: Found, name: str, path: str) -> None:
    """Names of devices, requests and counters."""
    found.extend(field_problem(INVALID, path, name, message) for message in dns_label(name))


def check_driver(found: Found, name: str, path: str) -> None:
    if not name:
        found.append(field_problem(REQUIRED, path))
        return
    if len(name) > _MAX_DRIVER:
        found.append(too_long(path, _MAX_DRIVER))
    problems = dns_subdomain(name.lower())
    found.extend(field_problem(INVALID, path, name, message) for message in problems)


def check_pool_name(found: Found, name: str, path: str) -> None:
    if not name:
        found.append(field_problem(REQUIRED, path))
        return
    if len(name) > _MAX_POOL:
        found.append(too_long(path, _MAX_POOL))
    for part in name.split("/"):
        problems = dns_subdomain(part)
        found.extend(field_problem(INVALID, path, part, message) for message in problems)


def check_qualified_name(found: Found, name: str, path: str) -> None:
    """`id` or `domain/id`, the name of an attribute or capacity."""
    parts = name.split("/")
    if len(parts) == 1:
        _check_identifier(found, name, path)
    elif len(parts) == 2:
        domain, identifier = parts
        if domain:
            check_driver(found, domain, path)
        else:
            found.append(field_problem(INVALID, path, "", "the domain must not be empty"))
        if identifier:
            _check_identifier(found, identifier, path)
        else:
            found.append(field_problem(INVALID, path, "", "the name must not be empty"))


def check_full_name(found: Found, name: str, path: str) -> None:
    check_qualified_name(found, name, path)
    if "/" not in name:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(field_problem(INVALID, path, name, why))


def _check_identifier(found: Found, text: str, path: str) -> None:
    if len(text) > _MAX_ID:
        found.append(too_long(path, _MAX_ID))
    if _is_identifier(text) is None:
        found.append(field_problem(INVALID, path, text, _BAD_IDENTIFIER))


def check_uuid(found: Found, text: str, path: str) -> None:
    if _is_uuid(text) is None:
        found.append(field_problem(INVALID, path, text, _BAD_UUID))


def check_device_taint(found: Found, taint: Part, path: str) -> None:
    key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
    found.extend(field_problem(INVALID, f"{path}.key", key, message) for message in label_key(key))
    found.extend(
        field_problem(INVALID, f"{path}.value", value, message) for message in label_value(value)
    )
    if not effect:
        found.append(field_problem(REQUIRED, f"{path}.effect"))
    elif effect not in _EFFECTS:
        found.append(not_supported(f"{path}.effect", effect, _EFFECTS))


def check_device_tolerations(found: Found, tolerations: list[Part] | None, path: str) -> None:
    for i, toleration in enumerate(tolerations or ()):
        _check_device_toleration(found, toleration, f"{path}[{i}]")


def _check_device_toleration(found: Found, toleration: Part, path: str) -> None:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if key:
        found.extend(field_problem(INVALID, f"{path}.key", key, message) for message in label_key(key))
    if operator == "Exists":
        if value:
            why = "must be empty for operator `Exists`"
            found.append(field_problem(INVALID, f"{path}.value", value, why))
    elif operator == "Equal":
        problems = label_value(value)
        found.extend(field_problem(INVALID, f"{path}.value", value, message) for message in problems)
    elif not operator:
        found.append(field_problem(REQUIRED, f"{path}.operator"))
    else:
        found.append(not_supported(f"{path}.operator", operator, _OPERATORS))
    if effect and effect not in _EFFECTS:
        found.append(not_supported(f"{path}.effect", effect, _EFFECTS))


def check_binding_conditions(found: Found, part: Part, path: str) -> None:
    wanted = part.get("bindingConditions") or []
    failures = part.get("bindingFailureConditions") or []
    lists = (("bindingConditions", wanted), ("bindingFailureConditions", failures))
    for field, conditions in lists:
        check_list(found, conditions, f"{path}.{field}", _MAX_BINDING_CONDITIONS, _check_condition_name)
    for field, conditions in lists:
        for i, condition in enumerate(conditions):
            where = f"{path}.{field}[{i}]"
            if condition in conditions[:i]:
                found.append(field_problem(DUPLICATE, where, condition))
            if field == "bindingFailureConditions" and condition in wanted:
                why = "bindingFailureConditions must not overlap with bindingConditions"
                found.append(field_problem(INVALID, where, condition, why))
    if failures and not wanted:
        why = "bindingConditions are required to use bindingFailureConditions"
        found.append(field_problem(INVALID, f"{path}.bindingConditions", None, why))
    if wanted and not failures:
        why = "bindingFailureConditions are required to use bindingConditions"
        found.append(field_problem(INVALID, f"{path}.bindingFailureConditions", None, why))


def _check_condition_name(found: Found, name: str, path: str) -> None:
    found.extend(field_problem(INVALID, path, name, message) for message in label_key(name))


def check_selector(found: Found, selector: Part, path: str) -> None:
    cel = selector.get("cel")
    if cel is None:
        found.append(field_problem(REQUIRED, f"{path}.cel"))
        return
    expression, where = cel.get("expression", ""), f"{path}.cel.expression"
    if len(expression.encode()) > _MAX_EXPRESSION:
        found.append(too_long(where, _MAX_EXPRESSION))
        return
    problem = depth_problem(expression)  # the compiler descends into what is nested
    if not problem:
        try:
            compiled(expression)
        except SelectorCompileError as error:
            problem = str(error)
    if problem:
        found.append(field_problem(INVALID, where, expression, problem))


def check_configuration(found: Found, config: Part, path: str) -> None:
    """The configuration of a class, or that part of one of a claim."""
    opaque = config.get("opaque")
    if opaque is None:
        found.append(field_problem(REQUIRED, f"{path}.opaque"))
        return
    check_driver(found, opaque.get("driver", ""), f"{path}.opaque.driver")
    parameters, where = opaque.get("parameters"), f"{path}.opaque.parameters"
    if parameters is None:
        found.append(field_problem(REQUIRED, where))
    else:
        check_driver_data(found, parameters, where)


def check_driver_data(found: Found, data: Any, path: str) -> None:
    """An opaque JSON object."""
    if len(msgspec.json.encode(data)) > _MAX_PARAMETERS:
        found.append(too_long(path, _MAX_PARAMETERS))
    elif not isinstance(data, dict):
        why = "must be a valid JSON object"
        found.append(field_problem(INVALID, path, "<value omitted>", why))


def check_addresses(found: Found, addresses: list[str] | None, path: str) -> None:
    check_list(found, addresses, path, _MAX_ADDRESSES, _check_address, str)


def _check_address(found: Found, address: str, path: str) -> None:
    try:
        if "/" not in address:
            raise ValueError(address)
        parsed = ipaddress.ip_interface(address)
    except ValueError:
        found.append(field_problem(INVALID, path, address, _BAD_ADDRESS))
        return
    if str(parsed) != address:
        why = f'must be in canonical form ("{parsed}")'
        found.append(field_problem(INVALID, path, address, why))


def check_conditions(found: Found, conditions: list[Part] | None, path: str, most: float) -> None:
    """Conditions with type, status, reason and time, as most kinds have them."""
    conditions = conditions or []
    if len(conditions) > most:
        message = f"Too many: {len(conditions)}: must have at most {most} items"
        found.append(FieldError(TOO_MANY, path, message))
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        where = f"{path}[{i}]"
        type, status = condition.get("type", ""), condition.get("status", "")
        if type in seen:
            found.append(field_problem(DUPLICATE, where, type))
        seen.add(type)
        if not type:
            found.append(field_problem(REQUIRED, f"{where}.type", detail="is required"))
        else:
            _check_condition_name(found, type, f"{where}.type")
        if not status:
            found.append(field_problem(REQUIRED, f"{where}.status"))
        elif status not in _STATUSES:
            found.append(not_supported(f"{where}.status", status, _STATUSES))
        if condition.get("observedGeneration", 0) < 0:
            value, why = condition["observedGeneration"], "must be greater than or equal to zero"
            found.append(field_problem(INVALID, f"{where}.observedGeneration", value, why))
        if not condition.get("lastTransitionTime"):
            found.append(field_problem(REQUIRED, f"{where}.lastTransitionTime"))
        _check_reason(found, condition, where)


def _check_reason(found: Found, condition: Part, where: str) -> None:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    if not reason:
        found.append(field_problem(REQUIRED, f"{where}.reason"))
    else:
        if _is_reason(reason) is None:
            found.append(field_problem(INVALID, f"{where}.reason", reason, _BAD_REASON))
        if len(reason) > _MAX_REASON:
            found.append(too_long(f"{where}.reason", _MAX_REASON))
    if len(message) > _MAX_MESSAGE:
        found.append(too_long(f"{where}.message", _MAX_MESSAGE))
