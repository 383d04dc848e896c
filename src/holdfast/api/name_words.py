"""Names and labels in Kubernetes' own words: what its API server and its scheduler say of those that
are none, to the letter.

Each function gives the complaints about a text, and nothing when there are none.
"""

from __future__ import annotations

import re
from functools import lru_cache

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
VALUE = f"({NAME})?"
_is_label = re.compile(LABEL).fullmatch
_is_subdomain = re.compile(SUBDOMAIN).fullmatch
_is_name = re.compile(NAME).fullmatch
_is_value = re.compile(VALUE).fullmatch

_ALPHANUMERIC = "and must start and end with an alphanumeric character"
LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{_ALPHANUMERIC} (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_ALPHANUMERIC} (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
_NAME_WORDS = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME}')"
)
VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALPHANUMERIC} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{VALUE}')"
)


@lru_cache(maxsize=4096)
def dns_label(text: str) -> tuple[str, ...]:
    found = ["must be no more than 63 bytes"] if len(text) > 63 else []
    return (*found, LABEL_WORDS) if _is_label(text) is None else tuple(found)


@lru_cache(maxsize=4096)
def dns_subdomain(text: str) -> tuple[str, ...]:
    found = ["must be no more than 253 bytes"] if len(text) > 253 else []
    return (*found, SUBDOMAIN_WORDS) if _is_subdomain(text) is None else tuple(found)


@lru_cache(maxsize=4096)
def label_key(text: str) -> tuple[str, ...]:
    parts = text.split("/")
    if len(parts) > 2:
        prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {_NAME_WORDS} {prefixed}",)
    found: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        found.extend(f"prefix part {said}" for said in dns_subdomain(parts[0]) if parts[0])
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if _is_name(name) is None:
        found.append(f"name part {_NAME_WORDS}")
    return tuple(found)


@lru_cache(maxsize=4096)
def label_value(text: str) -> tuple[str, ...]:
    found = ["must be no more than 63 bytes"] if len(text) > 63 else []
    return (*found, VALUE_WORDS) if _is_value(text) is None else tuple(found)
