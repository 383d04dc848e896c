"""Constraints of a claim on the attributes of its devices.

`matchAttribute`: all devices have the same value. `distinctAttribute`: no two have the same. A device
without the attribute satisfies neither. Once a constraint is violated, more devices do not mend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.api.resource_claims import DeviceConstraint
from holdfast.scheduler.managers.claims.claims_request import RequestPart
from holdfast.scheduler.managers.claims.device_table import Codes
from holdfast.scheduler.managers.claims.request_columns import RequestColumns
from holdfast.scheduler.managers.claims.selector_columns import ABSENT, INCOMPARABLE


class AttributeConstraint(Protocol):
    """A constraint while devices are chosen. Positions are those of the visible devices."""

    name: str

    def add(self, part: RequestPart, position: int) -> bool:
        """Adds a device, unless that violates the constraint."""

    def remove(self, part: RequestPart, position: int) -> None:
        """Removes the device that was added last."""


class MatchAttribute:
    def __init__(self, requests: frozenset[str], name: str, codes: list[int]) -> None:
        self.name = name
        self._requests = requests
        self._codes = codes
        self._value = ABSENT
        self._count = 0

    def add(self, part: RequestPart, position: int) -> bool:
        if not applies(self._requests, part):
            return True
        value = self._codes[position]
        if value == ABSENT or (self._count and (value != self._value or value == INCOMPARABLE)):
            return False
        self._value = value
        self._count += 1
        return True

    def remove(self, part: RequestPart, position: int) -> None:
        if applies(self._requests, part):
            self._count -= 1


class DistinctAttribute:
    def __init__(self, requests: frozenset[str], name: str, codes: list[int]) -> None:
        self.name = name
        self._requests = requests
        self._codes = codes
        self._values: list[int] = []

    def add(self, part: RequestPart, position: int) -> bool:
        if not applies(self._requests, part):
            return True
        value = self._codes[position]
        if value == ABSENT or value in self._values or (value == INCOMPARABLE and self._values):
            return False
        self._values.append(value)
        return True

    def remove(self, part: RequestPart, position: int) -> None:
        if applies(self._requests, part):
            self._values.pop()


def applies(requests: frozenset[str], part: RequestPart) -> bool:
    return not requests or part.request_name in requests or part.full_name in requests


def constraints_of(
    given: Iterable[DeviceConstraint], columns: RequestColumns, rows: Codes
) -> list[AttributeConstraint]:
    found: list[AttributeConstraint] = []
    for each in given:
        requests = frozenset(each.requests)
        name = each.match_attribute or each.distinct_attribute or ""
        codes: list[int] = columns.attributes[columns.attribute_at[name]].take(rows).tolist()
        kind = MatchAttribute if each.match_attribute is not None else DistinctAttribute
        found.append(kind(requests, name, codes))
    return found
