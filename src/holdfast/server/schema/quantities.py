"""The form Kubernetes writes a quantity in: `1000m` comes back as `1`, `0.5Gi` as `512Mi`.

A quantity keeps the kind of suffix it came with. Within it, the number is brought to the largest suffix
that leaves it whole.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.api.quantity import NANO, Quantity, parse

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+$")


def canonical(quantity: Quantity) -> str:
    """The usual spelling; raises `QuantityError` for what is none."""
    return _canonical(quantity if isinstance(quantity, str) else repr(quantity).replace("+", ""))


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    nano = parse(text)
    if nano == 0:
        return "0"
    if text.endswith("i") and abs(nano) >= 1024 * NANO and nano % NANO == 0:
        return _binary(nano // NANO)
    power = -9
    while nano % 1000 == 0 and power < 18:
        nano //= 1000
        power += 3
    if _EXPONENT.search(text):
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL[power]}"


def _binary(amount: int) -> str:
    steps = 0
    while amount % 1024 == 0 and steps < len(_BINARY) - 1:
        amount //= 1024
        steps += 1
    return f"{amount}{_BINARY[steps]}"
