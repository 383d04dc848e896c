"""Labels and the selectors over them."""

from __future__ import annotations

import re
from typing import Any

from holdfast.api.name_rules import dns_label, dns_subdomain, label_key, label_value
from holdfast.machinery.schema.field_errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    field_problem,
)

Found = list[FieldError]
Part = dict[str, Any]

_NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ONE_VALUE = "must be specified single value when `operator` is 'Lt' or 'Gt'"
_ONE_FIELD = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
_NO_OPERATOR = "not a valid selector operator"


def check_labels(found: Found, labels: dict[str, str], path: str) -> None:
    for key, value in labels.items():
        found.extend(field_problem(INVALID, path, key, message) for message in label_key(key))
        found.extend(field_problem(INVALID, path, value, message) for message in label_value(value))


def check_key(found: Found, key: str, path: str) -> None:
    found.extend(field_problem(INVALID, path, key, message) for message in label_key(key))


def check_label_selector(found: Found, selector: Part | None, path: str) -> None:
    if not selector:
        return
    check_labels(found, selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, wanted in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        _check_operator(found, wanted, where, numbers=False)
        check_key(found, wanted.get("key", ""), f"{where}.key")
        _check_values(found, wanted, where)


def _check_values(found: Found, wanted: Part, where: str) -> None:
    for i, value in enumerate(wanted.get("values") or ()):
        place = f"{where}.values[{i}]"
        found.extend(field_problem(INVALID, place, value, message) for message in label_value(value))


def _check_operator(found: Found, wanted: Part, where: str, numbers: bool) -> None:
    operator, values = wanted.get("operator", ""), wanted.get("values") or ()
    place = f"{where}.values"
    if operator in ("In", "NotIn"):
        if not values:
            found.append(field_problem(REQUIRED, place, detail=_NEEDS_VALUES))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            found.append(field_problem(FORBIDDEN, place, detail=_NO_VALUES))
    elif numbers and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(field_problem(REQUIRED, place, detail=_ONE_VALUE))
    else:
        found.append(field_problem(INVALID, f"{where}.operator", operator, _NO_OPERATOR))


def check_node_selector_term(found: Found, term: Part, path: str, strict: bool) -> None:
    """Preferred terms may have values that no label can have."""
    for i, wanted in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        _check_operator(found, wanted, where, numbers=True)
        check_key(found, wanted.get("key", ""), f"{where}.key")
        if strict:
            _check_values(found, wanted, where)
    for i, wanted in enumerate(term.get("matchFields") or ()):
        _check_field(found, wanted, f"{path}.matchFields[{i}]")


def _check_field(found: Found, wanted: Part, where: str) -> None:
    operator, values = wanted.get("operator", ""), wanted.get("values") or ()
    if operator not in ("In", "NotIn"):
        found.append(field_problem(INVALID, f"{where}.operator", operator, _NO_OPERATOR))
    elif len(values) != 1:
        found.append(field_problem(REQUIRED, f"{where}.values", detail=_ONE_FIELD))
    key = wanted.get("key", "")
    if key != "metadata.name":
        found.append(field_problem(INVALID, f"{where}.key", key, "not a valid field selector key"))
        return
    for i, value in enumerate(values):
        place = f"{where}.values[{i}]"
        found.extend(field_problem(INVALID, place, value, message) for message in dns_subdomain(value))


# Validation of names, labels and ports, with the API server's messages.
# Each function returns the errors of a text.


__all__ = ["dns_label", "dns_subdomain", "env_name", "label_key", "label_value", "port_name"]

_is_port_name = re.compile("[-a-z0-9]+").fullmatch


def port_name(text: str) -> list[str]:
    found: list[str] = []
    if len(text) > 15:
        found.append("must be no more than 15 characters")
    if _is_port_name(text) is None:
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= char <= "z" for char in text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def env_name(text: str) -> list[str]:
    if any(not char.isascii() or not char.isprintable() or char == "=" for char in text):
        return [_BAD_ENV]
    return []


_BAD_ENV = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
