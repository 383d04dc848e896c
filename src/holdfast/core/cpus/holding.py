"""What a pod, or a reservation, has of CPUs and NUMA nodes, as it is written on it.

{"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "8Gi"}}]}
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.api.annotations import ResourceStatus
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.names import CPU
from holdfast.api.quantity import Quantity, QuantityError, amount, format_amount
from holdfast.core.cpus.cpuset import format_cpus, parse_cpus
from holdfast.core.cpus.topology import MOST_OF_ZONE

Amounts = tuple[tuple[str, int], ...]


class Holding(NamedTuple):
    cpus: frozenset[int] = frozenset()
    zones: tuple[tuple[int, Amounts], ...] = ()
    """By NUMA node, what of it."""

    @property
    def shared(self) -> dict[int, int]:
        """What of cpu it has by NUMA node, if it has no CPUs of its own."""
        if self.cpus:
            return {}
        return {numa: value for numa, amounts in self.zones for name, value in amounts if name == CPU}

    def __bool__(self) -> bool:
        return bool(self.cpus or self.zones)


def read_holding(text: str) -> Holding | None:
    try:
        said = decode_json(text, ResourceStatus)
        zones = tuple(
            (
                zone.node,
                tuple(sorted((name, _amount(name, value)) for name, value in zone.resources.items())),
            )
            for zone in said.numa_node_resources
        )
        return Holding(parse_cpus(said.cpuset), zones)
    except (InvalidObject, QuantityError, ValueError):
        return None


def _amount(name: str, value: Quantity) -> int:
    return min(max(0, amount(name, value)), MOST_OF_ZONE)


def write_holding(holding: Holding) -> str:
    written: dict[str, Any] = {}
    if holding.cpus:
        written["cpuset"] = format_cpus(holding.cpus)
    if holding.zones:
        written["numaNodeResources"] = [
            {"node": node, "resources": {name: format_amount(name, value) for name, value in amounts}}
            for node, amounts in holding.zones
        ]
    return msgspec.json.encode(written).decode()
