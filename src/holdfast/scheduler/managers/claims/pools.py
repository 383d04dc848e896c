"""Resource pools as a node sees them.

A pool is the slices of one driver and pool name. A node sees those whose node selection matches it, of
the highest generation among them. Where they are fewer than the pool says it has, the slices for other
nodes are counted too: then the pool may be obsolete (there is a newer generation: it is ignored) or
incomplete. A pool with two devices or two counter sets of one name, or with a device that consumes an
unknown counter, is invalid. Nothing is allocated from incomplete and invalid pools.

Pools are ordered by driver and name, those with binding conditions last; slices by name. Allocation
takes the first devices that fit, so this order decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resource_slices import DeviceID, ResourceSlice
from holdfast.api.selectors import match_node_selector
from holdfast.scheduler.managers.claims.device_table import NO_COUNTERS, Codes, DeviceEntry, nano

Bools = NDArray[np.bool_]
Counters = dict[tuple[str, str], int]
"""Amounts in nano by counter set and counter."""


class PoolID(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class NodeFacts(NamedTuple):
    """What node selection reads of a node."""

    name: str
    labels: Mapping[str, str]


@dataclass(slots=True, eq=False)
class SliceEntry:
    """A slice with the rows of its devices."""

    slice: ResourceSlice
    devices: list[DeviceEntry] = field(default_factory=list)
    matched: dict[int, tuple[bool, ...] | None] = field(default_factory=dict)
    """By row of the node table: for each device whether the node can use it, None if it can use none.
    Kept for slices that are not of one node."""

    @property
    def name(self) -> str:
        return self.slice.metadata.name

    @property
    def pool(self) -> PoolID:
        return PoolID(self.slice.spec.driver, self.slice.spec.pool.name)

    @property
    def node_name(self) -> str:
        return self.slice.spec.node_name or ""

    def on(self, row: int, node: NodeFacts) -> tuple[bool, ...] | None:
        if row not in self.matched:
            self.matched[row] = self._on(node)
        return self.matched[row]

    def _on(self, node: NodeFacts) -> tuple[bool, ...] | None:
        spec = self.slice.spec
        everywhere = (True,) * len(spec.devices)
        if spec.node_name:
            return everywhere if spec.node_name == node.name else None
        if spec.all_nodes:
            return everywhere
        if spec.node_selector is not None:
            found = match_node_selector(spec.node_selector, node.labels, node.name)
            return everywhere if found else None
        if spec.per_device_node_selection:
            each = tuple(
                device.node_name == node.name
                if device.node_name
                else bool(device.all_nodes)
                or (
                    device.node_selector is not None
                    and match_node_selector(device.node_selector, node.labels, node.name)
                )
                for device in spec.devices
            )
            return each if any(each) else None
        return None


@dataclass(slots=True, eq=False)
class DevicePool:
    """A pool as some nodes see it."""

    id: PoolID
    incomplete: bool = False
    invalid: str = ""
    """Why it is invalid."""
    devices: list[DeviceEntry] = field(default_factory=list)
    selected: list[bool] = field(default_factory=list)
    """Whether the node selection of each device matches."""
    consumers: list[DeviceEntry] = field(default_factory=list)
    """The devices that consume counters, those for other nodes included."""
    counters: Counters = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        return not self.incomplete and not self.invalid


class VisibleDevices:
    """The devices that a node can use, in the order in which they are tried. Nodes that see the same
    slices share it."""

    def __init__(self, pools: Sequence[DevicePool]) -> None:
        self.pools = tuple(pools)
        usable = [pool for pool in self.pools if pool.usable]
        self.entries = [entry for pool in usable for entry in pool.devices]
        self.pool_of = [pool for pool in usable for _ in pool.devices]
        self.rows: Codes = np.array([entry.row for entry in self.entries], dtype=np.int32)
        self.identities: Codes = np.array([each.identity for each in self.entries], dtype=np.int32)
        self.unselected: Bools = np.array(
            [not each for pool in usable for each in pool.selected], dtype=np.bool_
        )
        self.any_unselected = bool(self.unselected.any())
        self.exclusive: Bools = np.array(
            [not entry.device.allow_multiple_allocations for entry in self.entries], dtype=np.bool_
        )
        """Devices that only one claim can have."""
        self.invalid = any(pool.invalid for pool in self.pools)
        self.counted = [pool for pool in usable if pool.counters]
        """The pools with counters."""
        self.structure = (
            tuple(
                (pool.incomplete, bool(pool.invalid), len(pool.devices), tuple(pool.counters.items()))
                for pool in self.pools
            ),
            self.unselected.tobytes(),
        )
        """Equal for nodes whose pools differ in names only."""
        self.length = len(self.entries)
        self._ids: frozenset[DeviceID] | None = None

    def __len__(self) -> int:
        return self.length

    def __contains__(self, device: DeviceID) -> bool:
        if self._ids is None:
            self._ids = frozenset(
                entry.id
                for entry, hidden in zip(self.entries, self.unselected.tolist(), strict=True)
                if not hidden
            )
        return device in self._ids


NOTHING_VISIBLE = VisibleDevices(())


def gather(
    seen: Iterable[tuple[SliceEntry, tuple[bool, ...]]],
    pools: Mapping[PoolID, Mapping[str, SliceEntry]],
) -> VisibleDevices:
    """The devices of the slices that match a node. `pools` has all slices of every pool, by name."""
    newest: dict[PoolID, list[tuple[SliceEntry, tuple[bool, ...]]]] = {}
    for entry, selected in sorted(seen, key=lambda each: each[0].name):
        if _has_unknown_rules(entry.slice):
            continue
        among = newest.get(entry.pool)
        generation = entry.slice.spec.pool.generation
        before = among[0][0].slice.spec.pool.generation if among else generation
        if among is None or generation > before:
            newest[entry.pool] = [(entry, selected)]
        elif generation == before:
            among.append((entry, selected))
    plain: list[DevicePool] = []
    bound: list[DevicePool] = []
    for id in sorted(newest):
        pool = _pool(id, newest[id], pools[id])
        if pool is not None:
            waits = any(entry.device.binding_conditions for entry in pool.devices)
            (bound if waits else plain).append(pool)
    return VisibleDevices(plain + bound) if plain or bound else NOTHING_VISIBLE


def _has_unknown_rules(slice: ResourceSlice) -> bool:
    """Whether devices are subject to compatibility groups, which are not supported: without them a
    device could be allocated beside one that excludes it, so the slice is left out and its pool is
    incomplete."""
    return any(
        each.compatibility_groups for device in slice.spec.devices for each in device.consumes_counters
    )


def _pool(
    id: PoolID,
    seen: list[tuple[SliceEntry, tuple[bool, ...]]],
    everywhere: Mapping[str, SliceEntry],
) -> DevicePool | None:
    """The pool with these slices for the node; None if they are obsolete."""
    spec = seen[0][0].slice.spec.pool
    others: list[SliceEntry] = []
    if len(seen) != spec.resource_slice_count:
        if any(each.slice.spec.pool.generation > spec.generation for each in everywhere.values()):
            return None
        current = [
            each
            for each in everywhere.values()
            if each.slice.spec.pool.generation == spec.generation and not _has_unknown_rules(each.slice)
        ]
        if len(current) != spec.resource_slice_count:
            return DevicePool(id, incomplete=True)
        names = {entry.name for entry, _ in seen}
        others = sorted((each for each in current if each.name not in names), key=lambda e: e.name)
    counting = [each for each, _ in seen if each.slice.spec.shared_counters]
    counting += [each for each in others if each.slice.spec.shared_counters]
    targeting = [(each, on) for each, on in seen if not each.slice.spec.shared_counters]
    elsewhere = [each for each in others if not each.slice.spec.shared_counters]
    devices = [device for each, _ in targeting for device in each.devices]
    names_seen: set[str] = set()
    for device in devices:
        if device.id.device in names_seen:
            return DevicePool(id, invalid=f"duplicate device name {device.id.device}")
        names_seen.add(device.id.device)
    counters: dict[str, Counters] = {}
    for each in counting:
        for counter_set in each.slice.spec.shared_counters:
            if counter_set.name in counters:
                return DevicePool(id, invalid=f"duplicate counter set name {counter_set.name}")
            counters[counter_set.name] = {
                (counter_set.name, name): nano(counter.value)
                for name, counter in sorted(counter_set.counters.items())
            }
    everything = devices + [device for each in elsewhere for device in each.devices]
    consumers = [device for device in everything if device.counters != NO_COUNTERS]
    problem = _unknown_counter(everything, counters)
    if problem:
        return DevicePool(id, invalid=problem)
    return DevicePool(
        id,
        devices=devices,
        selected=[selected for _, on in targeting for selected in on],
        consumers=consumers,
        counters={key: amount for name in sorted(counters) for key, amount in counters[name].items()},
    )


def _unknown_counter(devices: Iterable[DeviceEntry], counters: Mapping[str, Counters]) -> str:
    for entry in devices:
        for consumed in entry.device.consumes_counters:
            known = counters.get(consumed.counter_set)
            if known is None:
                return f"counter set {consumed.counter_set} not found"
            for name in sorted(consumed.counters):
                if (consumed.counter_set, name) not in known:
                    return f"counter {name} not found in counter set {consumed.counter_set}"
    return ""
