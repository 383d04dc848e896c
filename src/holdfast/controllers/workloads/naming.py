"""Short names for templates: the same template has the same, another one another."""

from __future__ import annotations

import msgspec

from holdfast.controllers.workloads.actions import Raw

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so no words."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


def short_hash(template: Raw, collisions: int = 0) -> str:
    """Up to ten letters. `collisions` gives another one where that name was taken."""
    data = _ENCODER.encode([template, collisions] if collisions else template)
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(value))
