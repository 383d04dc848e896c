"""CPUs, and amounts by NUMA node: what a node has, what somebody has of it, what is left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from holdfast.api import names
from holdfast.core.cpus.holding import Holding
from holdfast.core.cpus.taking import unshared
from holdfast.core.cpus.topology import Topology, amplified, cpus_of_numa

Zones = Mapping[int, Mapping[str, int]]
_NO_ZONES: Zones = MappingProxyType({})


class Room(NamedTuple):
    """CPUs, and amounts by NUMA node and resource."""

    cpus: frozenset[int] = frozenset()
    zones: Zones = _NO_ZONES

    def less(self, other: Room, most: bool = False) -> Room:
        """Without what the other has; with `most`, amounts never below nothing."""
        zones = {numa: dict(amounts) for numa, amounts in self.zones.items()}
        for numa, amounts in other.zones.items():
            for name, value in amounts.items():
                if numa in zones and name in zones[numa]:
                    zones[numa][name] -= min(value, zones[numa][name]) if most else value
        return Room(self.cpus - other.cpus, zones)

    def within(self, other: Room) -> Room:
        """What of it the other has."""
        zones = {
            numa: {
                name: min(value, max(0, other.zones.get(numa, {}).get(name, 0)))
                for name, value in amounts.items()
            }
            for numa, amounts in self.zones.items()
        }
        return Room(self.cpus & other.cpus, zones)

    def more(self, other: Room) -> Room:
        zones = {numa: dict(amounts) for numa, amounts in self.zones.items()}
        for numa, amounts in other.zones.items():
            for name, value in amounts.items():
                if numa in zones and name in zones[numa]:
                    zones[numa][name] += value
        return Room(self.cpus | other.cpus, zones)


def everything(topology: Topology | None) -> Room:
    """What a node has, and claims to have."""
    if topology is None:
        return Room()
    return Room(topology.open, {numa: dict(offered) for numa, offered in topology.amplified.items()})


def room_of(topology: Topology | None, has: Holding) -> Room:
    """What somebody has, by NUMA node; where that is not said, by the CPUs."""
    zones = {numa: dict(amounts) for numa, amounts in has.zones}
    if not zones and topology is not None and has.cpus:
        for numa, cpus in cpus_of_numa(topology, has.cpus).items():
            zones[numa] = {names.CPU: 1000 * len(cpus)}
    if topology is not None and topology.cpu_ratio > 1 and has.cpus:
        for amounts in zones.values():
            amounts[names.CPU] = amplified(amounts.get(names.CPU, 0), topology.cpu_ratio)
    return Room(has.cpus, zones)


def without_shared(topology: Topology | None, room: Room, shared: Mapping[int, int]) -> Room:
    """What can be somebody's own: not the CPUs those need who have `shared` amounts of NUMA nodes."""
    if topology is None or not shared:
        return room
    real = {numa: int(amount / topology.cpu_ratio) for numa, amount in shared.items()}
    return room._replace(cpus=unshared(topology, room.cpus, real))
