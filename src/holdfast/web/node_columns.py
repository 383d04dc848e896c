"""Nodes for the dashboard: columns of amounts, and what is written about each node.

Amounts are read from the node table as arrays, and compared with those sent last as arrays, so a
refresh costs the same for one changed node as for none. Names, labels and taints are read again only
for the rows in the node log. Which pods are on a node is part of it only in small clusters.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.api.affinity import Taint
from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.cluster.slots import CPU, MEMORY, PODS
from holdfast.scheduler.managers.claims.device_counts import DeviceCounts, devices_resource
from holdfast.scheduler.managers.devices.device_amounts import GPU_PARTS, device_amounts, left_on
from holdfast.scheduler.managers.devices.device_table import TypeTable
from holdfast.scheduler.managers.devices.requests import GPU, RATIO, TYPE_OF
from holdfast.scheduler.state.cluster import Cluster
from holdfast.web.row_tables import is_hold

CORDONED, NOT_READY, TAINTED, NO_OBJECT = 1, 2, 4, 8
"""Flags of a node."""
AMOUNTS = ("allocatable", "requested", "used", "reserved", "held")
"""The amounts of each resource: allocatable; requests of pods; the part of those that comes from
reservations; what reservations keep; what preemption and starvation holds keep."""
MAX_PODS_IN_BARS = 3000
"""With more pods than this, bars do not show single pods."""
_MAX_LABELS = 20_000
"""Distinct labels that are sent; labels beyond are left out."""
_SLICE = 1000
"""Rows described before others may run."""
_NOT_READY = (names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)
_SELDOM = ("ephemeral-storage", names.HUGEPAGES_PREFIX, names.ATTACHABLE_VOLUMES_PREFIX)
"""Resources that are shown only if something requests them."""

Matrix = NDArray[np.int64]
Json = dict[str, Any]


class NodeColumns:
    """The nodes as they were sent last. `shown` are the resources, by slot."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.shown = _shown(cluster)
        self.devices = DeviceCounts(cluster.claims)
        self._drivers = list(self.devices.drivers)
        self.names_pods = len(cluster.pods) <= MAX_PODS_IN_BARS
        self._labels: dict[str, int] = {}
        self._sent: Matrix = np.zeros((0, 0), dtype=np.int64)
        self._gpus: Matrix | None = None
        self._known: dict[int, tuple[str, int, str, list[int]]] = {}
        """By row: name, flags, taints and labels."""
        self._pods: dict[int, list[list[Any]]] = {}
        self._nodes_read: int | None = None
        self._usage_read: int | None = None
        """How far the logs of changed rows were read; None at first."""

    def is_outdated(self) -> bool:
        """Whether other columns are to be sent: resources came or went, or the cluster grew out of
        showing single pods."""
        pods = len(self._cluster.pods)
        limit = MAX_PODS_IN_BARS * (1.1 if self.names_pods else 0.9)
        if self.names_pods != (pods <= limit) or self._drivers != self.devices.drivers:
            return True
        return self.shown != _shown(self._cluster)

    @property
    def resources(self) -> list[str]:
        """The resources, and after them the devices of DRA drivers."""
        return [*self.shown.values(), *map(devices_resource, self._drivers)]

    def snapshot(self) -> Json:
        """All nodes, as of the last refresh."""
        return {**self._columns(sorted(self._known)), "labels": list(self._labels), "gone": []}

    def refresh(self) -> Iterator[Json | None]:
        """Brings the columns up to date. Yields None between slices of work, and in the end the
        changes, if there are any."""
        table = self._cluster.nodes
        labels_before = len(self._labels)
        changed, gone = yield from self._describe()
        entries = _Entries.of(self._cluster)
        amounts = self._amounts(entries)
        changed.update(self._changed_rows(self._sent, amounts))
        self._sent = amounts
        gpus = _gpu_cells(self._cluster, entries, table.size)
        if gpus is not None:
            changed.update(self._changed_rows(self._gpus, gpus))
        self._gpus = gpus
        if self.names_pods:
            changed.update(self._list_pods())
        changed &= self._known.keys()
        if changed or gone:
            more = list(self._labels)[labels_before:]
            yield {**self._columns(sorted(changed)), "labels": more, "gone": gone}

    def _columns(self, rows: list[int]) -> Json:
        at = np.array(rows, dtype=np.intp)
        known = [self._known[row] for row in rows]
        count = len(self.resources)
        found: Json = {
            "id": rows,
            "name": [each[0] for each in known],
            "flags": [each[1] for each in known],
            "taints": [each[2] for each in known],
            "labelled": [each[3] for each in known],
        }
        for index, name in enumerate(AMOUNTS):
            columns = self._sent[index * count : (index + 1) * count]
            found[name] = [column[at].tolist() for column in columns] if count else []
        if self._gpus is not None:
            cells = self._gpus[:, at].transpose(1, 2, 0).tolist()
            found["gpus"] = [_without_absent(each) for each in cells]
        if self.names_pods:
            found["pods"] = [self._pods.get(row, []) for row in rows]
        return found

    # Names, flags, labels

    def _describe(self) -> Generator[None, None, tuple[set[int], list[int]]]:
        """Reads what is written about the nodes that changed. Returns their rows, and those that are
        gone."""
        table, log = self._cluster.nodes, self._cluster.epoch.nodes
        rows = log.since(self._nodes_read) if self._nodes_read is not None else None
        self._nodes_read = log.end
        # A row can be opened by a pod, before there is a node of that name.
        opened = {row for _, row in table.names()}
        gone = [row for row in self._known if row not in opened]
        changed = opened if rows is None else opened & set(np.unique(rows).tolist())
        changed = changed | (opened - self._known.keys())
        for row in gone:
            del self._known[row]
            self._pods.pop(row, None)
        for number, row in enumerate(sorted(changed), 1):
            self._known[row] = self._description(row)
            if number % _SLICE == 0:
                yield None
        return changed, gone

    def _description(self, row: int) -> tuple[str, int, str, list[int]]:
        table = self._cluster.nodes
        info = table.info.get(row)
        if info is None:
            return table.name(row), NO_OBJECT, "", []
        flags = CORDONED if info.unschedulable else 0
        shown = []
        for taint in info.taints:
            if taint.key in _NOT_READY:
                flags |= NOT_READY
            elif taint.key == names.TAINT_UNSCHEDULABLE:
                flags |= CORDONED
            elif taint.effect != names.PREFER_NO_SCHEDULE:
                flags |= TAINTED
            shown.append(taint_text(taint))
        labels = []
        for key, value in info.labels.items():
            if key != names.HOSTNAME_LABEL:
                text = f"{key}={value}"
                code = self._labels.get(text)
                if code is None:
                    if len(self._labels) >= _MAX_LABELS:
                        continue
                    code = self._labels[text] = len(self._labels)
                labels.append(code)
        return info.name, flags, ", ".join(shown), labels

    # Amounts

    def _amounts(self, entries: _Entries) -> Matrix:
        """[amount and resource, row]"""
        table, size = self._cluster.nodes, self._cluster.nodes.size
        slots = list(self.shown)
        allocatable = table.allocatable[slots, :size]
        kept = table.held[slots, :size]
        requested = table.claimed[slots, :size] - kept
        used = np.zeros_like(kept)
        held = np.zeros_like(kept)
        reservations = self._cluster.ledger.reservations
        every = entries.holds + entries.others
        if every:
            at = np.array([entry.index for entry in every], dtype=np.intp)
            rows = np.array([entry.row for entry in every], dtype=np.intp)
            holds = slice(0, len(entries.holds))
            reserved, left = reservations.amounts, reservations.left
            for index, slot in enumerate(slots):
                if slot >= len(reserved):
                    continue
                np.add.at(held[index], rows[holds], left[slot, at[holds]])
                # A reservation with one pod slot may have many owners, so slots do not count them.
                if slot != PODS:
                    np.add.at(used[index], rows, reserved[slot, at] - left[slot, at])
        amounts = np.stack((allocatable, requested, used, kept - held, held))
        self._count_devices(amounts, entries)
        amounts = np.concatenate((amounts, self._claimed_devices(size, entries)), axis=1)
        return amounts.reshape(len(AMOUNTS) * len(self.resources), size)

    def _claimed_devices(self, size: int, entries: _Entries) -> Matrix:
        """The devices of DRA drivers, [amount, driver, row]. Those that owners of a reservation use
        count as requested."""
        counted = self.devices.by_driver(size, {each.reservation.uid for each in entries.holds})
        found = np.zeros((len(AMOUNTS), len(self._drivers), size), dtype=np.int64)
        for index, driver in enumerate(self._drivers):
            if (of := counted.get(driver)) is not None:
                none = np.zeros(size, dtype=np.int64)
                found[:, index] = np.stack((of.published, of.in_use, none, of.reserved, of.held))
        return found

    def _count_devices(self, amounts: Matrix, entries: _Entries) -> None:
        """Replaces the amounts, [amount, resource, row], of devices where there are Device objects."""
        size = amounts.shape[2]
        rows = slice(0, size)
        for kind, table in self._cluster.managers.devices.tables.items():
            there = table.known[rows].any(axis=1)
            reserved = left_on(rows, table, entries.others)
            held = left_on(rows, table, entries.holds)
            for index, name in enumerate(self.shown.values()):
                if TYPE_OF.get(name) != kind:
                    continue
                at = there & (amounts[0, index] > 0)
                of = device_amounts(table, name, rows, reserved, held)
                used = np.minimum(amounts[2, index], of.requested)
                counted = np.stack((of.total, of.requested, used, of.reserved, of.held))
                amounts[:, index, at] = counted[:, at]

    @staticmethod
    def _changed_rows(before: Matrix | None, after: Matrix) -> list[int]:
        if before is None or before.shape[0] != after.shape[0] or before.shape[2:] != after.shape[2:]:
            return list(range(after.shape[1]))
        size = min(before.shape[1], after.shape[1])
        differs = before[:, :size] != after[:, :size]
        axes = tuple(axis for axis in range(differs.ndim) if axis != 1)
        return [*np.flatnonzero(differs.any(axis=axes)).tolist(), *range(size, after.shape[1])]

    # Pods

    def _list_pods(self) -> list[int]:
        """Lists the pods of the rows whose claims changed; returns the rows."""
        log, ledger = self._cluster.epoch.usage, self._cluster.ledger
        rows = log.since(self._usage_read) if self._usage_read is not None else None
        self._usage_read = log.end
        changed = list(self._known) if rows is None else np.unique(rows).tolist()
        slots = list(self.shown)
        for row in changed:
            pods = ledger.pods.get(row, {}).values()
            self._pods[row] = [
                [
                    f"{pod.namespace}/{pod.name}",
                    [amounts.get(slot, 0) for slot in slots],
                    pod.reservation_uid,
                ]
                for pod in pods
                for amounts in (dict(pod.cls.usage),)
            ]
        return changed


def taint_text(taint: Taint) -> str:
    """As kubectl writes it: `dedicated=ml:NoSchedule`, `dedicated:NoSchedule`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _shown(cluster: Cluster) -> dict[int, str]:
    """The resources that nodes have or pods request, by slot: cpu, memory and pods first. Parts of GPUs
    with Device objects are left out: a GPU that is partly taken counts as taken, and its cell shows the
    part."""
    table = cluster.nodes
    hidden = {*GPU_PARTS}
    if GPU not in cluster.managers.devices.tables:
        hidden.discard(names.GPU_PERCENT)
    found = {CPU: "cpu", MEMORY: "memory", PODS: "pods"}
    for slot, name in table.slots.resources():
        if slot in found or slot >= len(table.allocatable) or name in hidden:
            continue
        asked = table.claimed[slot, : table.size].any()
        if asked or (not name.startswith(_SELDOM) and table.allocatable[slot, : table.size].any()):
            found[slot] = name
    return found


class _Entries(NamedTuple):
    """The reservations that claim capacity of nodes."""

    holds: list[ReservationEntry]
    """Preemption and starvation holds."""
    others: list[ReservationEntry]

    @classmethod
    def of(cls, cluster: Cluster) -> _Entries:
        found = cls([], [])
        for entry in cluster.ledger.reservations:
            (found.holds if is_hold(entry.reservation) else found.others).append(entry)
        return found


def _gpu_cells(cluster: Cluster, entries: _Entries, size: int) -> Matrix | None:
    """The GPUs of nodes with Device objects, [used, reserved and held percent, state; row, place]. The
    state is 1 for a healthy device, 0 for an unhealthy one, -1 for none."""
    table: TypeTable | None = cluster.managers.devices.tables.get(GPU)
    if table is None:
        return None
    total, free = table.total[RATIO, :size], table.free[RATIO, :size]
    rows = slice(0, size)
    reserved, held = (left_on(rows, table, each)[RATIO] for each in (entries.others, entries.holds))
    known = table.known[:size]
    used = np.maximum(total - free - reserved - held, 0)
    state = np.where(known, np.where(total > 0, 1, 0), -1)
    return np.stack((used, reserved, held, state))


def _without_absent(cells: list[list[int]]) -> list[list[int]]:
    return [cell for cell in cells if cell[-1] >= 0]
