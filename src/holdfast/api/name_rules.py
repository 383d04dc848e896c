"""The rules of names: of objects, label keys and values, resources, ports, environment variables.

Each function gives the errors of a text, in the words of the API server and of kube-scheduler.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_NAME})?"
_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_name = re.compile(_NAME).fullmatch
_is_value = re.compile(_VALUE).fullmatch

_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_is_dns_1035 = re.compile(_DNS_1035).fullmatch
_ALPHANUMERIC = "and must start and end with an alphanumeric character"
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{_ALPHANUMERIC} (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_DNS_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_DNS_1035}')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_ALPHANUMERIC} (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_NAME_WORDS = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALPHANUMERIC} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)


@lru_cache(maxsize=4096)
def dns_label(text: str) -> tuple[str, ...]:
    """Names of namespaces and containers."""
    return (*_too_long(text, 63), *(() if _is_label(text) else (_LABEL_WORDS,)))


@lru_cache(maxsize=4096)
def dns_1035_label(text: str) -> tuple[str, ...]:
    """Names of services."""
    return (*_too_long(text, 63), *(() if _is_dns_1035(text) else (_DNS_1035_WORDS,)))


@lru_cache(maxsize=4096)
def dns_subdomain(text: str) -> tuple[str, ...]:
    """Names of most objects."""
    return (*_too_long(text, 253), *(() if _is_subdomain(text) else (_SUBDOMAIN_WORDS,)))


def path_segment(text: str) -> tuple[str, ...]:
    """Names of roles, which need only be a part of a path."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{each}'" for each in ("/", "%") if each in text)


def _too_long(text: str, limit: int, unit: str = "characters") -> tuple[str, ...]:
    return (f"must be no more than {limit} {unit}",) if len(text.encode()) > limit else ()


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
        else:
            found.extend(f"prefix part {problem}" for problem in _too_long(parts[0], 253, "bytes"))
            if not _is_subdomain(parts[0]):
                found.append(f"prefix part {_SUBDOMAIN_WORDS}")
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    found.extend(f"name part {problem}" for problem in _too_long(name, 63, "bytes"))
    if not _is_name(name):
        found.append(f"name part {_NAME_WORDS}")
    return tuple(found)


@lru_cache(maxsize=4096)
def label_value(text: str) -> tuple[str, ...]:
    return (*_too_long(text, 63, "bytes"), *(() if _is_value(text) else (_VALUE_WORDS,)))


def is_qualified_name(text: str) -> bool:
    """Whether it can be the key of a label, or the name of a resource."""
    return not label_key(text)


_is_port_name = re.compile("[-a-z0-9]+").fullmatch


def port_name(text: str) -> tuple[str, ...]:
    """Names of container ports."""
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
    return tuple(found)


def env_name(text: str) -> tuple[str, ...]:
    """Names of environment variables."""
    if all(char.isascii() and char.isprintable() and char != "=" for char in text):
        return ()
    return (
        "a valid environment variable name must consist only of printable ASCII characters other than "
        "'='",
    )
