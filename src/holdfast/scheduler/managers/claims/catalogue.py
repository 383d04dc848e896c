"""Everything that is published about devices: slices, classes and taint rules.

`put_…` and `remove_…` keep it in line with the objects and return the rows of the node table whose
devices may have changed, or None for all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resource_claims import DeviceClass
from holdfast.api.resource_slices import DeviceID, DeviceTaintRule, ResourceSlice, SliceDevice
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.managers.claims.device_table import DeviceEntry, DeviceTable, Taints, taints_of
from holdfast.scheduler.managers.claims.pools import (
    NOTHING_VISIBLE,
    NodeFacts,
    PoolID,
    SliceEntry,
    VisibleDevices,
    gather,
)

Rows = NDArray[np.intp]
Seen = tuple[tuple[str, tuple[bool, ...]], ...]
_NO_ROWS: Rows = np.array([], dtype=np.intp)


class DeviceCatalogue:
    """Slices, classes and taint rules, and the devices that each node can use."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.table = DeviceTable()
        self.classes: dict[str, DeviceClass] = {}
        self.class_version = 0
        """Incremented when a class changes."""
        self.structure = 0
        """Incremented when the devices that a node can use change."""
        self.version = 0
        """Incremented when anything changes that decides which devices a claim can get."""
        self._slices: dict[str, SliceEntry] = {}
        self._pools: dict[PoolID, dict[str, SliceEntry]] = {}
        self._on_node: dict[str, dict[str, SliceEntry]] = {}
        self._shared: dict[str, SliceEntry] = {}
        """Slices that are not of one node."""
        self._rules: dict[str, DeviceTaintRule] = {}
        self._visible: dict[int, VisibleDevices] = {}
        self._facts: dict[int, NodeFacts] = {}
        """What the devices of a row were gathered for."""
        self._alike: dict[Seen, VisibleDevices] = {}
        """By slices, of nodes without slices of their own."""

    # Objects

    def put_slice(self, slice: ResourceSlice) -> Rows | None:
        """Adds a slice, or replaces the one of this name."""
        known = self._slices.get(slice.metadata.name)
        if known is not None and known.slice.spec == slice.spec:
            known.slice = slice
            return _NO_ROWS
        gone = self._forget(slice.metadata.name)
        entry = SliceEntry(slice)
        spec = slice.spec
        for device in spec.devices:
            id = DeviceID(spec.driver, spec.pool.name, device.name)
            entry.devices.append(self.table.add(entry.name, id, device, self._taints(id, device)))
        self._slices[entry.name] = entry
        self._pools.setdefault(entry.pool, {})[entry.name] = entry
        if entry.node_name:
            self._on_node.setdefault(entry.node_name, {})[entry.name] = entry
        else:
            self._shared[entry.name] = entry
        return self._outdate([*gone, entry])

    def remove_slice(self, name: str) -> Rows | None:
        return self._outdate(self._forget(name))

    def put_class(self, device_class: DeviceClass) -> None:
        self.classes[device_class.metadata.name] = device_class
        self._class_changed()

    def remove_class(self, name: str) -> None:
        if self.classes.pop(name, None) is not None:
            self._class_changed()

    def _class_changed(self) -> None:
        self.class_version += 1
        self.version += 1

    def put_rule(self, rule: DeviceTaintRule) -> Rows | None:
        before = self._rules.get(rule.metadata.name, rule)
        self._rules[rule.metadata.name] = rule
        return self._retaint(before, rule)

    def remove_rule(self, name: str) -> Rows | None:
        gone = self._rules.pop(name, None)
        return self._retaint(gone) if gone is not None else _NO_ROWS

    def node_changed(self, row: int) -> bool:
        """To be called when a node object is added to a row, changed, or removed from it; whether its
        devices may have changed."""
        info = self._nodes.info.get(row)
        facts = NodeFacts(info.name, info.labels) if info is not None else None
        if self._facts.get(row) == facts:
            return False
        if facts is None:
            del self._facts[row]
        else:
            self._facts[row] = facts
        self._visible.pop(row, None)
        for entry in self._shared.values():
            entry.matched.pop(row, None)
        self.structure += 1
        self.version += 1
        return True

    # Queries

    @property
    def empty(self) -> bool:
        return not self._slices

    def slice(self, name: str) -> ResourceSlice | None:
        entry = self._slices.get(name)
        return entry.slice if entry is not None else None

    def visible(self, row: int) -> VisibleDevices:
        """The devices that the node of a row can use."""
        found = self._visible.get(row)
        if found is None:
            found = self._visible[row] = self._gather(row)
        return found

    def devices_of_nodes(self) -> Iterator[tuple[int, DeviceEntry]]:
        """The usable devices of slices that are of one node, with the node's row."""
        for name, slices in self._on_node.items():
            row = self._nodes.row(name)
            if row is None or row not in self._nodes.info:
                continue
            for entry in self.visible(row).entries:
                if entry.slice_name in slices:
                    yield row, entry

    def rows_of(self, devices: Iterable[DeviceID]) -> Rows | None:
        """The rows whose answers may change when these devices are allocated or released: those that
        see one of them, or a device that shares counters with one."""
        rows: dict[int, None] = {}
        for pool in dict.fromkeys(PoolID(each.driver, each.pool) for each in devices):
            found = self._rows_of_pool(pool)
            if found is None:
                return None
            rows.update(dict.fromkeys(found))
        return np.array(sorted(rows), dtype=np.intp)

    def is_withdrawn(self, device: DeviceID, row: int) -> bool:
        """Whether a device is no longer published for the node of a row. As long as its pool is
        incomplete or invalid, that is not known."""
        visible = self.visible(row)
        if device in visible:
            return False
        pools = [pool for pool in visible.pools if pool.id == (device.driver, device.pool)]
        return all(pool.usable for pool in pools)

    def has_counters(self, pool: PoolID) -> bool:
        """Whether devices of a pool share counters."""
        return any(each.slice.spec.shared_counters for each in self._pools.get(pool, {}).values())

    # Upkeep

    def _forget(self, name: str) -> list[SliceEntry]:
        entry = self._slices.pop(name, None)
        if entry is None:
            return []
        for device in entry.devices:
            self.table.remove(device.row)
        among = self._pools[entry.pool]
        del among[name]
        if not among:
            del self._pools[entry.pool]
        if entry.node_name:
            on_node = self._on_node[entry.node_name]
            del on_node[name]
            if not on_node:
                del self._on_node[entry.node_name]
        else:
            del self._shared[name]
        return [entry]

    def _outdate(self, changed: list[SliceEntry]) -> Rows | None:
        """Drops what was gathered from these slices, and from others of their pools."""
        if not changed:
            return _NO_ROWS
        self.structure += 1
        self.version += 1
        rows: dict[int, None] = {}
        for entry in changed:
            for each in (entry, *self._pools.get(entry.pool, {}).values()):
                row = self._nodes.row(each.node_name) if each.node_name else None
                if row is not None:
                    rows[row] = None
                elif not each.node_name:
                    self._visible.clear()
                    self._alike.clear()
                    return None
        for row in rows:
            self._visible.pop(row, None)
        return np.array(sorted(rows), dtype=np.intp)

    def _rows_of_pool(self, pool: PoolID) -> Iterator[int] | None:
        entries = self._pools.get(pool, {}).values()
        if any(not entry.node_name for entry in entries):
            return None
        rows = (self._nodes.row(entry.node_name) for entry in entries)
        return (row for row in rows if row is not None)

    def _gather(self, row: int) -> VisibleDevices:
        info = self._nodes.info.get(row)
        if info is None:
            return NOTHING_VISIBLE
        node = self._facts[row] = NodeFacts(info.name, info.labels)
        shared = [(entry, entry.on(row, node)) for entry in self._shared.values()]
        seen = [(entry, on) for entry, on in shared if on is not None]
        own = self._on_node.get(info.name)
        if own:
            everywhere = [(entry, (True,) * len(entry.devices)) for entry in own.values()]
            return gather([*everywhere, *seen], self._pools)
        if not seen:
            return NOTHING_VISIBLE
        key = tuple(sorted((entry.name, on) for entry, on in seen))
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = gather(seen, self._pools)
        return found

    # Taints

    def _taints(self, id: DeviceID, device: SliceDevice) -> Taints:
        """The taints of a device, with those that rules add."""
        rules: Mapping[str, DeviceTaintRule] = self._rules
        if not rules:
            return taints_of(device.taints)
        # A rule without a selector taints all devices: the API's documentation says that it selects
        # none, but kube-scheduler reads it so.
        more = [
            rule.spec.taint
            for rule in rules.values()
            if rule.spec.device_selector is None or rule.spec.device_selector.selects(id)
        ]
        return taints_of([*device.taints, *more])

    def _retaint(self, *rules: DeviceTaintRule) -> Rows | None:
        """Sets the taints of devices in pools that one of the rules selects."""
        self.version += 1
        changed = [
            device.id
            for pool, entries in self._pools.items()
            if any(_selects_pool(rule, pool) for rule in rules)
            for entry in entries.values()
            for device in entry.devices
            if self.table.taint(device.row, self._taints(device.id, device.device))
        ]
        return self.rows_of(changed)


def _selects_pool(rule: DeviceTaintRule, pool: PoolID) -> bool:
    """Whether the rule can select devices of a pool."""
    selector = rule.spec.device_selector
    return selector is None or (
        selector.driver in (None, pool.driver) and selector.pool in (None, pool.pool)
    )
