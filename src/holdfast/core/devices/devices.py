"""The devices of all nodes, kept in step with objects, pods and reservations.

What a pod has is written on it, and believed. A pod that is on a node without saying which devices it
has is given some in thought (`guessed`), so that they are not given to others; so is one that is only
tried out on a node. When a pod is scheduled here, what it was given in thought becomes what it has
(`settled`), and is written on it when it is bound.

A reservation has devices like a pod. What its owners take of them is theirs; it holds what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from holdfast.api import names
from holdfast.api.devices import Device, DeviceInfo
from holdfast.api.meta import ObjectMeta
from holdfast.api.quantity import QuantityError, amount
from holdfast.core.classes import PodClass
from holdfast.core.devices.allocation import Allocation, read_allocation, write_allocation
from holdfast.core.devices.asking import Asking
from holdfast.core.devices.choosing import Ranker, most_free
from holdfast.core.devices.requests import (
    FULL,
    GPU,
    LINES,
    TYPE_OF,
    DeviceRequestError,
    device_request,
)
from holdfast.core.devices.table import Bools, Ints, TypeTable
from holdfast.core.devices.wishes import read_wishes
from holdfast.core.pods import PodRecord

if TYPE_CHECKING:
    from holdfast.core.cluster import Cluster

_NOTHING: Allocation = {}


class Devices:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.active = False
        """Whether there are any."""
        self.tables: dict[str, TypeTable] = {}
        self.governed: Bools = np.zeros(0, dtype=np.bool_)
        """The rows whose devices are known, or of which somebody is known to have some."""
        self.version = 0
        """Moves with every change of what devices there are."""
        self.settled: dict[str, Allocation] = {}
        """What pods and reservations have, by uid."""
        self.guessed: dict[str, Allocation] = {}
        """What those on a row seem to have that do not say."""
        self.there: dict[int, dict[str, PodRecord]] = {}
        """Pods and reserve pods on each row that have devices, by uid."""
        self.ranker: Ranker = most_free
        """Which device of a node is best."""
        self._asking: dict[int, Asking | None] = {}
        self._listed: set[int] = set()
        """The rows whose node has a Device."""
        self._hold: dict[str, int] = {}
        """The index of the hold of each reserve pod."""
        cluster.classes.on_dropped.append(self._class_dropped)

    # What is asked

    def asking(self, cls: PodClass) -> Asking | None:
        """What pods of the class ask of devices; None if nothing. Raises DeviceRequestError."""
        if cls.id not in self._asking:
            slots = self._cluster.nodes.slots
            request = device_request({slots.name(slot): value for slot, value in cls.requests})
            asking = Asking(self, *read_wishes(cls.annotations, request)) if request else None
            self._asking[cls.id] = asking
        return self._asking[cls.id]

    def has(self, uid: str) -> Allocation:
        found = self.settled.get(uid)
        return found if found is not None else self.guessed.get(uid, _NOTHING)

    def annotate(self, pod: PodRecord, row: int, into: dict[str, str]) -> None:
        """Adds what is to be written on a pod that is bound to the row."""
        allocation = self.settled.get(pod.uid)
        if allocation:
            ids = {
                (kind, minor): info.id
                for kind, table in self.tables.items()
                for minor, info in table.infos.get(row, {}).items()
            }
            into[names.DEVICE_ALLOCATED] = write_allocation(allocation, ids)

    def offered(self, node: str) -> dict[str, int]:
        """What a node offers by what its Device says, for those who read resources."""
        device = self._cluster.objects.get("Device", {}).get(("", node))
        return offered_by(device) if isinstance(device, Device) else {}

    def promised_room(self, table: TypeTable) -> Ints:
        """What would be free, [line, row, place], were there no pods but those that stay for good."""
        room = table.total.copy()
        for row, pods in self.there.items():
            for uid, pod in pods.items():
                if uid in self._hold:
                    room[:, row] -= table.left[:, self._hold[uid]]
                elif pod.cls.permanent:
                    room[:, row] -= table.spread(row, self.has(uid).get(table.kind, ()))
        return room

    def lacking(self, pod: PodRecord, behind: Iterable[str]) -> list[str]:
        """Of a reserve pod: the types it has not got free on its row yet. Reservations `behind` it, by
        uid, do not count."""
        lacking = []
        for kind, parts in self.has(pod.uid).items():
            table = self.tables[kind]
            wanted = table.spread(pod.row, parts) > 0
            free = table.free[:, pod.row].copy()
            for uid in behind:
                if uid in self._hold:
                    free += table.left[:, self._hold[uid]]
            if (wanted & (free < 0)).any():
                lacking.append(kind)
        return lacking

    # Objects

    def put(self, before: Device | None, after: Device | None) -> None:
        """A Device came, changed or went."""
        some = after if after is not None else before
        assert some is not None
        self._activate()
        row = self._cluster.nodes.row(some.metadata.name)
        if row is not None:
            self.load(row)
            self._cluster.ledger.changed.add(row)

    def load(self, row: int) -> None:
        """Reads the Device of the row's node, if there is one, and who has what of it."""
        cluster = self._cluster
        device = cluster.objects.get("Device", {}).get(("", cluster.nodes.name(row)))
        found: dict[str, dict[int, DeviceInfo]] = {kind: {} for kind in LINES}
        if isinstance(device, Device):
            self._listed.add(row)
            for info in device.spec.devices:
                if info.type in found:
                    found[info.type][info.minor] = info
        else:
            self._listed.discard(row)
        for kind, infos in found.items():
            amounts = {minor: _amounts(kind, info) for minor, info in infos.items()}
            self.tables[kind].offer(row, infos, amounts)
        self.version += 1
        for uid in self.there.pop(row, {}):
            self.guessed.pop(uid, None)
            self._hold.pop(uid, None)
        self._govern(row)
        on_row: Iterable[PodRecord] = cluster.ledger.pods.get(row, {}).values()
        present = [*on_row, *(hold.pod for hold in cluster.ledger.holds.on(row))]
        for pod in sorted(present, key=lambda pod: (pod.uid not in self.settled, pod.uid)):
            self._enter(pod, row)

    def seen(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        """The object of a pod, or reservation, that has a node; it may be on its row already."""
        text = metadata.annotations.get(names.DEVICE_ALLOCATED)
        allocation = read_allocation(text) if text is not None else None
        if allocation and self.settled.get(pod.uid) != allocation:
            self._activate()
            self._settle(pod, allocation)
        elif pod.row >= 0 and pod.uid in self.there.get(pod.row, ()):
            self._recount(pod.row)  # it may draw on another reservation than before

    # Scheduling

    def settle(self, pod: PodRecord, ranker: Ranker) -> bool:
        """The pod, just put on its row, has what it was given in thought; False if that is nothing."""
        if not self.active or pod.uid in self.settled or not self.governed[pod.row]:
            return True
        if self.asking(pod.cls) is None:
            return True
        if ranker is not self.ranker and pod.uid in self.there.get(pod.row, ()):
            self._leave(pod, pod.row)
            self._enter(pod, pod.row, ranker)
        allocation = self.guessed.get(pod.uid)
        if not allocation:
            return False
        self.settled[pod.uid] = self.guessed.pop(pod.uid)
        return True

    def unsettle(self, pod: PodRecord) -> None:
        """The pod is not to be bound after all. It may still be on its row."""
        allocation = self.settled.pop(pod.uid, None)
        if allocation is not None and pod.row >= 0 and pod.uid in self.there.get(pod.row, ()):
            self.guessed[pod.uid] = allocation

    def forget(self, uid: str) -> None:
        """The pod, or reservation, is on no row any more, and gone for good."""
        self.settled.pop(uid, None)

    def moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """The ledger's word: a pod, or a reserve pod, came to a row or left it."""
        if sign > 0:
            self._enter(pod, row)
        elif pod.uid in self.there.get(row, ()):
            self._leave(pod, row)

    # Keeping count

    def _settle(self, pod: PodRecord, allocation: Allocation) -> None:
        row = pod.row
        if row >= 0 and pod.uid in self.there.get(row, ()):
            self._leave(pod, row)
        self.settled[pod.uid] = allocation
        if row >= 0:
            self._enter(pod, row)
            self._cluster.ledger.changed.add(row)

    def _enter(self, pod: PodRecord, row: int, ranker: Ranker | None = None) -> None:
        allocation = self.settled.get(pod.uid)
        if allocation is None:
            allocation = self._guess(pod, row, ranker or self.ranker)
            if allocation is None:
                return
            self.guessed[pod.uid] = allocation
        self.there.setdefault(row, {})[pod.uid] = pod
        self.governed[row] = True
        hold = self._cluster.ledger.holds.get(pod.uid) if pod.promise is not None else None
        if hold is not None:
            self._hold[pod.uid] = hold.index
        self._count(pod, row, allocation, 1)

    def _leave(self, pod: PodRecord, row: int) -> None:
        there = self.there[row]
        del there[pod.uid]
        index = self._hold.pop(pod.uid, None)
        if index is not None:
            for table in self.tables.values():
                table.hold(index, None, False)
        self._count(pod, row, self.has(pod.uid), -1)
        self.guessed.pop(pod.uid, None)
        if not there:
            del self.there[row]
            self._govern(row)

    def _count(self, pod: PodRecord, row: int, allocation: Allocation, sign: int) -> None:
        shared = self._hold and any(uid in self._hold for uid in self.there.get(row, ()))
        if shared or pod.promise is not None:
            self._recount(row)
            return
        for kind, parts in allocation.items():
            self.tables[kind].take(row, parts, sign)

    def _recount(self, row: int) -> None:
        """Works out anew what is free on a row where reservations may hold devices."""
        there = self.there.get(row, {})
        for kind, table in self.tables.items():
            table.release_all(row)
            parts = {uid: self.has(uid).get(kind, ()) for uid in there}
            for each in parts.values():
                for part in each:
                    table.place(row, part.minor)
            taken: dict[str, Ints] = {}
            for uid, pod in there.items():
                if pod.promise is None and parts[uid]:
                    table.take(row, parts[uid], 1)
                    if pod.draws_on in self._hold:
                        before = taken.get(pod.draws_on, 0)
                        taken[pod.draws_on] = before + table.spread(row, parts[uid])
            for uid, pod in there.items():
                if pod.promise is None:
                    continue
                left = None
                if parts[uid]:
                    left = np.maximum(table.spread(row, parts[uid]) - taken.get(uid, 0), 0)
                    table.free[:, row] -= left
                if uid in self._hold:
                    table.hold(self._hold[uid], left, self._is_restricted(pod, kind))

    def _is_restricted(self, pod: PodRecord, kind: str) -> bool:
        """Whether owners of the reserve pod get devices of the type from it alone."""
        slots = self._cluster.nodes.slots
        restricted = pod.promise.restricted if pod.promise is not None else None
        return any(TYPE_OF.get(slots.name(slot)) == kind for slot in restricted or ())

    def _guess(self, pod: PodRecord, row: int, ranker: Ranker) -> Allocation | None:
        """What a pod would be given on the row; None if it asks for nothing that is known of there."""
        if not self.governed[row]:
            return None
        try:
            asking = self.asking(pod.cls)
        except DeviceRequestError:
            return None
        if asking is None:
            return None
        hold = self._cluster.ledger.holds.get(pod.draws_on) if pod.draws_on else None
        index = hold.index if hold is not None and hold.row == row else None
        return asking.choose(row, index, ranker, ahead=pod.cls.ahead) or _NOTHING

    # Rows

    def grow(self, capacity: int) -> None:
        if self.active:
            self.governed = np.pad(self.governed, (0, capacity - len(self.governed)))
            for table in self.tables.values():
                table.grow(capacity)

    def row_closed(self, row: int) -> None:
        if self.active:
            self._listed.discard(row)
            self.governed[row] = False
            for table in self.tables.values():
                table.forget(row)

    def _govern(self, row: int) -> None:
        self.governed[row] = row in self._listed or row in self.there

    def _activate(self) -> None:
        if self.active:
            return
        self.active = True
        capacity = self._cluster.nodes.capacity
        self.governed = np.zeros(capacity, dtype=np.bool_)
        self.tables = {kind: TypeTable(kind, capacity) for kind in LINES}
        self._cluster.ledger.listeners.append(self.moved)
        self._cluster.keepers.append(self)

    def _class_dropped(self, cls: PodClass) -> None:
        self._asking.pop(cls.id, None)


def _amounts(kind: str, info: DeviceInfo) -> tuple[int, ...]:
    """What a device offers, by line; nothing if it is not well, or what it says makes no sense."""
    lines = LINES[kind]
    if not info.health or not any(line in info.resources for line in lines):
        return (0,) * len(lines)
    try:
        return tuple(
            amount(line, info.resources.get(line, 0 if line == names.GPU_MEMORY else FULL))
            for line in lines
        )
    except QuantityError:
        return (0,) * len(lines)


def offered_by(device: Device) -> dict[str, int]:
    """What the devices add up to, as resources of their node."""
    sums: dict[str, int] = {}
    well = 0
    for info in device.spec.devices:
        if info.type not in LINES:
            continue
        amounts = _amounts(info.type, info)
        for line, value in zip(LINES[info.type], amounts, strict=True):
            sums[line] = sums.get(line, 0) + value
        well += info.type == GPU and any(amounts)
    offered = {line: value for line, value in sums.items() if value}
    if well:
        offered[names.GPU_PERCENT] = sums[names.GPU_CORE]
        offered[names.GPU_SHARED] = FULL * well
        offered[_WHOLE.get(device.metadata.labels.get(names.GPU_VENDOR, ""), names.NVIDIA_GPU)] = well
    return offered


_WHOLE: Mapping[str, str] = {"amd": names.AMD_GPU, "hygon": names.DCU_GPU}
