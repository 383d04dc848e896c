"""The CPU manager: which CPUs and NUMA amounts of each node are free, allocated or reserved.

`topologies` has what the NodeResourceTopology of each row reports. What pods and reservations have of
it is kept by `ResourceManager`; this class derives from that what is free, as sets of CPUs (`free`,
`left`, `free_for_owners`) and as arrays over all rows for filters (`counts`, `owner_counts`).
Everything derived of a row is computed again by `_recount` whenever an allocation on the row changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.node import NodeResourceTopology
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.columns import RowColumns, cells_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.managers.devices.device_manager import DeviceManager
from holdfast.scheduler.managers.numa.allocation import (
    Counts,
    Holding,
    NumaCapacity,
    everything,
    held_capacity,
    read_holding,
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
from holdfast.scheduler.managers.numa.numa_filter import NumaFilter
from holdfast.scheduler.managers.resource_manager import Horizon, ResourceManager

_NO_SLOTS: frozenset[int] = frozenset()
_CPU_SLOT = frozenset((CPU,))


class Claimed(NamedTuple):
    """What is free on a row, and how the rest is used."""

    free: NumaCapacity
    """What no pod and no reservation has."""
    unshared: NumaCapacity
    """`free` without the CPUs that pods with a NUMA amount and no exclusive CPUs need to run on."""
    in_use: frozenset[int]
    """CPUs allocated to pods."""
    lefts: dict[str, NumaCapacity]
    """What is left of each reservation, by uid."""
    shared: Counter[int]
    """By NUMA node, the cpu (milli) of pods and reservations without exclusive CPUs."""


class CPUManager(ResourceManager[Holding]):
    """Allocates exclusive CPUs and amounts of NUMA nodes on all nodes."""

    annotation = names.RESOURCE_STATUS
    lacks = "cpuset"
    valid: NDArray[np.bool_] = cells_of("_valid")
    """Rows with a valid CPU topology."""
    per_core: NDArray[np.int64] = cells_of("_per_core")
    """CPUs (hardware threads) of a core."""
    exclusive_cpus: NDArray[np.int64] = cells_of("_exclusive_cpus")
    """The number of exclusive CPUs of each row, allocated or reserved."""
    ratio: NDArray[np.float64] = cells_of("_ratio")
    """The CPU amplification ratio of each row."""
    invalid_ratio: NDArray[np.bool_] = cells_of("_invalid_ratio")
    """Rows whose amplification annotation is invalid."""
    full_cores_only: NDArray[np.bool_] = cells_of("_full_cores_only")
    """Rows whose kubelet has the static policy with full-pcpus-only."""
    kubelet_policy: NDArray[np.int64] = cells_of("_kubelet_policy")
    """The topology manager policy of each row's kubelet, as an index into `POLICIES`."""

    def __init__(
        self, cluster: ClusterBase, on_active: Callable[[], None], devices: DeviceManager
    ) -> None:
        """CPUs are chosen on NUMA nodes where `devices` has the devices of the pod."""
        super().__init__(cluster, on_active, Holding())
        self._devices = devices
        self.topologies: dict[int, NodeTopology] = {}
        columns = cluster.nodes.columns
        self.counts = Counts(columns)
        """What is free, by row."""
        self.owner_counts = Counts(RowColumns(0))
        """What is free for owners of a reservation on its row, by entry index."""
        self._later_counts: Counts | None = None
        """What is free by row once all pods that can end have ended; None until first asked for."""
        self._outdated: set[int] = set()
        """Rows of `_later_counts` that must be computed again."""
        self.resources: list[str] = [names.CPU, names.MEMORY]
        """Resources counted by NUMA node; the first index of `Counts.amounts` and `Counts.offers`."""
        self._valid = columns.new(np.bool_)
        self._per_core = columns.new(np.int64, 1)
        self._exclusive_cpus = columns.new(np.int64)
        self._ratio = columns.new(np.float64, 1.0)
        self._invalid_ratio = columns.new(np.bool_)
        self._full_cores_only = columns.new(np.bool_)
        self._kubelet_policy = columns.new(np.int64)
        self.held: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """CPUs left of each reservation, by entry index; -1 where the manager holds nothing for it."""
        self._widest = 1
        self.default_policy = FULL_CORES
        self.fullest_first = False
        self.numa_filter = NumaFilter(self, cluster.nodes)
        self.allocator = NumaAllocator(self, cluster.nodes)
        self._wants: dict[int, Want | CpuWantError] = {}
        self._left: dict[int, NumaCapacity] = {}
        """What is left of each reservation, by entry index."""
        self._free: dict[int, NumaCapacity] = {}
        self._free_for_owners: dict[int, NumaCapacity] = {}
        """What is free for owners of each reservation on its row, by entry index."""
        cluster.classes.on_dropped.append(self._class_dropped)

    def configure(self, default_policy: str, fullest_first: bool) -> None:
        """Sets the CPU bind policy of pods that name none, and whether the NUMA node with the least
        free comes first."""
        self.default_policy = default_policy
        self.fullest_first = fullest_first

    # Queries

    def want(self, cls: PodClass) -> Want:
        """What pods of the class request of CPUs and NUMA nodes. Raises CpuWantError if it is
        invalid."""
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

    def valid_want(self, cls: PodClass) -> Want | None:
        """As `want`, None if it is invalid."""
        try:
            return self.want(cls)
        except CpuWantError:
            return None

    @property
    def has_node_policies(self) -> bool:
        """Whether a node has a policy or a ratio that applies even to pods without a CPU or NUMA
        policy."""
        if not self.active:
            return False
        ratios = (self.ratio > 1).any() or self.invalid_ratio.any()
        return bool(self.kubelet_policy.any() or self.full_cores_only.any() or ratios)

    def free(self, row: int) -> NumaCapacity:
        return self._free.get(row) or NumaCapacity()

    def left(self, entry: int) -> NumaCapacity:
        return self._left.get(entry) or NumaCapacity()

    def free_for_owners(self, entry: int, row: int) -> NumaCapacity:
        """What is free on the row for owners of the reservation with this entry index."""
        return self._free_for_owners.get(entry) or self.free(row)

    def grow_entries(self, entry: int) -> None:
        """Grows the arrays by entry so that they have this index."""
        self.owner_counts.fit(len(self.resources), self.counts.width, entry + 1)
        more = len(self.owner_counts.free) - len(self.held)
        if more > 0:
            self.held = np.pad(self.held, (0, more), constant_values=-1)

    def apart(self, row: int) -> Apart:
        """Cores and NUMA nodes with pods that exclude others from them
        (`preferredCPUExclusivePolicy`)."""
        topology, cores, zones = self.topologies[row], set(), set()
        for uid, pod in self.there.get(row, {}).items():
            want = self.valid_want(pod.cls)
            for cpu in self.has(uid).cpus if want is not None else ():
                known = topology.cpus.get(cpu)
                if known is not None and want is not None and want.apart == BY_CORE:
                    cores.add(known.core)
                elif known is not None and want is not None and want.apart == BY_NUMA:
                    zones.add(known.numa)
        return Apart(frozenset(cores), frozenset(zones))

    def zones(self, pod: PodRecord, row: int) -> tuple[frozenset[int], bool]:
        """The NUMA nodes allocated to a pod by a NUMA policy, and whether devices must be from
        these."""
        want = self.valid_want(pod.cls)
        if not self.active or want is None or row not in self.topologies:
            return frozenset(), False
        found = frozenset(numa for numa, _ in self.has(pod.uid).zones)
        return found, self.allocator.numa_policy(want, row) != BEST_EFFORT

    def managed_slots(self, cls: PodClass, entry: ReservationEntry) -> frozenset[int]:
        """The slot of cpu, if pods of the class get exclusive CPUs from the reservation; else
        nothing."""
        want = self.valid_want(cls)
        if want is None or not self.active or not self.has(entry.pod.uid).cpus:
            return _NO_SLOTS
        return _CPU_SLOT if self.allocator.is_bound(want, entry.row) else _NO_SLOTS

    def can_allocate_from(self, cls: PodClass, entry: ReservationEntry) -> bool:
        """Whether a pod of the class would be allocated exclusive CPUs of the reservation."""
        want = self.valid_want(cls)
        if want is None or not self.active or not self.allocator.is_bound(want, entry.row):
            return False
        return bool(self.left(entry.index).cpus)

    def reasons(self, cls: PodClass, entry: ReservationEntry) -> list[str]:
        """Why a pod of the class does not fit its row through the reservation."""
        want = self.valid_want(cls) if self.active else None
        if want is None:
            return []
        rows, entries = np.array([entry.row]), np.array([entry.index])
        claimed = self._cluster.nodes.claimed[CPU, rows] - entry.left(CPU)
        lacks = self.numa_filter.lacks(want, rows, entries, claimed)
        return [lack.text for lack in lacks]

    def lacking(self, pod: PodRecord, behind: Iterable[str]) -> list[str]:
        """What a reserve pod has not got: its CPUs, if it has none or pods use them, and the resources
        of which its NUMA nodes are overcommitted. Reservations `behind` it, by uid, do not count."""
        if self.tentative.get(pod.uid) == self.nothing:
            return ["cpuset"]
        mine = self.has(pod.uid).cpus
        theirs: set[int] = set()
        free = self.free(pod.row)
        for uid, other in self.there.get(pod.row, {}).items():
            if uid in behind and uid in self._entry:
                free = free.more(self.left(self._entry[uid]))
            elif uid != pod.uid and other.reservation_uid != pod.uid:
                theirs |= self.has(uid).cpus
        if mine & theirs:
            return ["cpuset"]
        held = self.left(self._entry[pod.uid]).zones if pod.uid in self._entry else {}
        short = {
            f"NUMA {name}"
            for numa, amounts in held.items()
            for name, value in amounts.items()
            if value and free.zones.get(numa, {}).get(name, 0) < 0
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

    def free_later(self, row: int, waits: ReservationInfo | None, horizon: Horizon) -> NumaCapacity:
        """What would be free on the row for a Waiting reservation (or a nominated pod) without the pods
        that are gone by the horizon. What these have from a reservation that stays returns to it."""
        return self._claimed(row, self._staying(row, waits, horizon)).unshared

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None:
        """Adds the allocation, and the bind policy that was applied if it is not the pod's own."""
        super().annotate(pod, row, into)
        want = self.valid_want(pod.cls)
        if want is None or not self.settled.get(pod.uid, self.nothing).cpus:
            return
        spec = self.allocator.decided(want, row)
        if spec != want.given:
            into[names.RESOURCE_SPEC] = msgspec.json.encode(spec).decode()

    def later_counts(self) -> Counts:
        """What is free by row once all pods that can end have ended."""
        if self._later_counts is None:
            self._later_counts = Counts(self._cluster.nodes.columns)
            self._outdated = set(self.topologies)
        counts = self._later_counts
        counts.fit(len(self.resources), self._widest)
        for row in self._outdated:
            free = self.free_later(row, None, Horizon.LATER)
            counts.set_free(row, self.topologies.get(row), free, self.resources)
        self._outdated.clear()
        return counts

    # The CPU manager's part of `ResourceManager`

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
        """Reads the amplification ratio of a node."""
        info, topology = self._cluster.nodes.info.get(row), self.topologies.get(row)
        text = info.annotations.get(names.AMPLIFICATION_RATIO) if info is not None else None
        if text is not None:
            self._activate()
        if not self.active:
            return
        ratios = read_ratios(text)
        self.invalid_ratio[row] = ratios is None
        self.ratio[row] = max(1.0, (ratios or {}).get(names.CPU, 1.0))
        if topology is not None:
            before = topology.amplified, topology.cpu_ratio
            topology.amplify(ratios or {})
            if (topology.amplified, topology.cpu_ratio) != before:
                self._recount(row)

    def _choose(
        self, pod: PodRecord, row: int, entry: int | None, horizon: Horizon = Horizon.NOW
    ) -> Holding | None:
        want = self.valid_want(pod.cls)
        if want is None:
            return None
        devices = self._devices
        search = devices.valid_search(pod.cls) if devices.active and devices.alignment else None
        counts = None
        if search is not None and row in self.topologies:
            entries = None if entry is None else np.array([entry])
            later = devices.later(pod.reservation, horizon)
            counts = search.by_numa(np.array([row]), entries, self.counts.width, later)
        free_later = None if horizon is Horizon.NOW else self.free_later(row, pod.reservation, horizon)
        return self.allocator.choose(want, row, entry, free_later, counts)

    def _is_as_asked(self, pod: PodRecord, what: Holding) -> bool:
        want = self.valid_want(pod.cls)
        if want is None:
            return True
        by_zone = sum(dict(amounts).get(names.CPU, 0) for _, amounts in what.zones)
        return (not what.cpus or len(what.cpus) == want.cpus) and (not by_zone or by_zone == want.milli)

    def _recount(self, row: int) -> None:
        topology, there = self.topologies.get(row), self.there.get(row, {})
        if self._later_counts is not None:
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
        self.exclusive_cpus[row] = len(claimed.in_use) + sum(
            len(left.cpus) for left in claimed.lefts.values()
        )
        self._fit()
        self.counts.set_free(row, topology, free, self.resources)
        for numa_node in single | several:
            if numa_node < self.counts.width:
                self.counts.single[row, numa_node] = numa_node not in several
                self.counts.several[row, numa_node] = numa_node in several
        for uid, left in claimed.lefts.items():
            if uid in self._entry:
                others = claimed.shared - Counter(self._shared(uid, left))
                free = without_shared(topology, claimed.free, others)
                # A CPU that a pod uses is not left, even if a plan or an annotation lists it.
                usable = left._replace(cpus=left.cpus - claimed.in_use)
                self._set_left(self._entry[uid], row, there[uid], topology, free, usable)

    def _claimed(self, row: int, there: Mapping[str, PodRecord]) -> Claimed:
        """What is free on a row with these pods and reserve pods."""
        topology = self.topologies.get(row)
        free = everything(topology)
        given, in_use = free.cpus, frozenset[int]()
        owned: dict[str, list[Holding]] = {}
        shared: Counter[int] = Counter()
        for uid, pod in there.items():
            if pod.reservation is None:
                has = self.has(uid)
                in_use |= has.cpus
                free = free.less(held_capacity(topology, has))
                shared.update(has.shared)
                if pod.reservation_uid in self._entry:
                    owned.setdefault(pod.reservation_uid, []).append(has)
        lefts: dict[str, NumaCapacity] = {}
        for uid, _ in self._held_first(there):
            left = held_capacity(topology, self.has(uid))
            for has in owned.get(uid, ()):
                left = left.less(held_capacity(topology, has), most=True)
            # CPUs that the node no longer has are not left to a reservation either.
            left = left._replace(cpus=left.cpus & given)
            if uid in self.planned:
                left = left.within(free)
            lefts[uid] = left
            free = free.less(left)
            shared.update(self._shared(uid, left))
        return Claimed(free, without_shared(topology, free, shared), in_use, lefts, shared)

    def _shared(self, uid: str, left: NumaCapacity) -> dict[int, int]:
        """The cpu left of a reservation by NUMA node, if it has no exclusive CPUs."""
        if self.has(uid).cpus:
            return {}
        return {numa: amounts.get(names.CPU, 0) for numa, amounts in left.zones.items()}

    def _set_left(
        self,
        index: int,
        row: int,
        pod: PodRecord,
        topology: NodeTopology | None,
        free: NumaCapacity,
        left: NumaCapacity,
    ) -> None:
        """Stores what is left of the reservation with this entry index, and what its owners see."""
        self._left[index], self._free_for_owners[index] = left, self._free_through(pod, free, left)
        self.grow_entries(index)
        self.held[index] = len(left.cpus)
        self.owner_counts.set_free(index, topology, self._free_for_owners[index], self.resources)
        self.owner_counts.single[index] = self.counts.single[row]
        self.owner_counts.several[index] = self.counts.several[row]

    def _free_through(self, pod: PodRecord, free: NumaCapacity, left: NumaCapacity) -> NumaCapacity:
        """What is free for owners of a reserve pod: what is free on the row and what is left of the
        reservation; of resources with the Restricted allocate policy only the latter."""
        both = free.more(left)
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
        if width > self.counts.width or len(self.resources) > len(self.counts.amounts):
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
        if self._later_counts is not None:
            self._outdated.add(row)
        self.topologies.pop(row, None)
        self._free.pop(row, None)
        self.counts.clear(row)
        self.valid[row] = self.full_cores_only[row] = self.invalid_ratio[row] = False
        self.kubelet_policy[row] = 0
        self.per_core[row], self.exclusive_cpus[row], self.ratio[row] = 1, 0, 1.0

    def _class_dropped(self, cls: PodClass) -> None:
        self._wants.pop(cls.id, None)

    def problems(self) -> list[str]:
        problems = self._strays()
        for row in self.topologies:
            node = self._cluster.nodes.name(row)
            given: dict[int, PodRecord] = {}
            for pod, has in self._given(row):
                problems += [
                    f"Node/{node}: CPU {cpu} is allocated to {given[cpu].ref} and to {pod.ref}"
                    for cpu in sorted(has.cpus & given.keys())
                ]
                given |= dict.fromkeys(has.cpus, pod)
            kept = {
                name: getattr(self.counts, name)[..., row, :].copy() for name in ("free", "amounts")
            }
            free, self._free[row] = self._free[row], NumaCapacity()
            self._recount(row)
            if free != self._free[row]:
                problems.append(f"Node/{node}: free is {free}, should be {self._free[row]}")
            for name, array in kept.items():
                if not np.array_equal(array, getattr(self.counts, name)[..., row, :]):
                    problems.append(f"Node/{node}: the count of {name} is wrong")
        return problems
