"""The rules Kubernetes has for the names of labels and resources."""

import re

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
