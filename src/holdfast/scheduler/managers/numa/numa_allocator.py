"""The NUMA allocator: chooses the CPUs and NUMA nodes that a pod gets on one node."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.annotations import ResourceSpec
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.managers.numa.allocation import Counts, Holding, NumaCapacity
from holdfast.scheduler.managers.numa.cpu_accumulator import Apart, Manner, eligible, take_cpus
from holdfast.scheduler.managers.numa.node_topology import (
    BEST_EFFORT,
    FULL_CORES,
    POLICIES,
    SINGLE,
    SPREAD,
    NodeTopology,
    Want,
)

_BIND = {"FullPCPUsOnly": FULL_CORES, "SpreadByPCPUs": SPREAD}


Devices = list[tuple[str, int, "NDArray[np.int64]"]] | None
"""For each type of device, how many are requested and how many are free, [1, NUMA node]."""


class FreeCPUs(Protocol):
    """What the allocator reads of the CPU manager."""

    topologies: dict[int, NodeTopology]
    counts: Counts
    """What is free, by row."""
    fullest_first: bool
    """Whether the NUMA node with the least free comes first, if the pod does not say."""

    def free(self, row: int) -> NumaCapacity: ...

    def left(self, hold: int) -> NumaCapacity:
        """What is left of the reservation with this entry index."""

    def free_for_owners(self, hold: int, row: int) -> NumaCapacity:
        """What is free on the row for owners of the reservation with this entry index."""

    def apart(self, row: int) -> Apart:
        """Cores and NUMA nodes with pods that exclude others from them."""


class NumaAllocator:
    """Chooses allocations on single rows; the CPU manager keeps them."""

    def __init__(self, cpus: FreeCPUs, nodes: NodeTable) -> None:
        self._cpus = cpus
        self._nodes = nodes

    # Policies on a row

    def _labels(self, row: int) -> Mapping[str, str]:
        info = self._nodes.info.get(row)
        return info.labels if info is not None else {}

    def bind_policy(self, row: int) -> str:
        """The bind policy of the node, which applies to all pods; empty if it has none."""
        topology = self._cpus.topologies.get(row)
        label = _BIND.get(self._labels(row).get(names.NODE_CPU_BIND_POLICY, ""), "")
        if label == FULL_CORES or (topology is not None and topology.full_cores_only):
            return FULL_CORES
        return label

    def numa_policy(self, want: Want, row: int) -> str:
        """The NUMA policy that applies on a row: the pod's, else the node's, else the kubelet's."""
        if want.numa:
            return want.numa
        label = self._labels(row).get(names.NODE_NUMA_TOPOLOGY_POLICY, "")
        if label in POLICIES and label:
            return label
        topology = self._cpus.topologies.get(row)
        return topology.policy if topology is not None else ""

    def is_bound(self, want: Want, row: int) -> bool:
        return want.bound or (bool(self.bind_policy(row)) and want.milli > 0)

    def manner(self, want: Want, row: int) -> Manner:
        node = self.bind_policy(row)
        policy = want.required or node or want.policy
        strategy = self._labels(row).get(names.NODE_NUMA_ALLOCATE_STRATEGY, "")
        fullest = strategy == "MostAllocated" or (not strategy and self._cpus.fullest_first)
        return Manner(policy, bool(want.required or node), want.apart, fullest)

    def decided(self, want: Want, row: int) -> ResourceSpec:
        """The resource spec with the bind policy that applies on a row, for the pod's annotation."""
        manner, spec = self.manner(want, row), msgspec.structs.replace(want.given)
        if manner.required and spec.required_cpu_bind_policy in ("", "Default"):
            spec.required_cpu_bind_policy = manner.policy
        if spec.preferred_cpu_bind_policy == "Default":
            spec.preferred_cpu_bind_policy = manner.policy
        if not spec.required_cpu_bind_policy and not spec.preferred_cpu_bind_policy:
            spec.preferred_cpu_bind_policy = manner.policy
        return spec

    # Allocation

    def choose(
        self,
        want: Want,
        row: int,
        entry: int | None,
        later: NumaCapacity | None,
        devices: Devices = None,
    ) -> Holding | None:
        """The allocation of a pod on a row; empty if too little is free, None if neither exclusive CPUs
        nor a NUMA policy apply there. `later` replaces what is free now, for Waiting reservations;
        `devices` are the devices the pod requests as well."""
        topology = self._cpus.topologies.get(row)
        bound, policy = self.is_bound(want, row), self.numa_policy(want, row)
        if topology is None or not (bound or policy):
            return None
        if bound and (not topology.valid or want.milli % 1000):
            return Holding()
        if not bound and not self._concerned(want, topology):
            return None
        free, first, near = self._cpus.free(row), NumaCapacity(), frozenset[int]()
        if entry is not None:
            free, first = self._cpus.free_for_owners(entry, row), self._cpus.left(entry)
            reserved = (numa for numa, amounts in first.zones.items() if any(amounts.values()))
            near = frozenset(reserved) | {topology.cpus[cpu].numa for cpu in first.cpus}
        if later is not None:
            asked = self._asked(want)
            first, free = free, later
            near = frozenset(
                numa
                for numa, amounts in first.zones.items()
                if all(value >= asked.get(name, 0) for name, value in amounts.items())
            )
        manner = self.manner(want, row)
        if not policy:
            taken = take_cpus(topology, free.cpus, first.cpus, want.cpus, manner, self._cpus.apart(row))
            return Holding(taken) if taken is not None else Holding()
        for zones in self._candidates(want, row, policy, free, near, bound, manner, later is None):
            if policy != BEST_EFFORT and not _has_devices(zones, devices):
                continue
            found = self._spread(want, row, zones, free, first.cpus, bound, manner)
            if found is not None:
                return found
        return Holding()

    def _concerned(self, want: Want, topology: NodeTopology) -> bool:
        """Whether a resource that the pod requests is counted by NUMA node."""
        asked = self._asked(want)
        return not topology.zones or any(
            name in zone for zone in topology.zones.values() for name in asked
        )

    def _candidates(
        self,
        want: Want,
        row: int,
        policy: str,
        free: NumaCapacity,
        near: frozenset[int],
        bound: bool,
        manner: Manner,
        now: bool,
    ) -> list[tuple[int, ...]]:
        """Sets of NUMA nodes to try, the best first: smaller sets, then those with most NUMA nodes of
        `near`, then by how allocated they are."""
        topology, counts = self._cpus.topologies[row], self._cpus.counts
        asked = self._asked(want)
        found: list[tuple[tuple[float, ...], tuple[int, ...]]] = []
        sizes = (1,) if policy == SINGLE else range(1, len(topology.zones) + 1)
        for size in sizes:
            for zones in combinations(sorted(topology.zones), size):
                if not self._suffice(zones, asked, free, topology, bound, manner, want):
                    continue
                if want.exclusive and policy != BEST_EFFORT and now:
                    excluded = counts.several if size == 1 else counts.single
                    if any(excluded[row, numa] for numa in zones):
                        continue
                left = self._left_over(zones, asked, free, topology)
                held = sum(numa in near for numa in zones)
                found.append(((size, -held, left if manner.fullest else -left), zones))
        if policy == BEST_EFFORT:
            found.append(((99.0,), tuple(sorted(topology.zones))))
        return [zones for _, zones in sorted(found)]

    def _asked(self, want: Want) -> dict[str, int]:
        slots = self._nodes.slots
        return {slots.name(slot): value for slot, value in want.requests}

    def _suffice(
        self,
        zones: tuple[int, ...],
        asked: Mapping[str, int],
        free: NumaCapacity,
        topology: NodeTopology,
        bound: bool,
        manner: Manner,
        want: Want,
    ) -> bool:
        """Whether these NUMA nodes together have what the pod requests, each some of every resource."""
        for name, value in asked.items():
            if not any(name in offered for offered in topology.zones.values()):
                continue
            amounts = [free.zones.get(numa, {}).get(name, 0) for numa in zones]
            if sum(amounts) < value or (len(zones) > 1 and any(amount <= 0 for amount in amounts)):
                return False
        if not bound:
            return True
        usable = eligible(topology, self._on(topology, free.cpus, zones), manner)
        return len(usable) >= want.cpus

    def _on(self, topology: NodeTopology, cpus: frozenset[int], zones: tuple[int, ...]) -> list[int]:
        return [cpu for cpu in cpus if topology.cpus[cpu].numa in zones]

    def _left_over(
        self,
        zones: tuple[int, ...],
        asked: Mapping[str, int],
        free: NumaCapacity,
        topology: NodeTopology,
    ) -> float:
        """The shares of cpu and of memory that would be left, added up."""
        left = 0.0
        for name in (names.CPU, names.MEMORY):
            total = sum(topology.zones[numa].get(name, 0) for numa in zones)
            amount = sum(free.zones.get(numa, {}).get(name, 0) for numa in zones)
            left += (amount - asked.get(name, 0)) / total if total else 0.0
        return left

    def _spread(
        self,
        want: Want,
        row: int,
        zones: tuple[int, ...],
        free: NumaCapacity,
        first: frozenset[int],
        bound: bool,
        manner: Manner,
    ) -> Holding | None:
        """Distributes amounts over the NUMA nodes as evenly as possible, and CPUs by these amounts;
        None if that is not possible."""
        topology = self._cpus.topologies[row]
        if not zones:
            return None
        given: dict[int, dict[str, int]] = {}
        usable = {
            numa: len(eligible(topology, self._on(topology, free.cpus, (numa,)), manner))
            for numa in zones
        }
        for name, value in self._asked(want).items():
            there = [numa for numa in zones if name in topology.zones[numa]]
            if not there:
                continue
            free_by_numa = {numa: max(0, free.zones.get(numa, {}).get(name, 0)) for numa in there}
            step = 1
            if name == names.CPU and bound:
                step = 1000 * (
                    topology.per_core if manner.policy == FULL_CORES and manner.required else 1
                )
                free_by_numa = {numa: min(free_by_numa[numa], 1000 * usable[numa]) for numa in there}
            rest = value
            for place, numa in enumerate(sorted(there, key=lambda numa: (free_by_numa[numa], numa))):
                part = min(free_by_numa[numa], rest // (len(there) - place) // step * step)
                if part:
                    given.setdefault(numa, {})[name] = part
                    rest -= part
            if rest:
                return None
        cpus: frozenset[int] = frozenset()
        if bound:
            for numa, amounts in sorted(given.items()):
                taken = take_cpus(
                    topology,
                    self._on(topology, free.cpus, (numa,)),
                    first,
                    amounts.get(names.CPU, 0) // 1000,
                    manner,
                    self._cpus.apart(row),
                )
                if taken is None:
                    return None
                cpus |= taken
            if len(cpus) != want.cpus:
                return None
        listed = ((numa, tuple(sorted(amounts.items()))) for numa, amounts in sorted(given.items()))
        return Holding(cpus, tuple(listed))


def _has_devices(zones: tuple[int, ...], devices: Devices) -> bool:
    return all(there[0, list(zones)].sum() >= wanted for _, wanted, there in devices or ())
