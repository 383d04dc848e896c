"""The devices of one type on every node, as arrays: a row per node, a place per device.

A device keeps its place while its node has it, or while a pod has a share of it. Devices that are added
together have places in the order of their minors. `requests.DEVICE_RESOURCES` has the resources of a
type. A device that is gone or unhealthy has a capacity of 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.node import DeviceInfo
from holdfast.scheduler.cluster.columns import RowColumn, RowColumns, cells_of
from holdfast.scheduler.managers.devices.allocation import DevicePart
from holdfast.scheduler.managers.devices.requests import CORE, DEVICE_RESOURCES, GPU, MEMORY, RATIO

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = Any
"""A row or an array of rows, as a view has them; or hold indices."""

_FIRST_WIDTH = 4
_FIRST_HOLDS = 16
_LAST_NUMA = np.iinfo(np.int32).max
NOWHERE = -1
"""The NUMA node or PCIe switch of a device that does not report one."""


class TypeTable:
    """The devices of one type on all rows."""

    total: Ints = cells_of("_total")
    """Capacity of devices, [resource, row, place]."""
    free: Ints = cells_of("_free")
    """What is neither allocated nor reserved; negative if a device became smaller than its
    allocations."""
    known: Bools = cells_of("_known")
    """Whether there is a device, healthy or not, [row, place]."""
    switch: NDArray[np.int32] = cells_of("_switch")
    """The PCIe switch of a device; numbers are shared by all types."""
    numa: NDArray[np.int32] = cells_of("_numa")
    mapped: Bools = cells_of("_mapped")
    """Rows where every device reports its NUMA node and switch."""

    def __init__(self, kind: str, columns: RowColumns) -> None:
        self.kind = kind
        resources, wide = len(DEVICE_RESOURCES[kind]), (_FIRST_WIDTH,)
        self._total = columns.new(np.int64, lead=(resources,), trail=wide)
        self._free = columns.new(np.int64, lead=(resources,), trail=wide)
        self.left: Ints = np.zeros((resources, _FIRST_HOLDS, _FIRST_WIDTH), dtype=np.int64)
        """What is left of reservations, [resource, entry index, place]."""
        self.only: Bools = np.zeros((resources, _FIRST_HOLDS), dtype=np.bool_)
        """Whether owners get a resource from the reservation only, [resource, entry index]."""
        self._known = columns.new(np.bool_, trail=wide)
        self._switch = columns.new(np.int32, NOWHERE, trail=wide)
        self._numa = columns.new(np.int32, NOWHERE, trail=wide)
        self._mapped = columns.new(np.bool_)
        self.minors: dict[int, list[int]] = {}
        """The minors of the devices by place, of each row with devices."""
        self.infos: dict[int, dict[int, DeviceInfo]] = {}
        """The devices in the Device object, by row and minor."""

    @property
    def width(self) -> int:
        return int(self.free.shape[2])

    def place(self, row: int, minor: int) -> int:
        """The place of a device on a row; a new place if it has none."""
        minors = self.minors.setdefault(row, [])
        try:
            return minors.index(minor)
        except ValueError:
            minors.append(minor)
            if len(minors) > self.width:
                self._widen(2 * self.width)
            return len(minors) - 1

    def set_devices(
        self, row: int, infos: Mapping[int, DeviceInfo], amounts: Mapping[int, tuple[int, ...]]
    ) -> None:
        """Sets the devices of a row and their capacity by resource, with nothing allocated."""
        self.forget(row)
        for minor in sorted(infos):
            self.place(row, minor)
        for minor, info in sorted(infos.items()):
            at = self.place(row, minor)
            self.total[:, row, at] = amounts[minor]
            self.known[row, at] = True
            if info.topology is not None:
                numa, switch = info.topology.node_id, info.topology.pcie_id
                self.numa[row, at] = numa if 0 <= numa <= _LAST_NUMA else NOWHERE
                self.switch[row, at] = zlib.crc32(f"{numa} {switch}".encode()) >> 1
        self.free[:, row] = self.total[:, row]
        self.mapped[row] = bool(infos) and all(info.topology is not None for info in infos.values())
        if infos:
            self.infos[row] = dict(infos)

    def most(self, row: int, minor: int) -> int:
        """The capacity of the device in its last resource, in percent."""
        return self.total.item(-1, row, self.place(row, minor))

    def offers(self, row: int, part: DevicePart) -> bool:
        """Whether the device is there, healthy, and at least as large as this part."""
        at = self.place(row, part.minor)
        return all(amount <= self.total.item(i, row, at) for i, amount in enumerate(part.amounts))

    def take(self, row: int, parts: Iterable[DevicePart], sign: int) -> None:
        """Allocates these parts, or releases them (sign -1)."""
        for part in parts:
            at = self.place(row, part.minor)
            for resource, amount in enumerate(part.amounts):
                self.free[resource, row, at] -= sign * amount

    def release_all(self, row: int) -> None:
        """Releases all allocations of the row."""
        self.free[:, row] = self.total[:, row]

    def spread(self, row: int, parts: Iterable[DevicePart]) -> Ints:
        """Parts as an array, [resource, place]."""
        at = [self.place(row, part.minor) for part in parts]
        found: Ints = np.zeros(self.free.shape[::2], dtype=np.int64)
        for place, part in zip(at, parts, strict=True):
            found[:, place] += part.amounts
        return found

    def hold(self, index: int, left: Ints | None, only: Bools | bool = False) -> None:
        """Sets what is left of a reservation, [resource, place], None if it has no devices of this
        type; and which resources owners can be allocated from the reservation only."""
        self.grow_entries(index)
        self.left[:, index] = 0 if left is None else left
        self.only[:, index] = only

    def available(self, rows: Rows, entries: Rows | None = None) -> Ints:
        """What is available of the devices of rows, [resource, (row,) place], to a pod; with `entries`,
        to owners of these reservations."""
        free = self.free[:, rows]
        if entries is None:
            return free
        left, only = self.left[:, entries], self.only[:, entries]
        both = free + left
        return np.where(np.expand_dims(only, -1), np.minimum(both, left), both)

    def serve(
        self,
        rows: Rows,
        each: tuple[int, ...],
        entries: Rows | None = None,
        available: Ints | None = None,
    ) -> Bools:
        """The devices of rows, [(row,) place], of which this much is available; `available` replaces
        what is available now."""
        if available is None:
            available = self.available(rows, entries)
        if self.kind != GPU:
            ok: Bools = available[0] >= each[0]
            return ok
        # GPU memory is requested in percent or in bytes; the other follows from it.
        core, memory, ratio = each
        total = self.total[MEMORY, rows]
        if ratio:
            ok = (available[RATIO] >= ratio) & (available[MEMORY] >= total * ratio // 100)
        else:
            percent = memory * 100 // np.maximum(total, 1)
            ok = (available[MEMORY] >= memory) & (available[RATIO] >= percent) & (total > 0)
        return ok & (available[CORE] >= core) if core else ok

    def part(self, row: int, at: int, each: tuple[int, ...]) -> DevicePart:
        """The part that a pod gets of the device at this place."""
        minor = self.minors[row][at]
        if self.kind != GPU:
            return DevicePart(minor, each)
        core, memory, ratio = each
        total = self.total.item(MEMORY, row, at)
        if ratio:
            memory = total * ratio // 100
        else:
            ratio = memory * 100 // max(total, 1)
        return DevicePart(minor, (core, memory, ratio))

    def grow_entries(self, index: int) -> None:
        """Grows the arrays by entry so that they have this index."""
        entries = self.left.shape[1]
        if index >= entries:
            more = max(index + 1, 2 * entries) - entries
            self.left = np.pad(self.left, ((0, 0), (0, more), (0, 0)))
            self.only = np.pad(self.only, ((0, 0), (0, more)))

    def forget(self, row: int) -> None:
        """Clears a row, which is another node's from now on."""
        for array in (self.total, self.free):
            array[:, row] = 0
        self.known[row] = False
        self.mapped[row] = False
        self.switch[row] = self.numa[row] = NOWHERE
        self.minors.pop(row, None)
        self.infos.pop(row, None)

    def _widen(self, width: int) -> None:
        every: tuple[RowColumn[Any], ...] = (
            self._total,
            self._free,
            self._known,
            self._switch,
            self._numa,
        )
        for column in every:
            column.grow(width, axis=-1)
        self.left = np.pad(self.left, ((0, 0), (0, 0), (0, width - self.left.shape[2])))
