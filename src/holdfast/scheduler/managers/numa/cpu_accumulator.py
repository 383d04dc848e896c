"""The CPU accumulator: chooses which free CPUs of a node a pod gets.

All are on one NUMA node if one has enough free, else on one socket, else anywhere. With the FullPCPUs
bind policy whole cores are chosen; with SpreadByPCPUs one CPU of each core before the second of any,
and a NUMA node with as many cores comes before one with as many CPUs. Of several NUMA nodes with enough
free CPUs the strategy decides: the most allocated or the least allocated one comes first. Cores or NUMA
nodes of pods with the same exclusive policy are used only if there are no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.scheduler.managers.numa.node_topology import FULL_CORES, SPREAD, NodeTopology

BY_CORE, BY_NUMA = "PCPULevel", "NUMANodeLevel"


class Manner(NamedTuple):
    """The CPU policies of a pod."""

    policy: str = FULL_CORES
    required: bool = False
    """Whether the bind policy is required, not just preferred."""
    apart: str = ""
    """Its exclusive policy: cores or NUMA nodes that it does not share with pods of the same policy."""
    fullest: bool = False
    """Whether the most allocated NUMA node comes first."""


class Apart(NamedTuple):
    """Cores and NUMA nodes used by pods with an exclusive policy."""

    cores: frozenset[int] = frozenset()
    numa: frozenset[int] = frozenset()


def eligible(topology: NodeTopology, free: Collection[int], manner: Manner) -> frozenset[int]:
    """The free CPUs that satisfy a required bind policy: those of whole cores, or one of each core."""
    if not manner.required:
        return frozenset(free)
    by_core: dict[int, list[int]] = {}
    for cpu in free:
        by_core.setdefault(topology.cpus[cpu].core, []).append(cpu)
    if manner.policy == FULL_CORES:
        whole = (cpus for cpus in by_core.values() if len(cpus) == topology.per_core)
        return frozenset(cpu for cpus in whole for cpu in cpus)
    if manner.policy == SPREAD:
        return frozenset(min(cpus) for cpus in by_core.values())
    return frozenset(free)


def unshared(topology: NodeTopology, free: frozenset[int], shared: Mapping[int, int]) -> frozenset[int]:
    """The free CPUs that can be exclusive: without as many CPUs of each NUMA node as its `shared` cpu
    (milli) needs. These are CPUs of partly allocated cores first, then the highest-numbered ones."""
    spent: set[int] = set()
    for numa, amount in shared.items():
        there = [cpu for cpu in free if topology.cpus[cpu].numa == numa] if amount > 0 else []
        cores = {topology.cpus[cpu].core for cpu in there}
        whole = {core for core in cores if free.issuperset(topology.cores[core])}
        there.sort(key=lambda cpu: (topology.cpus[cpu].core in whole, -cpu))
        spent.update(there[: -(-amount // 1000)])
    return free - spent


def take_cpus(
    topology: NodeTopology,
    free: Collection[int],
    first: Collection[int],
    count: int,
    manner: Manner,
    apart: Apart,
) -> frozenset[int] | None:
    """Chooses `count` free CPUs, those in `first` before others; None if there are too few, or they do
    not satisfy a required bind policy."""
    usable = eligible(topology, free, manner)
    if len(usable) < count:
        return None
    chosen: frozenset[int] = frozenset()
    reserved = usable & frozenset(first)
    if reserved:
        taken = _CPUAccumulator(topology, reserved, manner, apart).take(min(count, len(reserved)))
        if taken is None:
            return None
        chosen = taken
        usable -= reserved
    if len(chosen) < count:
        rest = _CPUAccumulator(topology, usable, manner, apart).take(count - len(chosen))
        if rest is None:
            return None
        chosen |= rest
    return chosen if _is_as_required(topology, chosen, manner) else None


def _is_as_required(topology: NodeTopology, cpus: frozenset[int], manner: Manner) -> bool:
    cores = len({topology.cpus[cpu].core for cpu in cpus})
    if not manner.required:
        return True
    if manner.policy == FULL_CORES:
        return cores * topology.per_core == len(cpus)
    return manner.policy != SPREAD or cores == len(cpus)


Key = Callable[[int], int]


class _CPUAccumulator:
    """One choice of CPUs among those that are free."""

    def __init__(
        self, topology: NodeTopology, free: frozenset[int], manner: Manner, apart: Apart
    ) -> None:
        self._cpus = topology.cpus
        self._topology = topology
        self._free = set(free)
        self._manner = manner
        self._busy_cores = set(apart.cores) if manner.apart == BY_CORE else set()
        self._busy_numa = set(apart.numa) if manner.apart == BY_NUMA else set()
        self._taken: set[int] = set()

    def take(self, count: int) -> frozenset[int] | None:
        """Takes `count` CPUs; None if there are too few."""
        if count > len(self._free):
            return None
        topology, whole = self._topology, self._manner.policy == FULL_CORES
        levels: list[tuple[int, Key]] = [
            (topology.per_numa, lambda cpu: self._cpus[cpu].numa),
            (topology.per_socket, lambda cpu: self._cpus[cpu].socket),
        ]
        if whole or topology.per_core == 1:
            for size, key in levels:
                for keep_apart in (True, False) if size == topology.per_numa else (False,):
                    for cpus in self._groups(key, True, keep_apart) if count <= size else ():
                        if len(cpus) >= count:
                            return frozenset(cpus[:count])
            self._take_cores(count)
        if not whole and not self._taken:
            for size, key in levels:
                for keep_apart in (True, False):
                    for cpus in self._groups(key, False, keep_apart) if count <= size else ():
                        if len(cpus) >= count:
                            return frozenset(self._spread(cpus)[:count])
        for keep_apart in (True, False):
            for cpu in self._spread(self._nearest(keep_apart)):
                if len(self._taken) == count:
                    break
                self._have(cpu)
        return frozenset(self._taken) if len(self._taken) == count else None

    def _have(self, cpu: int) -> None:
        self._taken.add(cpu)
        self._free.discard(cpu)
        if self._manner.apart == BY_CORE:
            self._busy_cores.add(self._cpus[cpu].core)
        elif self._manner.apart == BY_NUMA:
            self._busy_numa.add(self._cpus[cpu].numa)

    def _take_cores(self, count: int) -> None:
        """Takes whole sockets as far as they are needed, the largest first; then single cores, from the
        socket with the fewest free CPUs."""
        per_core = self._topology.per_core
        groups = self._groups(lambda cpu: self._cpus[cpu].socket, True, False)
        rest = []
        for cpus in sorted(groups, key=len, reverse=True):
            if count - len(self._taken) < len(cpus):
                rest.append(cpus)
                continue
            for cpu in cpus:
                self._have(cpu)
        for cpus in sorted(rest, key=len):
            for at in range(0, len(cpus), per_core):
                if count - len(self._taken) < per_core:
                    return
                for cpu in cpus[at : at + per_core]:
                    self._have(cpu)

    def _is_excluded(self, cpu: int) -> bool:
        known = self._cpus[cpu]
        return known.core in self._busy_cores or known.numa in self._busy_numa

    def _groups(self, key: Key, whole: bool, keep_apart: bool) -> list[list[int]]:
        """Free CPUs grouped by NUMA node or socket, in the order of preference."""
        free = [cpu for cpu in self._free if not (keep_apart and self._is_excluded(cpu))]
        by_core: dict[int, list[int]] = {}
        for cpu in sorted(free):
            by_core.setdefault(self._cpus[cpu].core, []).append(cpu)
        groups: dict[int, list[int]] = {}
        for _, cpus in sorted(by_core.items(), key=lambda item: (-len(item[1]) * whole, item[0])):
            if whole and len(cpus) != self._topology.per_core:
                continue
            one_each = keep_apart and not whole
            groups.setdefault(key(cpus[0]), []).extend(cpus[:1] if one_each else cpus)
        if not whole:
            groups = {at: sorted(cpus) for at, cpus in groups.items()}
        by_socket = self._tally(free, lambda cpu: self._cpus[cpu].socket)
        sign = 1 if self._manner.fullest else -1

        sizes = {at: len(cpus) for at, cpus in groups.items()} if whole else self._tally(free, key)

        def order(at: int) -> tuple[int, ...]:
            return sign * sizes[at], sign * by_socket[self._cpus[groups[at][0]].socket], at

        return [groups[at] for at in sorted(groups, key=order)]

    def _nearest(self, keep_apart: bool) -> list[int]:
        """All free CPUs, those nearest to CPUs already taken first."""
        free = [cpu for cpu in self._free if not (keep_apart and self._is_excluded(cpu))]
        near = self._tally(self._taken, lambda cpu: self._cpus[cpu].socket)
        by_socket = self._tally(free, lambda cpu: self._cpus[cpu].socket)
        by_numa = self._tally(free, lambda cpu: self._cpus[cpu].numa)
        by_core = self._tally(free, lambda cpu: self._cpus[cpu].core)
        sign = 1 if self._manner.fullest else -1

        def order(cpu: int) -> tuple[int, ...]:
            core, numa, socket = self._cpus[cpu]
            return (
                -near.get(socket, 0),
                sign * by_socket[socket],
                sign * by_numa[numa],
                by_core[core],
                socket,
                core,
                cpu,
            )

        return sorted(free, key=order)

    def _spread(self, cpus: list[int]) -> list[int]:
        """Orders CPUs: one of each core, then the second of each, and so on."""
        if len(cpus) <= self._topology.per_core:
            return cpus
        ranks: dict[int, int] = {}
        placed = []
        for place, cpu in enumerate(cpus):
            core = self._cpus[cpu].core
            rank = ranks[core] = ranks.get(core, -1) + 1
            placed.append((rank, place, cpu))
        return [cpu for _, _, cpu in sorted(placed)]

    def _tally(self, cpus: Iterable[int], key: Key) -> dict[int, int]:
        found: dict[int, int] = {}
        for cpu in cpus:
            found[key(cpu)] = found.get(key(cpu), 0) + 1
        return found
