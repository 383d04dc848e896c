"""The CPUs and NUMA nodes of all nodes, and who has which of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.devices import NodeResourceTopology
from holdfast.scheduler.cluster.columns import RowColumns, cells_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.reservation_table import ReservationRow
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.managers.numa.allocation import (
    Counts,
    Holding,
    NumaCapacity,
    everything,
    read_holding,
    room_of,
    without_shared,
    write_holding,
)
from holdfast.scheduler.managers.numa.cpu_accumulator import BY_CORE, BY_NUMA, Apart
from holdfast.scheduler.managers.numa.node_topology import (
    BEST_EFFORT,
    FULL_CORES,
    POLICIES,
    CpuWantError,
    NodeTopology,
    Want,
    cpus_of_numa,
    read_ratios,
    read_want,
)
from holdfast.scheduler.managers.numa.numa_allocator import NumaAllocator
from holdfast.scheduler.managers.numa.topology_hints import NumaFilter
from holdfast.scheduler.managers.resource_manager import Horizon, ResourceManager

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster
    from holdfast.scheduler.reservations.reservation_info import ReservationInfo

_NO_SLOTS: frozenset[int] = frozenset()
_CPU_SLOT = frozenset((CPU,))


class Claimed(NamedTuple):
    """What pods and reservations leave of a row."""

    room: NumaCapacity
    unshared: NumaCapacity
    """The same without the CPUs needed by those that have an amount of a NUMA node and no CPUs."""
    in_use: frozenset[int]
    """The CPUs pods have."""
    lefts: dict[str, NumaCapacity]
    """What reservations have left, by uid."""
    shared: Counter[int]
    """By NUMA node, the cpu of those that have an amount of it and no CPUs."""


class CPUManager(ResourceManager[Holding]):
    annotation = names.RESOURCE_STATUS
    lacks = "cpuset"
    valid: NDArray[np.bool_] = cells_of("_valid")
    """The rows whose CPUs can be told apart."""
    per_core: NDArray[np.int64] = cells_of("_per_core")
    own: NDArray[np.int64] = cells_of("_own")
    """How many CPUs of each row are exclusive to somebody."""
    ratio: NDArray[np.float64] = cells_of("_ratio")
    """How many times its CPUs a node claims to have."""
    odd_ratio: NDArray[np.bool_] = cells_of("_odd_ratio")
    """The rows that say so in an invalid way."""
    full_cores_only: NDArray[np.bool_] = cells_of("_full_cores_only")
    """The rows whose kubelet gives whole cores and nothing else."""
    kubelet_policy: NDArray[np.int64] = cells_of("_kubelet_policy")
    """The NUMA policies of kubelets, by their place in `POLICIES`."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, Holding())
        self.topologies: dict[int, NodeTopology] = {}
        columns = cluster.nodes.columns
        self.counts = Counts(columns)
        """By row."""
        self.owner_counts = Counts(RowColumns(0))
        """By hold: the row as owners of that reservation see it."""
        self._ahead: Counts | None = None
        """By row as it would be without pods that end; once somebody has asked."""
        self._outdated: set[int] = set()
        """The rows of which that is to be worked out anew."""
        self.resources: list[str] = [names.CPU, names.MEMORY]
        """What is counted per NUMA node; the first index of `room` and `offers`."""
        self._valid = columns.new(np.bool_)
        self._per_core = columns.new(np.int64, 1)
        self._own = columns.new(np.int64)
        self._ratio = columns.new(np.float64, 1.0)
        self._odd_ratio = columns.new(np.bool_)
        self._full_cores_only = columns.new(np.bool_)
        self._kubelet_policy = columns.new(np.int64)
        self.held: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """How many of them each reservation has left, by hold; -1 of those that never had anything."""
        self._widest = 1
        self.default_policy = FULL_CORES
        self.fullest_first = False
        self.numa_filter = NumaFilter(self, cluster.nodes)
        self.allocator = NumaAllocator(self, cluster.nodes)
        self._wants: dict[int, Want | CpuWantError] = {}
        self._left: dict[int, NumaCapacity] = {}
        """What reservations have left, by hold."""
        self._free: dict[int, NumaCapacity] = {}
        self._free_for_owners: dict[int, NumaCapacity] = {}
        """What their owners see of their rows."""
        cluster.classes.on_dropped.append(self._class_dropped)

    # What is asked

    def want(self, cls: PodClass) -> Want:
        """What pods of the class want; raises CpuWantError."""
        known = self._wants.get(cls.id)
        if known is None:
            try:
                known = read_want(cls, self.default_policy)
            except CpuWantError as error:
                known = error
            self._wants[cls.id] = known
        if isinstance(known, CpuWantError):
            raise known
        return known

    def sensible(self, cls: PodClass) -> Want | None:
        try:
            return self.want(cls)
        except CpuWantError:
            return None

    @property
    def demanding(self) -> bool:
        """Whether some node wants something even of pods that want nothing in particular."""
        if not self.active:
            return False
        ratios = (self.ratio > 1).any() or self.odd_ratio.any()
        return bool(self.kubelet_policy.any() or self.full_cores_only.any() or ratios)

    def free(self, row: int) -> NumaCapacity:
        return self._free.get(row) or NumaCapacity()

    def left(self, hold: int) -> NumaCapacity:
        return self._left.get(hold) or NumaCapacity()

    def free_for_owners(self, hold: int, row: int) -> NumaCapacity:
        """What there is on the row for owners of a reservation there."""
        return self._free_for_owners.get(hold) or self.free(row)

    def reach(self, hold: int) -> None:
        """Makes room for a hold of this index."""
        self.owner_counts.fit(len(self.resources), self.counts.width, hold + 1)
        more = len(self.owner_counts.free) - len(self.held)
        if more > 0:
            self.held = np.pad(self.held, (0, more), constant_values=-1)

    def apart(self, row: int) -> Apart:
        """Where those are that want to be apart from others."""
        topology, cores, zones = self.topologies[row], set(), set()
        for uid, pod in self.there.get(row, {}).items():
            want = self.sensible(pod.cls)
            for cpu in self.has(uid).cpus if want is not None else ():
                known = topology.cpus.get(cpu)
                if known is not None and want is not None and want.apart == BY_CORE:
                    cores.add(known.core)
                elif known is not None and want is not None and want.apart == BY_NUMA:
                    zones.add(known.numa)
        return Apart(frozenset(cores), frozenset(zones))

    def zones(self, pod: PodRecord, row: int) -> tuple[frozenset[int], bool]:
        """The NUMA nodes a pod has on the row because of a policy, and whether that must be kept to."""
        want = self.sensible(pod.cls)
        if not self.active or want is None or row not in self.topologies:
            return frozenset(), False
        found = frozenset(numa for numa, _ in self.has(pod.uid).zones)
        return found, self.allocator.numa_policy(want, row) != BEST_EFFORT

    def particular(self, cls: PodClass, hold: ReservationRow) -> frozenset[int]:
        """Whether pods of the class would draw CPUs of their own on a reservation, not an amount."""
        want = self.sensible(cls)
        if want is None or not self.active or not self.has(hold.pod.uid).cpus:
            return _NO_SLOTS
        return _CPU_SLOT if self.allocator.is_bound(want, hold.row) else _NO_SLOTS

    def can_allocate_from(self, cls: PodClass, hold: ReservationRow) -> bool:
        """Whether a pod of the class would get some of the CPUs a reservation holds."""
        want = self.sensible(cls)
        if want is None or not self.active or not self.allocator.is_bound(want, hold.row):
            return False
        return bool(self.left(hold.index).cpus)

    def reasons(self, cls: PodClass, hold: ReservationRow) -> list[str]:
        """Why a pod of the class would not find its CPUs through a reservation."""
        want = self.sensible(cls) if self.active else None
        if want is None:
            return []
        rows, holds = np.array([hold.row]), np.array([hold.index])
        claimed = self._cluster.nodes.claimed[CPU, rows] - hold.left(CPU)
        lacks = self.numa_filter.lacks(want, rows, holds, claimed)
        return [lack.text for lack in lacks]

    def lacking(self, pod: PodRecord, behind: Iterable[str]) -> list[str]:
        """Whether a reserve pod has no CPUs, or they or its room of NUMA nodes are somebody else's."""
        if self.guessed.get(pod.uid) == self.nothing:
            return ["cpuset"]
        mine = self.has(pod.uid).cpus
        theirs: set[int] = set()
        room = self.free(pod.row)
        for uid, other in self.there.get(pod.row, {}).items():
            if uid in behind and uid in self._hold:
                room = room.more(self.left(self._hold[uid]))
            elif uid != pod.uid and other.reservation_uid != pod.uid:
                theirs |= self.has(uid).cpus
        if mine & theirs:
            return ["cpuset"]
        held = self.left(self._hold[pod.uid]).zones if pod.uid in self._hold else {}
        short = {
            f"NUMA {name}"
            for numa, amounts in held.items()
            for name, value in amounts.items()
            if value and room.zones.get(numa, {}).get(name, 0) < 0
        }
        return sorted(short)

    def lost(self, pod: PodRecord) -> bool:
        mine, topology = self.has(pod.uid).cpus, self.topologies.get(pod.row)
        if not mine:
            return False
        return (
            topology is None
            or not mine <= topology.cpus.keys()
            or any(
                mine & self.has(uid).cpus
                for uid, other in self.there.get(pod.row, {}).items()
                if uid != pod.uid and other.reservation is None
            )
        )

    def ahead(self, row: int, waits: ReservationInfo | None, horizon: Horizon) -> NumaCapacity:
        """What would be free on the row for a reservation that waits, were those gone that count as
        gone. What they have from reservations that stay goes back to these."""
        return self._claimed(row, self._staying(row, waits, horizon)).unshared

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None:
        super().annotate(pod, row, into)
        want = self.sensible(pod.cls)
        if want is None or not self.settled.get(pod.uid, self.nothing).cpus:
            return
        spec = self.allocator.decided(want, row)
        if spec != want.given:
            into[names.RESOURCE_SPEC] = msgspec.json.encode(spec).decode()

    def counts_ahead(self) -> Counts:
        """What would be free on rows were there no pods but those that stay for good."""
        if self._ahead is None:
            self._ahead = Counts(self._cluster.nodes.columns)
            self._outdated = set(self.topologies)
        counts = self._ahead
        counts.fit(len(self.resources), self._widest)
        for row in self._outdated:
            free = self.ahead(row, None, Horizon.LATER)
            counts.tell(row, self.topologies.get(row), free, self.resources)
        self._outdated.clear()
        return counts

    # How it is done with CPUs

    def _read(self, text: str) -> Holding | None:
        return read_holding(text)

    def _write(self, row: int, what: Holding) -> str:
        return write_holding(what)

    def _list(self, row: int) -> bool:
        name = self._cluster.nodes.name(row)
        given = self._cluster.objects.get("NodeResourceTopology", {}).get(("", name))
        self._forget_row(row)
        if not isinstance(given, NodeResourceTopology):
            self.node_changed(row)
            return False
        topology = self.topologies[row] = NodeTopology(given)
        for offered in topology.zones.values():
            self.resources += [name for name in offered if name not in self.resources]
        self.valid[row] = topology.valid
        self.per_core[row] = max(1, topology.per_core)
        self.full_cores_only[row] = topology.full_cores_only
        self.kubelet_policy[row] = POLICIES.index(topology.policy)
        self._widest = max(self._widest, topology.width)
        self.node_changed(row)
        self._recount(row)
        return True

    def node_changed(self, row: int) -> None:
        """The node may say that it has more CPUs than it has."""
        info, topology = self._cluster.nodes.info.get(row), self.topologies.get(row)
        text = info.annotations.get(names.AMPLIFICATION_RATIO) if info is not None else None
        if text is not None:
            self._activate()
        if not self.active:
            return
        ratios = read_ratios(text)
        self.odd_ratio[row] = ratios is None
        self.ratio[row] = max(1.0, (ratios or {}).get(names.CPU, 1.0))
        if topology is not None:
            before = topology.amplified, topology.cpu_ratio
            topology.amplify(ratios or {})
            if (topology.amplified, topology.cpu_ratio) != before:
                self._recount(row)

    def _choose(
        self, pod: PodRecord, row: int, hold: int | None, horizon: Horizon = Horizon.NOW
    ) -> Holding | None:
        want = self.sensible(pod.cls)
        if want is None:
            return None
        devices = self._cluster.managers.devices
        asking = devices.sensible(pod.cls) if devices.active and devices.alignment else None
        counts = None
        if asking is not None and row in self.topologies:
            holds = None if hold is None else np.array([hold])
            later = devices.later(pod.reservation, horizon)
            counts = asking.by_numa(np.array([row]), holds, self.counts.width, later)
        later_room = None if horizon is Horizon.NOW else self.ahead(row, pod.reservation, horizon)
        return self.allocator.choose(want, row, hold, later_room, counts)

    def _is_as_asked(self, pod: PodRecord, what: Holding) -> bool:
        want = self.sensible(pod.cls)
        if want is None:
            return True
        by_zone = sum(dict(amounts).get(names.CPU, 0) for _, amounts in what.zones)
        return (not what.cpus or len(what.cpus) == want.cpus) and (not by_zone or by_zone == want.milli)

    def _recount(self, row: int) -> None:
        topology, there = self.topologies.get(row), self.there.get(row, {})
        if self._ahead is not None:
            self._outdated.add(row)
        single: set[int] = set()
        several: set[int] = set()
        for uid in there:
            has = self.has(uid)
            numa = set(cpus_of_numa(topology, has.cpus)) if topology is not None else set()
            if len(numa) == 1:
                single |= numa
            else:
                several |= numa
        claimed = self._claimed(row, there)
        free = self._free[row] = claimed.unshared
        self.own[row] = len(claimed.in_use) + sum(len(left.cpus) for left in claimed.lefts.values())
        self._fit()
        self.counts.tell(row, topology, free, self.resources)
        for numa_node in single | several:
            if numa_node < self.counts.width:
                self.counts.single[row, numa_node] = numa_node not in several
                self.counts.several[row, numa_node] = numa_node in several
        for uid, left in claimed.lefts.items():
            if uid in self._hold:
                others = claimed.shared - Counter(self._shared(uid, left))
                free = without_shared(topology, claimed.room, others)
                # What pods have is nobody else's, even where a plan or an object says so.
                usable = left._replace(cpus=left.cpus - claimed.in_use)
                self._hold_has(self._hold[uid], row, there[uid], topology, free, usable)

    def _claimed(self, row: int, there: Mapping[str, PodRecord]) -> Claimed:
        """What these pods and reserve pods leave of a row."""
        topology = self.topologies.get(row)
        room = everything(topology)
        given, in_use = room.cpus, frozenset[int]()
        owned: dict[str, list[Holding]] = {}
        shared: Counter[int] = Counter()
        for uid, pod in there.items():
            if pod.reservation is None:
                has = self.has(uid)
                in_use |= has.cpus
                room = room.less(room_of(topology, has))
                shared.update(has.shared)
                if pod.reservation_uid in self._hold:
                    owned.setdefault(pod.reservation_uid, []).append(has)
        lefts: dict[str, NumaCapacity] = {}
        for uid, _ in self._held_first(there):
            left = room_of(topology, self.has(uid))
            for has in owned.get(uid, ()):
                left = left.less(room_of(topology, has), most=True)
            # Of CPUs the node has no more nothing is left to anybody.
            left = left._replace(cpus=left.cpus & given)
            if uid in self.planned:
                left = left.within(room)
            lefts[uid] = left
            room = room.less(left)
            shared.update(self._shared(uid, left))
        return Claimed(room, without_shared(topology, room, shared), in_use, lefts, shared)

    def _shared(self, uid: str, left: NumaCapacity) -> dict[int, int]:
        """What is left to a reservation of cpu that is no CPUs of their own."""
        if self.has(uid).cpus:
            return {}
        return {numa: amounts.get(names.CPU, 0) for numa, amounts in left.zones.items()}

    def _hold_has(
        self,
        index: int,
        row: int,
        pod: PodRecord,
        topology: NodeTopology | None,
        room: NumaCapacity,
        left: NumaCapacity,
    ) -> None:
        self._left[index], self._free_for_owners[index] = left, self._through(pod, room, left)
        self.reach(index)
        self.held[index] = len(left.cpus)
        self.owner_counts.tell(index, topology, self._free_for_owners[index], self.resources)
        self.owner_counts.single[index] = self.counts.single[row]
        self.owner_counts.several[index] = self.counts.several[row]

    def _through(self, pod: PodRecord, room: NumaCapacity, left: NumaCapacity) -> NumaCapacity:
        """What owners of a reserve pod see of a row: what is free and what is left to them; of what it
        holds for them alone only the latter."""
        both = room.more(left)
        restricted = pod.reservation.restricted if pod.reservation is not None else None
        if not restricted:
            return both
        has, slots = self.has(pod.uid), self._cluster.nodes.slots
        held = {name for _, amounts in has.zones for name, _ in amounts}
        held |= {names.CPU} if has.cpus else set()
        only = held & {slots.name(slot) for slot in restricted}
        zones = {
            numa: {
                name: left.zones.get(numa, {}).get(name, 0) if name in only else value
                for name, value in amounts.items()
            }
            for numa, amounts in both.zones.items()
        }
        return NumaCapacity(left.cpus if has.cpus and CPU in restricted else both.cpus, zones)

    def _fit(self) -> None:
        width = self._widest
        if width > self.counts.width or len(self.resources) > len(self.counts.room):
            self.counts.fit(len(self.resources), width)
            self.owner_counts.fit(len(self.resources), width)

    def _release(self, index: int) -> None:
        self._left.pop(index, None)
        self._free_for_owners.pop(index, None)
        if index < len(self.held):
            self.owner_counts.clear(index)
            self.held[index] = -1

    def _open(self) -> None:
        self.counts.fit(len(self.resources), self.counts.width)
        self.owner_counts.fit(len(self.resources), self.counts.width, 1)

    def row_closed(self, row: int) -> None:
        super().row_closed(row)
        self._forget_row(row)

    def _forget_row(self, row: int) -> None:
        if self._ahead is not None:
            self._outdated.add(row)
        self.topologies.pop(row, None)
        self._free.pop(row, None)
        self.counts.clear(row)
        self.valid[row] = self.full_cores_only[row] = self.odd_ratio[row] = False
        self.kubelet_policy[row] = 0
        self.per_core[row], self.own[row], self.ratio[row] = 1, 0, 1.0

    def _class_dropped(self, cls: PodClass) -> None:
        self._wants.pop(cls.id, None)

    def problems(self) -> list[str]:
        problems = self._strays()
        for row in self.topologies:
            node = self._cluster.nodes.name(row)
            given: dict[int, PodRecord] = {}
            for pod, has in self._given(row):
                problems += [
                    f"Node/{node}: CPU {cpu} is given to {given[cpu].ref} and to {pod.ref}"
                    for cpu in sorted(has.cpus & given.keys())
                ]
                given |= dict.fromkeys(has.cpus, pod)
            kept = {name: getattr(self.counts, name)[..., row, :].copy() for name in ("free", "room")}
            free, self._free[row] = self._free[row], NumaCapacity()
            self._recount(row)
            if free != self._free[row]:
                problems.append(f"Node/{node}: free is {free}, should be {self._free[row]}")
            for name, array in kept.items():
                if not np.array_equal(array, getattr(self.counts, name)[..., row, :]):
                    problems.append(f"Node/{node}: the count of {name} is wrong")
        return problems
