"""Names, labels and ports, and what is said of those that are none.

Each function gives the complaints about a text, and nothing when there are none.
"""

from __future__ import annotations

import re

from holdfast.api.name_words import dns_label, dns_subdomain, label_key, label_value

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
