"""The device allocator of one pod class: which nodes have the devices, and which devices it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast.api.selectors import Selector
from holdfast.scheduler.managers.devices.allocation import Allocation, DevicePart
from holdfast.scheduler.managers.devices.device_table import NOWHERE, Bools, Ints, Rows, TypeTable
from holdfast.scheduler.managers.devices.partitions import (
    MISSING,
    ODD_NUMBER,
    TOO_FEW,
    Partitions,
    allowed_partitions,
    choose_partition,
)
from holdfast.scheduler.managers.devices.requests import (
    GPU,
    NUMA,
    SWITCH,
    DeviceHints,
    Request,
    Share,
    TypeHints,
)
from holdfast.scheduler.managers.devices.selection import (
    DeviceHolders,
    Ranker,
    cards_with_functions,
    has_functions,
    nearest,
    spare_function,
)

NONE_THERE = "Insufficient {} devices"
TOO_FEW_GPUS = "Insufficient GPU Devices"
TOO_FEW_TOGETHER = "Insufficient Topology Scoped GPU Devices"
NOT_MAPPED = "node(s) missing GPU Device Topology Tree"
MANY_SHARED = "node(s) Unsupported Multi-Shared GPU"
NO_FUNCTIONS = "Insufficient {} VirtualFunctions"
NOT_JOINT = "node(s) Device Joint-Allocate rules violation"


Later = Callable[[TypeTable, Rows], Ints] | None
"""Returns what will be free of the devices of rows, [resource, (row,) place], for Waiting reservations;
None means what is free now."""


class Devices(DeviceHolders, Protocol):
    """The devices of all rows; the device manager."""

    governed: Bools
    """Rows whose devices are known."""
    tables: dict[str, TypeTable]
    """By type."""
    partitions: dict[int, Partitions]
    """GPU partitions, by row."""
    version: int
    """Incremented when the devices of any node change."""


class DeviceLack(NamedTuple):
    """A reason and the rows it applies to."""

    text: str
    rows: Bools
    unresolvable: bool
    """Whether preemption cannot help."""


class DeviceSearch:
    """The device requests and hints of one pod class, and the rows and devices that satisfy them."""

    def __init__(
        self, devices: Devices, shares: Request, hints: DeviceHints, slots: frozenset[int]
    ) -> None:
        self._devices = devices
        self.shares = shares
        self.slots = slots
        """The slots of the resources by which devices are requested."""
        self.hints = hints
        self._allowed: dict[str, tuple[int, Bools]] = {}

    @property
    def types(self) -> frozenset[str]:
        return frozenset(share.type for share in self.shares)

    # Many rows

    def serves(self, rows: Rows, entries: Rows | None, later: Later = None) -> Bools:
        """The rows that have the devices, or whose devices are not known. `entries` are those of the
        reservations on these rows that the pod can be allocated from."""
        fits = ~self._devices.governed[rows] | self._together(rows, entries, later)
        for share in self.shares:
            enough = self._enough(share, rows, self._ok(share, rows, entries, later))
            fits = fits & (enough | ~self._devices.governed[rows])
        return fits

    def lacks(self, rows: Rows, entries: Rows | None, later: Later = None) -> list[DeviceLack]:
        """Why rows do not have the devices."""
        lacks = []
        governed = self._devices.governed[rows]
        for share in self.shares:
            table = self._devices.tables[share.type]
            lacking = governed & ~self._enough(share, rows, self._ok(share, rows, entries, later))
            some = table.known[rows].any(axis=-1)
            lacks.append(DeviceLack(NONE_THERE.format(share.type), lacking & ~some, True))
            lacks += self._too_few(share, table, rows, lacking & some)
        if self.hints.same_switch:
            apart = governed & ~self._together(rows, entries, later)
            for lack in lacks:
                apart = apart & ~lack.rows
            lacks.append(DeviceLack(NOT_JOINT, apart, False))
        return [lack for lack in lacks if lack.rows.any()]

    def can_allocate_from(self, row: int, entry: int) -> bool:
        """Whether a pod on the row would be allocated devices that are left of the reservation."""
        for share in self.shares:
            table = self._devices.tables[share.type]
            table.grow_entries(entry)
            held = (table.left[:, entry] > 0).any(axis=0)
            if (self._ok(share, row, entry, None) & held).any():
                return True
        return False

    def _ok(self, share: Share, rows: Rows, entries: Rows | None, later: Later) -> Bools:
        """The devices, [(row,) place], that can be allocated for the share."""
        table = self._devices.tables[share.type]
        if entries is not None:
            table.grow_entries(int(np.max(entries)))
        if later is not None:
            ok = table.serve(rows, share.each, available=later(table, rows))
        else:
            ok = table.serve(rows, share.each, entries)
        ok = ok & table.known[rows]
        hints = self.hints.of(share.type)
        if hints.selector is not None:
            ok = ok & self._selected(table, hints)[rows]
        if hints.exclusive:
            ok = ok & self._on_unused_switches(table, rows)
        if hints.functions is not None:
            ok = ok & cards_with_functions(self._devices, table, rows, entries, hints.functions)
        return ok

    def _enough(self, share: Share, rows: Rows, ok: Bools) -> Bools:
        """The rows where enough devices for the share are `ok`."""
        table, hints = self._devices.tables[share.type], self.hints.of(share.type)
        if hints.for_all:
            wanted = table.known[rows]
            if hints.selector is not None:
                wanted = wanted & self._selected(table, hints)[rows]
            every: Bools = (ok == wanted).all(axis=-1) & wanted.any(axis=-1)
            return every
        if self._is_partitioned(share):
            ok = ok & self._in_partitions(share, table, rows, ok)
        if hints.scope not in (SWITCH, NUMA) or share.type != GPU:
            enough: Bools = ok.sum(axis=-1) >= share.number
            return enough
        if share.shared and share.number > 1:
            return np.zeros(ok.shape[:-1], dtype=np.bool_)
        groups = (table.switch if hints.scope == SWITCH else table.numa)[rows]
        together: Bools = table.mapped[rows] & False
        for group in np.unique(groups).tolist():
            together = together | ((ok & (groups == group)).sum(axis=-1) >= share.number)
        mapped: Bools = together & table.mapped[rows]
        return mapped

    def _is_partitioned(self, share: Share) -> bool:
        """Whether GPU partitions apply to the share on any node."""
        if share.type != GPU or share.shared:
            return False
        return self.hints.partition is not None or bool(self._devices.partitions)

    def _in_partitions(self, share: Share, table: TypeTable, rows: Rows, ok: Bools) -> Bools:
        """The GPUs of the partition that would be chosen, [(row,) place]; all where partitions are not
        required."""
        there, partitions = np.atleast_2d(ok), self._devices.partitions
        found = np.full(there.shape, self.hints.partition is None)
        for at, row in enumerate(np.atleast_1d(rows).tolist()):
            known = partitions.get(row)
            if known is not None and (known.honoured or self.hints.partition is not None):
                chosen = self._partition(share, table, row, there[at], there[at] & False)
                found[at] = False
                found[at, chosen or []] = True
        return found if np.ndim(rows) else found[0]

    def _partition(
        self, share: Share, table: TypeTable, row: int, ok: Bools, first: Bools
    ) -> list[int] | None:
        """The places of the partition to use; empty if one is required and none is free, None if no
        partition is required."""
        partitions, request = self._devices.partitions.get(row), self.hints.partition
        minors = table.minors.get(row, [])
        if partitions is None:
            return None if request is None else []
        free = [minors[at] for at in np.flatnonzero(ok).tolist()]
        reserved = [minors[at] for at in np.flatnonzero(first).tolist()]
        chosen = choose_partition(partitions, share.number, free, reserved, request)
        if chosen is None:
            return [] if request is not None or partitions.honoured else None
        return sorted(minors.index(minor) for minor in chosen)

    def is_partition(self, row: int, chosen: Allocation) -> bool:
        """Whether the chosen GPUs are a partition of the node as it is now, or need not be one."""
        partitions, request = self._devices.partitions.get(row), self.hints.partition
        if request is None and (partitions is None or not partitions.honoured):
            return True
        for share in self.shares:
            if not self._is_partitioned(share) or self.hints.of(share.type).for_all:
                continue
            minors = {part.minor for part in chosen.get(share.type, ())}
            if minors and (
                partitions is None
                or all(
                    each.minors != minors
                    for each in allowed_partitions(partitions, share.number, request)
                )
            ):
                return False
        return True

    def _together(self, rows: Rows, entries: Rows | None, later: Later) -> Bools:
        """The rows where devices of a joint allocation that must be on the same switches can be."""
        if not self.hints.same_switch:
            return np.ones(np.shape(rows), dtype=np.bool_)
        leading, followers = self._joint_shares()
        table = self._devices.tables[leading.type]
        near = self._ok(leading, rows, entries, later)
        for follower in followers:
            near = near & self._beside(follower, table.switch[rows], rows, entries, later)
        enough: Bools = near.sum(axis=-1) >= leading.number
        return enough

    def _beside(
        self, share: Share, switches: Any, rows: Rows, entries: Rows | None, later: Later
    ) -> Bools:
        """The places, by their switch, on whose switch a device is free for the share."""
        ok = self._ok(share, rows, entries, later)
        own = self._devices.tables[share.type].switch[rows]
        theirs = np.expand_dims(np.where(ok, own, -9), -2)
        beside: Bools = (np.expand_dims(switches, -1) == theirs).any(axis=-1)
        return beside

    def _joint_shares(self) -> tuple[Share, list[Share]]:
        by_type = {share.type: share for share in self.shares}
        first, *others = self.hints.joint
        return by_type[first], [by_type[kind] for kind in others]

    def _selected(self, table: TypeTable, hints: TypeHints) -> Bools:
        """The devices that match the selector; computed again only when devices change."""
        version, mask = self._allowed.get(table.kind, (-1, None))
        if mask is None or version != self._devices.version or mask.shape != table.known.shape:
            assert hints.selector is not None
            mask = np.zeros_like(table.known)
            for row, infos in table.infos.items():
                for minor, info in infos.items():
                    mask[row, table.place(row, minor)] = hints.selector.matches(info.labels)
            self._allowed[table.kind] = self._devices.version, mask
        return mask

    def _on_unused_switches(self, table: TypeTable, rows: Rows) -> Bools:
        """The devices on PCIe switches of which no pod has a device."""
        used = (table.free[:, rows] != table.total[:, rows]).any(axis=0)
        switch = table.switch[rows]
        alike = np.expand_dims(switch, -1) == np.expand_dims(switch, -2)
        unused: Bools = ~(alike & np.expand_dims(used, -2)).any(axis=-1)
        return unused

    def _too_few(self, share: Share, table: TypeTable, rows: Rows, lacking: Bools) -> list[DeviceLack]:
        general = NONE_THERE.format(share.type)
        if share.type != GPU:
            if self.hints.of(share.type).functions is None:
                return [DeviceLack(general, lacking, False)]
            some = has_functions(table, rows)
            none = NO_FUNCTIONS.format(share.type)
            return [DeviceLack(none, lacking & ~some, True), DeviceLack(general, lacking & some, False)]
        if self._is_partitioned(share):
            return self._no_partition(share, table, rows, lacking)
        return self._apart(share, table, rows, lacking)

    def _no_partition(
        self, share: Share, table: TypeTable, rows: Rows, lacking: Bools
    ) -> list[DeviceLack]:
        partitions, request = self._devices.partitions, self.hints.partition
        known = np.isin(rows, list(partitions))
        right = [row for row, each in partitions.items() if share.number in each.by_number]
        kept = [row for row, each in partitions.items() if each.honoured or request is not None]
        numbered, honoured = np.isin(rows, right), np.isin(rows, kept)
        others = ~honoured & ~known if request is None else np.zeros_like(known)
        return [
            DeviceLack(MISSING, lacking & ~known & ~others, True),
            DeviceLack(ODD_NUMBER, lacking & honoured & ~numbered, True),
            DeviceLack(TOO_FEW, lacking & honoured & numbered, False),
            *self._apart(share, table, rows, lacking & ~honoured & (known | others)),
        ]

    def _apart(self, share: Share, table: TypeTable, rows: Rows, lacking: Bools) -> list[DeviceLack]:
        general = NONE_THERE.format(share.type)
        mapped, several = table.mapped[rows], share.shared and share.number > 1
        if self.hints.of(GPU).scope:
            text = MANY_SHARED if several else TOO_FEW_TOGETHER
            return [
                DeviceLack(NOT_MAPPED, lacking & ~mapped, True),
                DeviceLack(text, lacking & mapped, several),
            ]
        if several:
            return [DeviceLack(general, lacking, False)]
        return [
            DeviceLack(TOO_FEW_GPUS, lacking & mapped, False),
            DeviceLack(general, lacking & ~mapped, False),
        ]

    # One row

    def by_numa(
        self, rows: Rows, entries: Rows | None, width: int, later: Later = None
    ) -> list[tuple[str, int, Ints]]:
        """For each share its type, how many devices it requests, and how many are free for it, [row,
        NUMA node]. Devices without a NUMA node count for each; a row without known devices has
        enough."""
        found = []
        governed = self._devices.governed[rows]
        for share in self.shares:
            table = self._devices.tables[share.type]
            ok, numa = self._ok(share, rows, entries, later), table.numa[rows]
            counts = [(ok & ((numa == at) | (numa < 0))).sum(axis=-1) for at in range(width)]
            there: Ints = np.where(governed[:, None], np.stack(counts, axis=-1), share.number)
            found.append((share.type, share.number, there))
        return found

    def choose(
        self,
        row: int,
        entry: int | None,
        ranker: Ranker,
        later: Later,
        zones: frozenset[int] = frozenset(),
    ) -> Allocation | None:
        """The devices a pod would get on the row, from these NUMA nodes if any are given; None if there
        are too few."""
        found: dict[str, tuple[DevicePart, ...]] = {}
        near: list[int] = []
        for share in self._in_order():
            table = self._devices.tables[share.type]
            ok = self._ok(share, row, entry, later)
            if zones:
                ok = ok & np.isin(table.numa[row], [NOWHERE, *zones])
            joint = share.type in self.hints.joint
            if joint and self.hints.same_switch and not near:
                for follower in self._joint_shares()[1]:
                    ok = ok & self._beside(follower, table.switch[row], row, entry, later)
            places = self._places(share, table, row, entry, ok, ranker, later, near)
            if places is None:
                return None
            if not near:
                near = list(dict.fromkeys(int(table.switch[row, at]) for at in places))
            parts = (table.part(row, at, share.each) for at in sorted(places))
            selector = self.hints.of(share.type).functions
            if selector is not None:
                parts = (self._with_function(table, row, part, entry, selector) for part in parts)
            found[share.type] = tuple(parts)
        return found

    def substitute(
        self, row: int, kept: Allocation, lost: Mapping[str, int], ranker: Ranker
    ) -> Allocation | None:
        """`kept`, with as many other devices of each type as were lost; None if there are too few, or
        if the devices must be chosen together (joint allocation, partition)."""
        if self.hints.joint or self.hints.partition is not None:
            return None
        found: dict[str, tuple[DevicePart, ...]] = dict(kept)
        for share in self.shares:
            number, hints = lost.get(share.type, 0), self.hints.of(share.type)
            if not number:
                continue
            if (
                hints.for_all
                or hints.scope
                or hints.functions is not None
                or self._is_partitioned(share)
            ):
                return None
            table, parts = self._devices.tables[share.type], kept.get(share.type, ())
            ok = self._ok(share, row, None, None)
            ok[[table.place(row, part.minor) for part in parts]] = False
            ranks = ranker(table, row, share, table.available(row))
            places = nearest(table, row, ok, number, share.shared, ranks)
            if places is None:
                return None
            new = (table.part(row, at, share.each) for at in places)
            found[share.type] = tuple(sorted((*parts, *new), key=lambda part: part.minor))
        return found

    def _with_function(
        self, table: TypeTable, row: int, part: DevicePart, entry: int | None, selector: Selector
    ) -> DevicePart:
        spare = spare_function(self._devices, table, row, part.minor, entry, selector)
        return part if spare is None else part._replace(functions=(spare,))

    def _in_order(self) -> Sequence[Share]:
        joint = self.hints.joint
        return sorted(self.shares, key=lambda s: joint.index(s.type) if s.type in joint else len(joint))

    def _places(
        self,
        share: Share,
        table: TypeTable,
        row: int,
        entry: int | None,
        ok: Bools,
        ranker: Ranker,
        later: Later,
        near: list[int],
    ) -> list[int] | None:
        """The places of the devices that a share gets on a row; None if there are too few."""
        hints = self.hints.of(share.type)
        count = share.number
        if hints.for_all:
            every: list[int] = np.flatnonzero(ok).tolist()
            return every if self._enough(share, row, ok) else None
        if near and self.hints.same_switch and share.type in self.hints.joint:
            count = max(count, len(near))
        available = table.available(row, entry)
        ranks = ranker(table, row, share, available)
        near = near if share.type != GPU else []
        first = np.zeros_like(ok)
        if entry is not None:
            first = ok & (table.left[:, entry] > 0).any(axis=0)
        elif later is not None:
            first = ok & table.serve(row, share.each)
        if self._is_partitioned(share):
            partition = self._partition(share, table, row, ok, first)
            if partition is not None:
                return partition or None
        reserved = int(first.sum())
        if not reserved or hints.scope or near:
            return nearest(table, row, ok, count, share.shared, ranks, hints.scope, near)
        chosen = nearest(table, row, first, min(count, reserved), share.shared, ranks)
        if chosen is None or len(chosen) == count:
            return chosen
        ok = ok.copy()
        ok[chosen] = False
        rest = nearest(table, row, ok, count - len(chosen), share.shared, ranks)
        return None if rest is None else [*chosen, *rest]
