"""What requests need to know about devices, computed once per distinct property.

A column has a value per code of the device table (per shape, per set of taints) and computes the values
of codes that are new since it was last asked. It never looks at a device that is like one it has seen:
a selector is evaluated once for all devices that agree in the attributes that it reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resource_slices import DeviceAttribute, DeviceCapacity, DeviceTaint, DeviceToleration
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.device_selectors import (
    DeviceValues,
    SelectorCompileError,
    SelectorProgram,
    compiled,
    with_hint,
)
from holdfast.scheduler.managers.claims.capacity import Asked, CapacityError, Demand, demand
from holdfast.scheduler.managers.claims.device_table import Codebook, DeviceTable, Taints

NO_MATCH, MATCH, ERROR = 0, 1, 2
Verdicts = NDArray[np.int8]
ABSENT = 0
"""The code of an attribute that a device does not have."""
INCOMPARABLE = -1
"""The code of an attribute with a list of values."""


class ShapeColumn(ABC):
    """A value per code, brought up to date on demand."""

    def __init__(self, book: Codebook[Any, Any], dtype: type[np.generic]) -> None:
        self._book = book
        self._seen = 0
        self._cells: NDArray[Any] = np.zeros(64, dtype=dtype)

    @property
    def cells(self) -> NDArray[Any]:
        """The values by code. Replaced when the column grows, so it must not be kept."""
        book = self._book
        if self._seen != book.version:
            if len(book) > len(self._cells):
                more = max(len(book), 2 * len(self._cells)) - len(self._cells)
                self._cells = np.pad(self._cells, (0, more))
            for code in book.newer(self._seen):
                self._cells[code] = self.compute(book.value(code), code)
            self._seen = book.version
        return self._cells

    @abstractmethod
    def compute(self, value: Any, code: int) -> int:
        """The cell of a code, from the value that the codebook has for it."""


class SelectorColumn(ShapeColumn):
    """Whether devices of a shape match all of some expressions: NO_MATCH, MATCH or ERROR."""

    def __init__(self, table: DeviceTable, texts: Sequence[str]) -> None:
        super().__init__(table.shapes, np.int8)
        self._known: list[dict[Any, int | str]] = [{} for _ in texts]
        self._programs: list[SelectorProgram | str] = [_program(text) for text in texts]
        self.errors: dict[int, tuple[int, str, bool]] = {}
        """By shape: the expression that failed, why, and whether it did so when it was compiled."""

    def compute(self, value: DeviceValues, code: int) -> int:
        self.errors.pop(code, None)
        for number, program in enumerate(self._programs):
            if isinstance(program, str):
                self.errors[code] = (number, program, True)
                return ERROR
            found = self._evaluated(number, program, value)
            if isinstance(found, str):
                self.errors[code] = (number, found, False)
                return ERROR
            if found == NO_MATCH:
                return NO_MATCH
        return MATCH

    def _evaluated(self, number: int, program: SelectorProgram, device: DeviceValues) -> int | str:
        key, known = program.key(device), self._known[number]
        if key is not None and key in known:
            return known[key]
        found: int | str
        try:
            found = MATCH if program.matches(device) else NO_MATCH
        except CelRuntimeError as error:
            found = with_hint(error)
        if key is not None:
            if len(known) > 2 * len(self._book) + 1024:
                known.clear()
            known[key] = found
        return found


def _program(text: str) -> SelectorProgram | str:
    try:
        return compiled(text)
    except SelectorCompileError as error:
        return str(error)


class TolerationColumn(ShapeColumn):
    """Whether tolerations tolerate a set of taints."""

    def __init__(self, table: DeviceTable, tolerations: Sequence[DeviceToleration]) -> None:
        super().__init__(table.taint_sets, np.bool_)
        self._tolerations = tuple(tolerations)

    def compute(self, value: Taints, code: int) -> int:
        return all(
            any(
                toleration.tolerates(DeviceTaint(key=key, value=given, effect=effect))
                for toleration in self._tolerations
            )
            for key, given, effect in value
        )


class AttributeColumn(ShapeColumn):
    """An attribute, as constraints compare it: equal codes for equal values."""

    def __init__(self, table: DeviceTable, name: str) -> None:
        super().__init__(table.shapes, np.int32)
        self._name = name
        self._codes: dict[DeviceAttribute, int] = {}

    def compute(self, value: DeviceValues, code: int) -> int:
        found = value.attributes.get(self._name)
        if found is None:
            domain, slash, id = self._name.partition("/")
            if slash and domain == value.driver:
                found = value.attributes.get(id)
        if found is None:
            return ABSENT
        if found.is_list:
            return INCOMPARABLE
        return self._codes.setdefault(found, len(self._codes) + 1)


class DemandColumn(ShapeColumn):
    """What a request consumes of devices of a shape. Equal codes for equal demands; the code of devices
    that cannot serve it is NO_MATCH, ERROR that of those on which it fails."""

    def __init__(self, table: DeviceTable, asked: Asked) -> None:
        super().__init__(table.shapes, np.int32)
        self._asked = dict(asked)
        self._codes: dict[Any, int] = {}
        self._known: dict[frozenset[tuple[str, DeviceCapacity]], Demand] = {}
        self.demands: dict[int, Demand] = {}
        self.errors: dict[int, str] = {}

    def compute(self, value: DeviceValues, code: int) -> int:
        self.errors.pop(code, None)
        self.demands.pop(code, None)
        try:
            found = self.demands[code] = self._demand(value)
        except CapacityError as error:
            self.errors[code] = str(error)
            return ERROR
        fits = found.fits()
        if not value.allow_multiple_allocations:
            return MATCH if fits else NO_MATCH
        if not found.possible:
            return NO_MATCH
        key = (tuple(found.consumed.items()), tuple(sorted(found.limits.items())), fits)
        return self._codes.setdefault(key, len(self._codes) + ERROR + 1)

    def _demand(self, value: DeviceValues) -> Demand:
        key = frozenset(value.capacity.items())
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 2 * len(self._book) + 1024:
                self._known.clear()
            found = self._known[key] = demand(self._asked, value.capacity)
        return found
