"""Device allocations, as the device-allocated annotation of pods and reservations stores them.

{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "50", …}, "id": "GPU-…"}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.api import names
from holdfast.api.annotations import DeviceAllocation
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.quantity import QuantityError, amount, format_amount
from holdfast.scheduler.managers.devices.requests import DEVICE_RESOURCES

MOST_OF_ONE = 1 << 52
"""Higher amounts of a device count as this much: a hundred times the sum of many still fits 64 bits."""


class Function(NamedTuple):
    """A virtual function of a network card."""

    bus: str
    minor: int = 0


class DevicePart(NamedTuple):
    """The allocated part of one device."""

    minor: int
    amounts: tuple[int, ...]
    """By resource of the device's type (`requests.DEVICE_RESOURCES`)."""
    functions: tuple[Function, ...] = ()


Allocation = Mapping[str, tuple[DevicePart, ...]]
"""The allocated parts, by type of device."""


def read_allocation(text: str) -> Allocation | None:
    """Decodes the annotation; None if it is invalid."""
    try:
        raw = decode_json(text, dict[str, list[DeviceAllocation]])
        return {
            kind: tuple(_part(kind, each) for each in devices)
            for kind, devices in raw.items()
            if kind in DEVICE_RESOURCES and devices
        }
    except (InvalidObject, QuantityError):
        return None


def _part(kind: str, device: DeviceAllocation) -> DevicePart:
    given = (amount(resource, device.resources.get(resource, 0)) for resource in DEVICE_RESOURCES[kind])
    functions = device.extension.vfs if device.extension is not None else ()
    return DevicePart(
        device.minor,
        tuple(min(max(0, value), MOST_OF_ONE) for value in given),
        tuple(Function(each.bus_id, each.minor) for each in functions),
    )


def write_allocation(allocation: Allocation, ids: Mapping[tuple[str, int], str]) -> str:
    """Encodes the annotation. `ids` are the devices' UUIDs, by type and minor."""
    written: dict[str, list[dict[str, Any]]] = {}
    for kind, parts in sorted(allocation.items()):
        written[kind] = devices = []
        for part in parts:
            device: dict[str, Any] = {
                "minor": part.minor,
                "resources": {
                    resource: _quantity(resource, value)
                    for resource, value in zip(DEVICE_RESOURCES[kind], part.amounts, strict=True)
                    if value
                },
            }
            if ids.get((kind, part.minor)):
                device["id"] = ids[kind, part.minor]
            if part.functions:
                vfs = [{"minor": each.minor, "busID": each.bus} for each in part.functions]
                device["extension"] = {"vfs": vfs}
            devices.append(device)
    return msgspec.json.encode(written).decode()


def _quantity(resource: str, value: int) -> str:
    return format_amount("memory" if resource == names.GPU_MEMORY else resource, value)
