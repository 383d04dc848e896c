"""Named formats of CEL in Kubernetes: `format.dns1123Label().validate(text)`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date

from holdfast.api.name_rules import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
)
from holdfast.machinery.schema.cel.network import parse_url
from holdfast.machinery.schema.cel.overloads import FORMAT, STRING, STRINGS, Functions, function, method
from holdfast.machinery.schema.cel.times import timestamp
from holdfast.machinery.schema.cel.values import NOTHING, CelRuntimeError, FormatValue, OptionalValue

Rule = Callable[[str], tuple[str, ...]]

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.I)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OF_URL = "URL parse error during conversion from string: "


def _prefix(rule: Rule) -> Rule:
    """A rule for the beginning of a generated name, which may end with a hyphen."""

    def check(text: str) -> tuple[str, ...]:
        return rule(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)

    return check


def _holds(is_valid: Callable[[str], bool], why: str) -> Rule:
    return lambda text: () if is_valid(text) else (why,)


def _uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text)
    except CelRuntimeError as error:
        return (str(error).removeprefix(_OF_URL),)
    return ()


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        timestamp(text)
    except CelRuntimeError:
        return False
    return True


_RULES: dict[str, Rule] = {
    "dns1123Label": dns_label,
    "dns1123Subdomain": dns_subdomain,
    "dns1035Label": dns_1035_label,
    "qualifiedName": label_key,
    "dns1123LabelPrefix": _prefix(dns_label),
    "dns1123SubdomainPrefix": _prefix(dns_subdomain),
    "dns1035LabelPrefix": _prefix(dns_1035_label),
    "labelValue": label_value,
    "uri": _uri,
    "uuid": _holds(lambda text: _UUID.fullmatch(text) is not None, "does not match the UUID format"),
    "byte": _holds(_is_base64, "invalid base64"),
    "date": _holds(_is_date, "invalid date"),
    "datetime": _holds(_is_time, "invalid datetime"),
}


def _named(name: str) -> OptionalValue:
    return OptionalValue(True, FormatValue(name)) if name in _RULES else NOTHING


def _validated(format: FormatValue, text: str) -> OptionalValue:
    """The errors of a text; nothing if it is valid."""
    found = [*_RULES[format.name](text)]
    return OptionalValue(True, found) if found else NOTHING


def _constant(name: str) -> Callable[[], FormatValue]:
    return lambda: FormatValue(name)


FORMATS: Functions = {
    "format.named": [function((STRING,), ("optional_type", FORMAT), _named)],
    "validate": [method((FORMAT, STRING), ("optional_type", STRINGS), _validated)],
    **{f"format.{name}": [function((), FORMAT, _constant(name))] for name in _RULES},
}
