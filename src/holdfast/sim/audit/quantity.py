"""Quantities and CPU lists, parsed independently of the scheduler."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

Amounts = dict[str, int]
"""Milli for cpu, whole units for everything else."""

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=65536)
def milli(text: str) -> int:
    """In thousandths, rounded up. Raises ValueError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, exponent, suffix = found.groups()
    value = Fraction(Decimal(number))
    if exponent is not None:
        value *= Fraction(10) ** int(exponent)
    elif suffix in _BINARY:
        value *= 2 ** _BINARY[suffix]
    else:
        value *= Fraction(10) ** _DECIMAL[suffix or ""]
    value *= 1000
    return -(-value.numerator // value.denominator)


def millis(resources: Mapping[str, Any] | None) -> Amounts:
    """A resource list in thousandths; invalid quantities are left out."""
    result = {}
    for name, value in (resources or {}).items():
        try:
            result[name] = milli(str(value))
        except ValueError:
            continue
    return result


def counted(thousandths: Mapping[str, int]) -> Amounts:
    """In the units that are compared with a node's allocatable."""
    return {name: value if name == "cpu" else -(-value // 1000) for name, value in thousandths.items()}


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    return counted(millis(resources))


def add(into: Amounts, other: Mapping[str, int], sign: int = 1) -> None:
    for name, value in other.items():
        into[name] = into.get(name, 0) + sign * value


def raise_to(into: Amounts, other: Mapping[str, int]) -> None:
    for name, value in other.items():
        into[name] = max(into.get(name, 0), value)


@lru_cache(maxsize=4096)
def cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as a set."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def cpu_text(cpus: Iterable[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))
