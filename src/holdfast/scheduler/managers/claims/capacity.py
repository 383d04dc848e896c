"""Consumable capacity: how much of a device a request consumes.

What a request asks of a capacity is rounded up as the device's policy says; without a request the
policy's default counts, or all of the capacity. Amounts are exact integers of nano.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.api.errors import HoldfastError
from holdfast.api.quantity import MAX_AMOUNT, NANO, Quantity
from holdfast.api.resource_slices import CapacityRange, CapacityRequestPolicy, DeviceCapacity
from holdfast.machinery.schema.scalars import canonical
from holdfast.scheduler.managers.claims.device_table import nano

_MILLI = NANO // 1000
_NOT_REPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"
_NEGATIVE = "capacity value is negative"


class CapacityError(HoldfastError):
    """A capacity request that no device can serve, so that allocation is given up."""


class Amount(NamedTuple):
    """A quantity in nano, and in the form in which it is written."""

    nano: int
    text: str


Consumed = Mapping[str, Amount]
Asked = Mapping[str, Quantity]


@dataclass(slots=True)
class Demand:
    """What a request consumes of a device, whatever else is allocated of it."""

    possible: bool
    """Whether the device has these capacities and its policy allows the amounts."""
    consumed: Consumed = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    """The capacity of the device, in nano."""

    def fits(self, *used: Mapping[str, int]) -> bool:
        """Whether it fits beside what is consumed already."""
        if not self.possible:
            return False
        for name, amount in self.consumed.items():
            if amount.nano + sum(each.get(name, 0) for each in used) > self.limits[name]:
                return False
        return True


def demand(asked: Asked, capacity: Mapping[str, DeviceCapacity]) -> Demand:
    """Raises CapacityError."""
    if not capacity:
        return Demand(not asked)
    if any(name not in capacity for name in asked):
        return Demand(False)
    consumed = {name: _consumed(name, asked, capacity[name]) for name in sorted(capacity)}
    if any(_violates(consumed[name].nano, capacity[name].request_policy) for name in consumed):
        return Demand(False)
    return Demand(True, consumed, {name: nano(each.value) for name, each in capacity.items()})


def _consumed(name: str, asked: Asked, capacity: DeviceCapacity) -> Amount:
    policy = capacity.request_policy
    if name not in asked:
        given = policy.default if policy is not None and policy.default is not None else capacity.value
        found = _amount(given)
    else:
        found = _rounded(name, asked[name], policy)
    if found.nano < 0:
        raise CapacityError(f'capacity "{name}": {_NEGATIVE}')
    return found


def _amount(quantity: Quantity) -> Amount:
    amount = nano(quantity)
    exact = abs(amount) <= MAX_AMOUNT * NANO
    return Amount(amount, canonical(quantity) if exact else str(quantity))


def _rounded(name: str, asked: Quantity, policy: CapacityRequestPolicy | None) -> Amount:
    wanted = _amount(asked)
    if policy is None:
        return wanted
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _in_range(name, wanted, policy.valid_range)
    for value in policy.valid_values:
        if wanted.nano <= nano(value):
            return _amount(value)
    return wanted


def _in_range(name: str, wanted: Amount, valid: CapacityRange) -> Amount:
    """The next amount that is a number of steps above the least one."""
    assert valid.min is not None
    least = nano(valid.min)
    if wanted.nano < least:
        return _amount(valid.min)
    if valid.step is None:
        return wanted
    milli = _uses_milli(valid)
    unit = _MILLI if milli else NANO
    if milli and (wanted.nano % _MILLI or wanted.nano // _MILLI > MAX_AMOUNT):
        why = f"request {wanted.text} is not a representable milli value"
        raise CapacityError(f'capacity "{name}": {_NOT_REPRESENTABLE}: {why}')
    if not milli and wanted.nano > MAX_AMOUNT * NANO:
        why = f"request {wanted.text} exceeds MaxInt64"
        raise CapacityError(f'capacity "{name}": {_NOT_REPRESENTABLE}: {why}')
    start, step = _units(least, unit), _units(nano(valid.step), unit)
    steps = -(-(_units(wanted.nano, unit) - start) // step) if step else 0
    units = start + step * steps
    if units > MAX_AMOUNT:
        bound = "the milli-value range" if milli else "MaxInt64"
        why = f"rounding request {wanted.text} up to the next step passes {bound}"
        raise CapacityError(f'capacity "{name}": {_NOT_REPRESENTABLE}: {why}')
    return Amount(units * unit, _text(units * unit, valid.step))


def _violates(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == nano(policy.default)):
        return False
    valid = policy.valid_range
    if valid is None:
        return bool(policy.valid_values) and amount not in map(nano, policy.valid_values)
    if valid.max is not None and amount > nano(valid.max):
        return True
    if valid.step is None:
        return False
    milli = _uses_milli(valid)
    if milli and amount % _MILLI:
        return True
    unit = _MILLI if milli else NANO
    least = nano(valid.min) if valid.min is not None else 0
    step = _units(nano(valid.step), unit)
    return step > 0 and (_units(amount, unit) - _units(least, unit)) % step != 0


def _uses_milli(valid: CapacityRange) -> bool:
    """Whether the range counts in milli: if its bounds and its step are whole numbers of them."""
    given = [nano(each) for each in (valid.min, valid.max, valid.step) if each is not None]
    if any(each % _MILLI or abs(each) // _MILLI > MAX_AMOUNT for each in given):
        return False
    return valid.step is None or nano(valid.step) >= _MILLI


def _units(amount: int, unit: int) -> int:
    return -(-amount // unit)


def _text(amount: int, like: Quantity) -> str:
    """An amount in the format, binary or decimal, of another quantity."""
    binary = isinstance(like, str) and like.endswith("i")
    if binary and amount % NANO == 0 and (amount // NANO) % 1024 == 0 and amount:
        return canonical(f"{amount // NANO // 1024}Ki")
    return canonical(f"{amount // NANO}" if amount % NANO == 0 else f"{amount // _MILLI}m")
