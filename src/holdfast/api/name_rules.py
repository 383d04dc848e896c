"""The shapes of names: objects, label keys and values, resources.

Each checker answers with what is wrong, or "" when nothing is.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NAME_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL.pattern}(?:\.{_DNS_LABEL.pattern})*")


def dns_label_problem(text: str) -> str:
    """Namespaces and container names."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    if _DNS_LABEL.fullmatch(text) is None:
        return (
            f"{text!r} must consist of lower case letters, digits or '-', "
            "and start and end with a letter or digit"
        )
    return ""


def dns_subdomain_problem(text: str) -> str:
    """Names of most objects."""
    if len(text) > 253:
        return "must be no more than 253 characters"
    if _DNS_SUBDOMAIN.fullmatch(text) is None:
        return (
            f"{text!r} must consist of lower case letters, digits, '-' or '.', "
            "and start and end with a letter or digit"
        )
    return ""


@lru_cache(maxsize=4096)
def qualified_name_problem(text: str) -> str:
    """Keys of labels, annotations and taints: a name, optionally after a domain and a slash."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or dns_subdomain_problem(prefix)):
        return f"the part before the slash of {text!r} must be a domain in lower case"
    if not name:
        return "the name part must not be empty"
    if len(name) > 63:
        return f"the name part of {text!r} must be no more than 63 characters"
    if _NAME_PART.fullmatch(name) is None:
        return (
            f"{text!r} must consist of letters, digits, '-', '_' or '.', "
            "and start and end with a letter or digit"
        )
    return ""


@lru_cache(maxsize=4096)
def label_value_problem(text: str) -> str:
    """Values of labels and taints: may be empty."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    if text and _NAME_PART.fullmatch(text) is None:
        return (
            f"{text!r} must be empty or consist of letters, digits, '-', '_' or '.', "
            "and start and end with a letter or digit"
        )
    return ""


def is_qualified_name(text: str) -> bool:
    return not qualified_name_problem(text)


# Names and labels in Kubernetes' own words: what its API server and its scheduler say of those that
# are none, to the letter.
#
# Each function gives the complaints about a text, and nothing when there are none.


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
            found.extend(f"prefix part {said}" for said in _too_long(parts[0], 253, "bytes"))
            if not _is_subdomain(parts[0]):
                found.append(f"prefix part {_SUBDOMAIN_WORDS}")
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    found.extend(f"name part {said}" for said in _too_long(name, 63, "bytes"))
    if not _is_name(name):
        found.append(f"name part {_NAME_WORDS}")
    return tuple(found)


@lru_cache(maxsize=4096)
def label_value(text: str) -> tuple[str, ...]:
    return (*_too_long(text, 63, "bytes"), *(() if _is_value(text) else (_VALUE_WORDS,)))


# The rules Kubernetes has for the names of labels and resources.


_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def qualified_name_fault(name: str) -> str | None:
    """Why `name` is no qualified name (`name` or `domain/name`); None if it is one."""
    domain, slash, part = name.rpartition("/")
    if slash and not (_DOMAIN.fullmatch(domain) and len(domain) <= 253):
        return f'"{name}" does not begin with a DNS domain before the slash'
    if not _PART.fullmatch(part):
        return (
            f'"{name}" is not a valid name: at most 63 letters, digits, "-", "_" and ".", '
            "with a letter or digit at both ends"
        )
    return None
