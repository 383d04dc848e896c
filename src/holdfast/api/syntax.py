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
