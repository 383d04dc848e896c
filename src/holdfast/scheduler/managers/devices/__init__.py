"""Devices of nodes (GPUs, network cards, FPGAs) and the shares of them that pods have.

    device_manager    allocations of all nodes, kept in line with objects, pods and reservations
    device_table      the devices of every node as arrays
    device_amounts    what nodes have of them, by resource
    requests          a pod's device requests and hints
    device_allocator  the nodes that can serve a pod class, and with which devices
    selection         which devices of one node to allocate
    partitions        sets of GPUs that are allocated together
    allocation        the allocation as annotations of pods and reservations

Does nothing until the first Device object, or the first pod with a device allocation, is seen.
"""

from holdfast.scheduler.managers.devices.allocation import Allocation, DevicePart
from holdfast.scheduler.managers.devices.device_manager import DeviceManager, resources_of
from holdfast.scheduler.managers.devices.requests import (
    DeviceRequestError,
    Request,
    Share,
    device_request,
)

__all__ = [
    "Allocation",
    "DeviceManager",
    "DevicePart",
    "DeviceRequestError",
    "Request",
    "Share",
    "device_request",
    "resources_of",
]
