"""How much of a resource the devices of nodes have, free and kept by reservations, in the resource's
own unit.

Requests for whole GPUs and for shares of them take the same devices, so neither sum of requests says
what is left: a GPU of which a share is taken has some percent free, but is no free GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from holdfast.api import names
from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.managers.devices.device_table import Ints, TypeTable
from holdfast.scheduler.managers.devices.requests import (
    CORE,
    DEVICE_RESOURCES,
    GPU,
    RATIO,
    TYPE_OF,
    WHOLE,
)

GPU_PARTS = (names.GPU_PERCENT, names.GPU_SHARED, *DEVICE_RESOURCES[GPU])
"""The names for parts of GPUs."""


class DeviceAmounts(NamedTuple):
    """By row."""

    total: Ints
    requested: Ints
    """Taken by pods; of whole GPUs those of which a pod has a share."""
    reserved: Ints
    """Kept by reservations, and not taken by pods."""
    held: Ints
    """Kept by preemption and starvation holds."""


def device_amounts(
    table: TypeTable, name: str, rows: slice, reserved: Ints, held: Ints
) -> DeviceAmounts:
    """Of the resource, on a range of rows; for `reserved` and `held` see `left_on`."""
    capacity, free = table.total[:, rows], table.free[:, rows]
    total = _units(name, capacity, capacity)
    for_all = _units(name, free, capacity)
    for_owners = _units(name, free + reserved, capacity)
    not_taken = _units(name, free + reserved + held, capacity)
    return DeviceAmounts(total, total - not_taken, for_owners - for_all, not_taken - for_owners)


def left_on(rows: slice, table: TypeTable, entries: Iterable[ReservationEntry]) -> Ints:
    """What is left of these reservations of the devices of a range of rows, [resource, row, place]."""
    found = np.zeros_like(table.free[:, rows])
    known = [entry for entry in entries if entry.index < table.left.shape[1]]
    if known:
        at = np.array([entry.index for entry in known], dtype=np.intp)
        on = np.array([entry.row for entry in known], dtype=np.intp) - rows.start
        for line, left in zip(found, table.left[:, at], strict=True):
            np.add.at(line, on, left)
    return found


def _units(name: str, amounts: Ints, capacity: Ints) -> Ints:
    """Amounts of devices, [resource, row, place], as amounts of the resource, by row."""
    if name in DEVICE_RESOURCES[TYPE_OF[name]]:
        lines = amounts[DEVICE_RESOURCES[TYPE_OF[name]].index(name)]
    else:
        lines = np.minimum(amounts[CORE], amounts[RATIO])
    if name in WHOLE:
        full = np.minimum(capacity[CORE], capacity[RATIO])
        lines = (lines >= full) & (full > 0)
    found: Ints = np.maximum(lines, 0).sum(axis=1, dtype=np.int64)
    return found
