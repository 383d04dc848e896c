"""The names under which storage is watched: what an answer about volumes can depend on."""

from collections.abc import Hashable

from holdfast.core.volumes.objects import ClaimKey

MIGRATED: Hashable = ("migrated",)
"""Which in-tree plugins have been replaced on which nodes."""


DEFAULT_CLASS: Hashable = ("default class",)
"""Which storage class claims have that name none."""


def of_claim(key: ClaimKey) -> Hashable:
    return "claim", key


def of_volume(name: str) -> Hashable:
    return "volume", name


def of_class(name: str) -> Hashable:
    return "class", name


def of_driver(name: str) -> Hashable:
    return "driver", name


def of_pool(storage_class: str) -> Hashable:
    """The free volumes of a class."""
    return "pool", storage_class


def of_capacities(storage_class: str) -> Hashable:
    """The space there is for volumes of a class."""
    return "capacities", storage_class


def of_limits(driver: str) -> Hashable:
    """How many volumes of a driver nodes can have."""
    return "limits", driver


def of_attached(driver: str) -> Hashable:
    """The volumes of a driver that nodes have."""
    return "attached", driver
