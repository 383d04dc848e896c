"""Quantities as exact fractions, by a grammar smaller than Kubernetes' but independent of ours."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from holdfast.api.quantity import Quantity

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


def exact(quantity: Quantity) -> Fraction:
    text = str(quantity)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * _SUFFIXES[suffix]
    return Fraction(text)


def counted(resource: str, value: Fraction) -> int:
    """In the unit the scheduler counts in, rounded up."""
    return ceil(value * 1000) if resource == "cpu" else ceil(value)
