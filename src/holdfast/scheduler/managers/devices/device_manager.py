"""The device manager: which shares of the devices of each node are free, allocated or reserved.

There is one `TypeTable` per type of device. Allocations of pods are kept by `ResourceManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

import numpy as np

from holdfast.api import names
from holdfast.api.node import Device, DeviceInfo
from holdfast.api.quantity import QuantityError, amount
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.scheduler.managers.devices.allocation import (
    MOST_OF_ONE,
    Allocation,
    DevicePart,
    read_allocation,
    write_allocation,
)
from holdfast.scheduler.managers.devices.device_allocator import DeviceSearch, Later
from holdfast.scheduler.managers.devices.device_table import Bools, Ints, Rows, TypeTable
from holdfast.scheduler.managers.devices.partitions import Partitions, read_partitions
from holdfast.scheduler.managers.devices.requests import (
    DEVICE_RESOURCES,
    FULL,
    GPU,
    TYPE_OF,
    DeviceRequestError,
    device_request,
    read_hints,
)
from holdfast.scheduler.managers.devices.selection import Ranker, most_free
from holdfast.scheduler.managers.resource_manager import Horizon, ResourceManager

_NO_SLOTS: frozenset[int] = frozenset()
_ANYWHERE: frozenset[int] = frozenset()


class DeviceManager(ResourceManager[Allocation]):
    """Allocates devices, or shares of them, on all nodes."""

    annotation = names.DEVICE_ALLOCATED
    lacks = "devices"

    def __init__(
        self,
        cluster: ClusterBase,
        on_active: Callable[[], None],
        zones: Callable[[PodRecord, int], tuple[frozenset[int], bool]],
        beside_nominated: Callable[[PodRecord, int], AbstractContextManager[None]],
    ) -> None:
        """`zones` returns the NUMA nodes of a pod's CPUs on a row, and whether its devices must be on
        them. Inside `beside_nominated`, pods nominated to the row have their devices."""
        super().__init__(cluster, on_active, {})
        self._zones = zones
        self._beside_nominated = beside_nominated
        self.tables: dict[str, TypeTable] = {}
        self.alignment = True
        """Whether devices are aligned with the NUMA nodes of the pod's CPUs."""
        self.ranker: Ranker = most_free
        """Ranks the devices of a node."""
        self.partitions: dict[int, Partitions] = {}
        """GPU partitions, by row."""
        self._later_free: dict[str, tuple[Ints, set[int]]] = {}
        """By type, what is free once all pods that can end have ended, and the rows of which it must be
        computed again; filled when first asked for."""
        self._searches: dict[int, DeviceSearch | None] = {}
        cluster.classes.on_dropped.append(self._class_dropped)

    def configure(self, alignment: bool, ranker: Ranker) -> None:
        """Sets whether devices are aligned with the NUMA nodes of the pod's CPUs, and what ranks the
        devices of a node."""
        self.alignment = alignment
        self.ranker = ranker

    # Queries

    def search(self, cls: PodClass) -> DeviceSearch | None:
        """The device allocator of the class; None if it requests no devices. Raises
        DeviceRequestError."""
        if cls.id not in self._searches:
            slots = self._cluster.nodes.slots
            request = device_request({slots.name(slot): value for slot, value in cls.requests})
            search = None
            if request:
                taken = frozenset(slot for slot, _ in cls.requests if slots.name(slot) in TYPE_OF)
                search = DeviceSearch(self, *read_hints(cls.annotations, request), taken)
            self._searches[cls.id] = search
        return self._searches[cls.id]

    def valid_search(self, cls: PodClass) -> DeviceSearch | None:
        """As `search`, None if the request is invalid."""
        try:
            return self.search(cls)
        except DeviceRequestError:
            return None

    def hold_of(self, uid: str) -> int | None:
        """The entry index of a reserve pod with devices."""
        return self._entry.get(uid)

    def extended_resources(self, node: str) -> dict[str, int]:
        """The devices of a node as extended resources, from its Device object."""
        device = self._cluster.objects.get("Device", {}).get(("", node))
        return resources_of(device) if isinstance(device, Device) else {}

    def managed_slots(self, cls: PodClass, entry: ReservationEntry) -> frozenset[int]:
        """The slots of which a pod of the class gets specific devices from the reservation."""
        has = self.has(entry.pod.uid) if self.active else None
        search = self.valid_search(cls) if has else None
        return search.slots if search is not None else _NO_SLOTS

    def can_allocate_from(self, cls: PodClass, entry: ReservationEntry) -> bool:
        """Whether a pod of the class would be allocated devices of the reservation."""
        search = self.valid_search(cls) if self.active else None
        return search is not None and search.can_allocate_from(entry.row, entry.index)

    def reasons(self, cls: PodClass, entry: ReservationEntry) -> list[str]:
        """Why a pod of the class does not get its devices through the reservation."""
        search = self.valid_search(cls) if self.active else None
        if search is None:
            return []
        lacks = search.lacks(np.array([entry.row]), np.array([entry.index]))
        return [lack.text for lack in lacks]

    def later_capacity(self, table: TypeTable) -> Ints:
        """What is free, [resource, row, place], once all pods that can end have ended."""
        kept = self._later_free.get(table.kind)
        if kept is None or kept[0].shape != table.total.shape:
            kept = self._later_free[table.kind] = table.total.copy(), set(self.there)
        free, outdated = kept
        for row in outdated:
            free[:, row] = self._unclaimed(table, row, self._staying(row, None, Horizon.LATER))
        outdated.clear()
        return free

    def later(self, waits: ReservationInfo | None, horizon: Horizon) -> Later:
        """What is free for a Waiting reservation without the pods that are gone by the horizon."""
        if horizon is Horizon.NOW:
            return None

        def available(table: TypeTable, rows: Rows) -> Ints:
            if np.ndim(rows):
                return np.stack([available(table, int(row)) for row in rows], axis=1)
            row = int(rows)
            return self._unclaimed(table, row, self._staying(row, waits, horizon))

        return available

    def free_later(self, table: TypeTable, rows: Rows) -> Ints:
        """What is free on rows once all pods that can end have ended, for a reservation with
        preAllocation that is not scheduled yet and has no victims."""
        return self.later_capacity(table)[:, rows]

    def _unclaimed(self, table: TypeTable, row: int, there: Mapping[str, PodRecord]) -> Ints:
        """What is free of the devices of a row with these pods and reserve pods, [resource, place]."""
        parts = {uid: self.has(uid).get(table.kind, ()) for uid in there}
        for uid in there:
            table.spread(row, parts[uid])  # gives every device they have a place
        free: Ints = table.total[:, row].copy()
        taken: dict[str, Ints] = {}
        for uid, pod in there.items():
            if pod.reservation is None and parts[uid]:
                spread = table.spread(row, parts[uid])
                free -= spread
                if pod.reservation_uid in self._entry:
                    taken[pod.reservation_uid] = taken.get(pod.reservation_uid, 0) + spread
        for uid, _ in self._held_first(there):
            if parts[uid]:
                left = np.maximum(table.spread(row, parts[uid]) - taken.get(uid, 0), 0)
                free -= np.minimum(left, np.maximum(free, 0)) if uid in self.planned else left
        return free

    def _outdate(self, row: int) -> None:
        for _, outdated in self._later_free.values():
            outdated.add(row)

    def lacking(self, pod: PodRecord, behind: Iterable[str]) -> list[str]:
        """The types of which a reserve pod's devices are not free on its row yet. Reservations `behind`
        it, by uid, do not count."""
        lacking = []
        if pod.uid in self.tentative and not self.tentative[pod.uid]:
            return ["devices"]
        for kind, parts in self.has(pod.uid).items():
            table = self.tables[kind]
            wanted = table.spread(pod.row, parts) > 0
            free = table.free[:, pod.row].copy()
            for uid in behind:
                if uid in self._entry:
                    free += table.left[:, self._entry[uid]]
            if (wanted & (free < 0)).any():
                lacking.append(kind)
        return lacking

    def lost(self, pod: PodRecord) -> bool:
        has = self.has(pod.uid)
        for kind, parts in has.items():
            table = self.tables[kind]
            oversold = (table.spread(pod.row, parts) > 0) & (table.free[:, pod.row] < 0)
            if oversold.any() or not all(table.offers(pod.row, part) for part in parts):
                return True
        search = self.valid_search(pod.cls) if has else None
        return search is not None and not search.is_partition(pod.row, has)

    def settle_by(self, pod: PodRecord, ranker: Ranker) -> bool:
        """As `settle`, with the devices that are best by this ranker."""
        if ranker is not self.ranker:
            self.ranker = ranker
            if pod.uid in self.tentative:
                self._leave(pod, pod.row)
                with self._beside_nominated(pod, pod.row):
                    self._enter(pod, pod.row)
                if self.is_short(pod.uid):
                    self._leave(pod, pod.row)
                    self._enter(pod, pod.row)
        return self.settle(pod)

    def replace(self, pod: PodRecord) -> bool | None:
        """Gives a reserve pod other devices for those that are unhealthy, gone or smaller than what it
        reserves; what owners use stays. None if nothing must be replaced, False if too few are free."""
        row, had = pod.row, self.has(pod.uid)
        if pod.reservation is not None and pod.reservation.waiting:
            return None  # its plan is made again
        if not had or row not in self._listed:
            return None
        allocated = {
            (kind, part.minor)
            for uid, other in self.there.get(row, {}).items()
            if other.reservation_uid == pod.uid
            for kind, parts in self.has(uid).items()
            for part in parts
        }
        kept: dict[str, tuple[DevicePart, ...]] = {}
        lost: dict[str, int] = {}
        for kind, parts in had.items():
            stay = [
                part
                for part in parts
                if (kind, part.minor) in allocated or self.tables[kind].offers(row, part)
            ]
            kept[kind] = tuple(stay)
            lost[kind] = len(parts) - len(stay)
        search = self.valid_search(pod.cls)
        if search is None or not any(lost.values()):
            return None
        self._leave(pod, row)
        self.settled.pop(pod.uid, None)
        if allocated:
            found = search.substitute(row, kept, lost, self.ranker)
        else:
            found = self._choose(pod, row, None)
        self.settled[pod.uid] = found or had
        self._enter(pod, row)
        self.note_change(row)
        return bool(found)

    # The device manager's part of `ResourceManager`

    def _read(self, text: str) -> Allocation | None:
        return read_allocation(text)

    def _write(self, row: int, what: Allocation) -> str:
        ids = {
            (kind, minor): info.id
            for kind, table in self.tables.items()
            for minor, info in table.infos.get(row, {}).items()
        }
        return write_allocation(what, ids)

    def _list(self, row: int) -> bool:
        device = self._cluster.objects.get("Device", {}).get(("", self._cluster.nodes.name(row)))
        found: dict[str, dict[int, DeviceInfo]] = {kind: {} for kind in DEVICE_RESOURCES}
        if isinstance(device, Device):
            for info in device.spec.devices:
                if info.type in found:
                    found[info.type][info.minor] = info
        for kind, infos in found.items():
            amounts = {minor: _amounts(kind, info) for minor, info in infos.items()}
            self.tables[kind].set_devices(row, infos, amounts)
        self._outdate(row)
        partitions = read_partitions(device) if isinstance(device, Device) else None
        self.partitions.pop(row, None)
        if partitions is not None:
            self.partitions[row] = partitions
        return isinstance(device, Device)

    def _choose(
        self, pod: PodRecord, row: int, entry: int | None, horizon: Horizon = Horizon.NOW
    ) -> Allocation | None:
        search = self.valid_search(pod.cls)
        if search is None:
            return None
        later = self.later(pod.reservation, horizon)
        near, must = self.aligned(pod, row)
        if near:
            found = search.choose(row, entry, self.ranker, later, near)
            if found or must:
                return found or self.nothing
        return search.choose(row, entry, self.ranker, later) or self.nothing

    def aligned(self, pod: PodRecord, row: int) -> tuple[frozenset[int], bool]:
        """The NUMA nodes of a pod's CPUs, and whether its devices must be on them."""
        return self._zones(pod, row) if self.alignment else (_ANYWHERE, False)

    def _is_as_asked(self, pod: PodRecord, what: Allocation) -> bool:
        search = self.valid_search(pod.cls)
        if search is None:
            return True
        for share in search.shares:
            parts = what.get(share.type, ())
            resources = [resource for resource, amount in enumerate(share.each) if amount]
            if len(parts) != share.number or any(
                part.amounts[resource] != share.each[resource]
                for part in parts
                for resource in resources
            ):
                return False
        return True

    def _count(self, pod: PodRecord, row: int, what: Allocation, sign: int) -> None:
        self._outdate(row)
        if pod.reservation is not None or self._is_held(row):
            self._recount(row)
            return
        for kind, parts in what.items():
            self.tables[kind].take(row, parts, sign)

    def _recount(self, row: int) -> None:
        self._outdate(row)
        there = self.there.get(row, {})
        for kind, table in self.tables.items():
            table.release_all(row)
            parts = {uid: self.has(uid).get(kind, ()) for uid in there}
            for each in parts.values():
                for part in each:
                    table.place(row, part.minor)
            taken: dict[str, Ints] = {}
            for uid, pod in there.items():
                if pod.reservation is None and parts[uid]:
                    table.take(row, parts[uid], 1)
                    if pod.reservation_uid in self._entry:
                        before = taken.get(pod.reservation_uid, 0)
                        taken[pod.reservation_uid] = before + table.spread(row, parts[uid])
            for uid, pod in self._held_first(there):
                left: Ints | None = None
                only: Bools = np.zeros(len(DEVICE_RESOURCES[kind]), dtype=np.bool_)
                if parts[uid]:
                    held = table.spread(row, parts[uid])
                    left = np.maximum(held - taken.get(uid, 0), 0)
                    if uid in self.planned:
                        left = np.minimum(left, np.maximum(table.free[:, row], 0))
                    table.free[:, row] -= left
                    only = np.asarray(held.any(axis=1) & self._is_restricted(pod, kind))
                if uid in self._entry:
                    table.hold(self._entry[uid], left, only)

    def _is_restricted(self, pod: PodRecord, kind: str) -> bool:
        """Whether the reservation's allocate policy restricts owners to its own devices of the type."""
        slots = self._cluster.nodes.slots
        restricted = pod.reservation.restricted if pod.reservation is not None else None
        return any(TYPE_OF.get(slots.name(slot)) == kind for slot in restricted or ())

    def _release(self, index: int) -> None:
        for table in self.tables.values():
            table.hold(index, None)

    def _open(self) -> None:
        columns = self._cluster.nodes.columns
        self.tables = {kind: TypeTable(kind, columns) for kind in DEVICE_RESOURCES}

    def row_closed(self, row: int) -> None:
        super().row_closed(row)
        for table in self.tables.values():
            table.forget(row)
        self.partitions.pop(row, None)
        self._outdate(row)

    def _class_dropped(self, cls: PodClass) -> None:
        self._searches.pop(cls.id, None)

    def problems(self) -> list[str]:
        problems = []
        for row in self.there:
            given: Counter[tuple[str, int]] = Counter()
            for _, has in self._given(row):
                for kind, parts in has.items():
                    # The last line of every type is in percent.
                    given.update({(kind, part.minor): part.amounts[-1] for part in parts})
            node = self._cluster.nodes.name(row)
            problems += [
                f"Node/{node}: {percent} % of {kind} {minor} are allocated"
                for (kind, minor), percent in sorted(given.items())
                if percent > max(FULL, self.tables[kind].most(row, minor))
            ]
        for kind in list(self._later_free):
            before = self.later_capacity(self.tables[kind])
            del self._later_free[kind]
            if not np.array_equal(before, self.later_capacity(self.tables[kind])):
                problems.append(f"{kind}: what would be free without pods is not as it should be")
        kept = {kind: (table.free.copy(), table.left.copy()) for kind, table in self.tables.items()}
        for table in self.tables.values():
            table.free[:] = table.total
            table.left[:] = 0
        for row in self.there:
            self._recount(row)
        for kind, table in self.tables.items():
            free, left = kept[kind]
            for resource, row, at in zip(*np.nonzero(table.free != free), strict=True):
                node, what = self._cluster.nodes.name(row), DEVICE_RESOURCES[kind][resource]
                problems.append(
                    f"Node/{node}: {kind} at {at}: {what} free is "
                    f"{free[resource, row, at]}, should be {table.free[resource, row, at]}"
                )
            if not np.array_equal(left, table.left):
                problems.append(f"{kind}: reservations do not hold what they should")
            table.free[:], table.left[:] = free, left
        return problems + self._strays()


def _amounts(kind: str, info: DeviceInfo) -> tuple[int, ...]:
    """The capacity of a device by line; 0 if it is unhealthy or its amounts are invalid."""
    resources = DEVICE_RESOURCES[kind]
    if not info.health or not any(resource in info.resources for resource in resources):
        return (0,) * len(resources)
    try:
        values = [
            amount(resource, info.resources.get(resource, 0 if resource == names.GPU_MEMORY else FULL))
            for resource in resources
        ]
    except QuantityError:
        return (0,) * len(resources)
    return tuple(min(max(0, value), MOST_OF_ONE) for value in values)


def resources_of(device: Device) -> dict[str, int]:
    """The sum of the devices as extended resources of their node."""
    sums: dict[str, int] = {}
    well = 0
    for info in device.spec.devices:
        if info.type not in DEVICE_RESOURCES:
            continue
        amounts = _amounts(info.type, info)
        for resource, value in zip(DEVICE_RESOURCES[info.type], amounts, strict=True):
            sums[resource] = sums.get(resource, 0) + value
        well += info.type == GPU and any(amounts)
    total = {resource: value for resource, value in sums.items() if value}
    if well:
        total[names.GPU_PERCENT] = sums[names.GPU_CORE]
        total[names.GPU_SHARED] = FULL * well
        total[_WHOLE.get(device.metadata.labels.get(names.GPU_VENDOR, ""), names.NVIDIA_GPU)] = well
    return total


_WHOLE: Mapping[str, str] = {"amd": names.AMD_GPU, "hygon": names.DCU_GPU}
