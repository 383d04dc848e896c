"""Devices of nodes (GPUs, network cards, FPGAs) and who has which share of them.

    requests       what a pod asks of devices, in all its spellings, and whether that makes sense
    wishes         what a pod says about how it wants them (annotations)
    asking         which nodes can serve a class of pods, and with which devices
    table          the devices of every node as arrays
    partitions     sets of GPUs that are given together
    functions      virtual functions of cards
    choosing       which devices of one node to take
    fragmentation  how much of what is free those to come could not use
    allocation     shares of devices, as they are written on pods and reservations
    devices        all of it, kept in step with objects, pods and reservations

Nothing here costs anything until the first Device object, or the first pod that says which devices it
has, is seen.
"""

from holdfast.scheduler.managers.devices.allocation import Allocation, DevicePart
from holdfast.scheduler.managers.devices.device_manager import DeviceManager, offered_by
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
    "offered_by",
]
