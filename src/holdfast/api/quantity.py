"""Kubernetes quantities as exact integers.

A quantity is a decimal number with one of three kinds of suffix: a decimal letter (`100m`,
`2k`), a binary unit (`1.5Gi`) or an exponent (`1e3`). Amounts are summed and compared as
integers of 10^-9, the finest step Kubernetes keeps, so no sum ever depends on the order of
its parts.

Two limits follow Kubernetes: what is finer than one nano is rounded away from zero (a request is never
rounded to zero), and what exceeds a signed 64-bit count of whole units is capped there. Capping matters
to us doubly, since the cluster state is kept in int64 columns.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.api.errors import QuantityError

__all__ = [
    "MAX_AMOUNT",
    "MOST_COUNTED",
    "NANO",
    "Quantity",
    "QuantityError",
    "amount",
    "format_amount",
    "from_nano",
    "milli",
    "parse",
    "parse_exact",
    "to_nano",
    "whole",
]

EXPECTED_QUANTITY = "expected a quantity, such as 500m or 2Gi"

Quantity = str | int | float
"""The types of a quantity in YAML and JSON."""

NANO = 10**9
MAX_AMOUNT = 2**63 - 1
MOST_COUNTED = 2**55
"""The largest amount that the scheduler tells from a larger one, so that sums of amounts fit into 64
bits: 36 quadrillion milli of CPU, 32 PiB of memory."""
_MAX_NANO = MAX_AMOUNT * NANO
_MILLI_IN_NANO = 10**6

_PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_SHAPE = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_UNITS = ("", *_BINARY)
_DECIMAL_UNITS = ("", "k", "M", "G", "T", "P", "E")

# Beyond this many digits the answer is the cap (or one nano) whatever the mantissa is, so
# the power of ten need not be computed: `1e999999999` must not eat the machine.
_MAX_DIGITS = 400
_MAX_EXPONENT = 2 * _MAX_DIGITS


def parse(q: Quantity) -> int:
    """The quantity in nano units; raises `QuantityError` for anything else."""
    if isinstance(q, str):
        return _parse_text(q)
    if isinstance(q, bool):
        raise QuantityError(f"a quantity is a number or a string, not {str(q).lower()}")
    if isinstance(q, int):
        return max(-_MAX_NANO, min(_MAX_NANO, q * NANO))
    if isinstance(q, float):
        return _parse_text(repr(q))
    raise QuantityError(f"a quantity is a number or a string, not {type(q).__name__}")


def parse_exact(q: Quantity) -> int:
    """The quantity in nano units; unlike `parse` it does not cap decimal quantities, nor does
    Kubernetes where it only compares them."""
    nano = parse(q)
    if abs(nano) < _MAX_NANO or (isinstance(q, str) and q.endswith("i")):
        return nano
    return _parse_text(q if isinstance(q, str) else repr(q).replace("+", ""), capped=False)


def milli(q: Quantity) -> int:
    """The quantity in thousandths, rounded up."""
    return _rounded_up(parse(q), _MILLI_IN_NANO)


def whole(q: Quantity) -> int:
    """The quantity in whole units, rounded up."""
    return _rounded_up(parse(q), NANO)


def amount(resource: str, q: Quantity) -> int:
    """The integer the scheduler counts this resource in: milli for cpu, whole for the rest."""
    return from_nano(resource, parse(q))


def from_nano(resource: str, nano: int) -> int:
    """Round a sum of nano units up to the unit the resource is counted in."""
    return _rounded_up(nano, _MILLI_IN_NANO if resource == "cpu" else NANO)


def to_nano(resource: str, amount: int) -> int:
    """The inverse of `from_nano`, for amounts that must be summed with parsed quantities."""
    return amount * (_MILLI_IN_NANO if resource == "cpu" else NANO)


def format_amount(resource: str, amount: int) -> str:
    """An amount as Kubernetes would print it: `500m`, `2`, `1536Mi`."""
    if resource == "cpu":
        cores, rest = divmod(amount, 1000)
        return f"{amount}m" if rest else str(cores)
    if amount and _counted_in_bytes(resource):
        # Its author will have used the units that make it short: 128M, and not 125000Ki.
        binary, decimal = _in_units(amount, 1024), _in_units(amount, 1000)
        if len(str(decimal[0])) < len(str(binary[0])):
            return f"{decimal[0]}{_DECIMAL_UNITS[decimal[1]]}"
        return f"{binary[0]}{_BINARY_UNITS[binary[1]]}"
    return str(amount)


def _in_units(amount: int, base: int) -> tuple[int, int]:
    """The number of the largest units that are whole, and the power of the base these are."""
    power = 0
    while power < len(_BINARY) and amount % base == 0:
        amount, power = amount // base, power + 1
    return amount, power


def _counted_in_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _rounded_up(nano: int, unit: int) -> int:
    if nano < 0:
        return -_rounded_up(-nano, unit)
    return min(-(-nano // unit), MAX_AMOUNT)


@lru_cache(maxsize=16384)
def _parse_text(text: str, capped: bool = True) -> int:
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise QuantityError(f"quantities must match the regular expression '{_PATTERN}': {text!r}")
    number = _NUMBER.fullmatch(shape[1])
    if number is None or len(shape[1]) > _MAX_DIGITS:
        raise QuantityError(f"unable to parse numeric part of quantity: {text!r}")
    sign, before, after, only_after = number.groups()
    fraction = after or only_after or ""
    mantissa = int((before or "") + fraction)

    suffix = shape[2]
    if suffix in _BINARY:
        nano = _scaled(mantissa << _BINARY[suffix], 9 - len(fraction), capped)
    else:
        nano = _scaled(mantissa, _decimal_exponent(text, suffix) + 9 - len(fraction), capped)
    return -nano if sign == "-" else nano


def _decimal_exponent(text: str, suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise QuantityError(f"unable to parse quantity's suffix: {text!r}")
    if len(exponent[1]) > _MAX_DIGITS:
        return -_MAX_EXPONENT if exponent[1].startswith("-") else _MAX_EXPONENT
    return max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(exponent[1])))


def _scaled(mantissa: int, exponent: int, capped: bool) -> int:
    """mantissa x 10^exponent as an integer, rounded up."""
    power: int = 10 ** abs(exponent)
    exact = mantissa * power if exponent >= 0 else -(-mantissa // power)
    return min(exact, _MAX_NANO) if capped else exact


_MI = 1 << 20


def shown(resource: str, amount: int) -> str:
    """Kubernetes's format, but large byte amounts rounded to mebibytes, and the most that is counted as
    such."""
    if amount >= MOST_COUNTED:
        return f"{format_amount(resource, MOST_COUNTED)} or more"
    if amount < 0:
        return f"-{shown(resource, -amount)}"
    if resource.endswith("/gpu-memory"):
        resource = "memory"  # it is counted in bytes
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        amount -= amount % _MI if amount >= _MI else 0
    return format_amount(resource, amount)
