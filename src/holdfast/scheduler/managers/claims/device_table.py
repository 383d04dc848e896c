"""The devices of all slices as a table: a row per device, a column per property that matters.

Properties are interned to codes, so that whatever depends on one is computed once per code: a selector
per *shape* (driver, attributes, capacity, whether it can be shared), tolerations per set of taints,
counters per kind of consumption. A code, like a row, is given to something else when its last user is
gone; stamps tell readers which codes and rows are new to them.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.api.errors import QuantityError
from holdfast.api.quantity import Quantity, parse_exact
from holdfast.api.resource_slices import DeviceCounterConsumption, DeviceID, DeviceTaint, SliceDevice
from holdfast.machinery.schema.device_selectors import DeviceValues

Codes = NDArray[np.int32]
Stamps = NDArray[np.int64]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_FIRST = 64
NO_COUNTERS = 0
_BLOCKING = ("NoSchedule", "NoExecute")

Taints = tuple[tuple[str, str, str], ...]
"""Key, value and effect of the taints that keep pods off a device."""
Consumption = tuple[tuple[str, str, int], ...]
"""Counter set, counter and amount in nano."""
Shape = tuple[str, frozenset[object], frozenset[object], bool]


def nano(quantity: Quantity) -> int:
    """The quantity in nano; an invalid one, which no API server stores, counts as 0."""
    try:
        return parse_exact(quantity)
    except QuantityError:
        return 0


class Codebook(Generic[K, V]):
    """Values interned by key, with a count of their users. `stamps[code]` is the version at which a
    code got its value."""

    def __init__(self, always: K | None = None, value: V | None = None) -> None:
        self._codes: dict[K, int] = {}
        self._keys: list[K | None] = []
        self.values: list[V | None] = []
        self._users: list[int] = []
        self._free: list[int] = []
        self.stamps: Stamps = np.zeros(_FIRST, dtype=np.int64)
        self.version = 0
        if always is not None and value is not None:
            self.hold(always, value)

    def __len__(self) -> int:
        """One more than the highest code."""
        return len(self._keys)

    @property
    def used(self) -> int:
        return len(self._codes)

    def find(self, key: K) -> int | None:
        return self._codes.get(key)

    def value(self, code: int) -> V:
        found = self.values[code]
        assert found is not None
        return found

    def hold(self, key: K, value: V) -> int:
        """The code of a key, with one user more."""
        code = self._codes.get(key)
        if code is None:
            if self._free:
                code = heapq.heappop(self._free)
                self._keys[code], self.values[code] = key, value
            else:
                code = len(self._keys)
                self._keys.append(key)
                self.values.append(value)
                self._users.append(0)
                if code >= len(self.stamps):
                    self.stamps = np.pad(self.stamps, (0, len(self.stamps)))
            self._codes[key] = code
            self.version += 1
            self.stamps[code] = self.version
        self._users[code] += 1
        return code

    def let_go(self, code: int) -> None:
        self._users[code] -= 1
        if self._users[code]:
            return
        key = self._keys[code]
        assert key is not None
        del self._codes[key]
        self._keys[code] = self.values[code] = None
        heapq.heappush(self._free, code)

    def newer(self, version: int) -> list[int]:
        """The codes in use that have got their value since a version."""
        found = np.flatnonzero(self.stamps[: len(self._keys)] > version).tolist()
        return [code for code in found if self._keys[code] is not None]


@dataclass(slots=True, eq=False)
class DeviceEntry:
    """A device of a slice, with its row and codes."""

    row: int
    identity: int
    """The code of its id; the same for all slices that have a device of this id."""
    id: DeviceID
    device: SliceDevice
    slice_name: str
    shape: int
    taints: int
    counters: int


class DeviceTable:
    """Rows of devices. `stamps[row]` is the version at which the row was written."""

    def __init__(self) -> None:
        self.identities: Codebook[DeviceID, DeviceID] = Codebook()
        self.shapes: Codebook[Shape, DeviceValues] = Codebook()
        self.taint_sets: Codebook[Taints, Taints] = Codebook((), ())
        self.consumptions: Codebook[Consumption, Consumption] = Codebook((), ())
        self.entries: list[DeviceEntry | None] = []
        self._free: list[int] = []
        self.version = 0
        self.stamps: Stamps = np.zeros(_FIRST, dtype=np.int64)
        self.identity: Codes = np.zeros(_FIRST, dtype=np.int32)
        self.shape: Codes = np.zeros(_FIRST, dtype=np.int32)
        self.taints: Codes = np.zeros(_FIRST, dtype=np.int32)
        self.counters: Codes = np.zeros(_FIRST, dtype=np.int32)
        self.shared: NDArray[np.bool_] = np.zeros(_FIRST, dtype=np.bool_)
        """Devices that several claims can have a part of."""

    def __len__(self) -> int:
        """One more than the highest row."""
        return len(self.entries)

    def add(self, slice_name: str, id: DeviceID, device: SliceDevice, taints: Taints) -> DeviceEntry:
        row = heapq.heappop(self._free) if self._free else len(self.entries)
        if row == len(self.entries):
            self.entries.append(None)
            if row >= len(self.shape):
                self._grow()
        consumption = consumption_of(device.consumes_counters)
        entry = DeviceEntry(
            row=row,
            identity=self.identities.hold(id, id),
            id=id,
            device=device,
            slice_name=slice_name,
            shape=self.shapes.hold(shape_of(id.driver, device), values_of(id.driver, device)),
            taints=self.taint_sets.hold(taints, taints),
            counters=self.consumptions.hold(consumption, consumption),
        )
        self.entries[row] = entry
        self.identity[row], self.shape[row] = entry.identity, entry.shape
        self.taints[row], self.counters[row] = entry.taints, entry.counters
        self.shared[row] = device.allow_multiple_allocations
        self._stamp(row)
        return entry

    def remove(self, row: int) -> None:
        entry = self.entries[row]
        assert entry is not None
        self.entries[row] = None
        heapq.heappush(self._free, row)
        self.identities.let_go(entry.identity)
        self.shapes.let_go(entry.shape)
        self.taint_sets.let_go(entry.taints)
        self.consumptions.let_go(entry.counters)
        self._stamp(row)

    def taint(self, row: int, taints: Taints) -> bool:
        """Sets the taints of a device; returns whether they are others than before."""
        entry = self.entry(row)
        before = entry.taints
        entry.taints = self.taint_sets.hold(taints, taints)
        self.taint_sets.let_go(before)
        if entry.taints == before:
            return False
        self.taints[row] = entry.taints
        self._stamp(row)
        return True

    def entry(self, row: int) -> DeviceEntry:
        found = self.entries[row]
        assert found is not None
        return found

    def newer(self, version: int) -> NDArray[np.intp]:
        """The rows written since a version, empty ones included."""
        return np.flatnonzero(self.stamps[: len(self.entries)] > version)

    def _stamp(self, row: int) -> None:
        self.version += 1
        self.stamps[row] = self.version

    def _grow(self) -> None:
        more = len(self.shape)
        self.stamps = np.pad(self.stamps, (0, more))
        self.identity = np.pad(self.identity, (0, more))
        self.shape = np.pad(self.shape, (0, more))
        self.taints = np.pad(self.taints, (0, more))
        self.counters = np.pad(self.counters, (0, more))
        self.shared = np.pad(self.shared, (0, more))


def values_of(driver: str, device: SliceDevice) -> DeviceValues:
    return DeviceValues(driver, device.attributes, device.capacity, device.allow_multiple_allocations)


def shape_of(driver: str, device: SliceDevice) -> Shape:
    return (
        driver,
        frozenset(device.attributes.items()),
        frozenset(device.capacity.items()),
        device.allow_multiple_allocations,
    )


def taints_of(taints: Iterable[DeviceTaint]) -> Taints:
    """The taints that keep pods off; others, such as those of effect None, do not count."""
    kept = {(each.key, each.value, each.effect) for each in taints if each.effect in _BLOCKING}
    return tuple(sorted(kept))


def consumption_of(consumes: Iterable[DeviceCounterConsumption]) -> Consumption:
    return tuple(
        (each.counter_set, name, nano(counter.value))
        for each in consumes
        for name, counter in sorted(each.counters.items())
    )
