"""Selection of devices on one node by topology.

Devices of one pod are on one PCIe switch if one has enough, else on one NUMA node if one has enough. Of
several such switches (or NUMA nodes) one that is already in use comes first, so that others stay
unused. Devices of the reservation that the pod is allocated from come before all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from holdfast.api.selectors import Selector
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.devices.allocation import Allocation, Function
from holdfast.scheduler.managers.devices.device_table import Bools, Ints, Rows, TypeTable
from holdfast.scheduler.managers.devices.requests import NUMA, SWITCH, Share

Ranks = Sequence[float]
"""The rank of each place of a row; higher is better."""

Ranker = Callable[[TypeTable, int, Share, Ints], Ranks]
"""Ranks places by the table, the row, the request, and what is available there, [resource, place]."""


def most_free(table: TypeTable, row: int, share: Share, available: Ints) -> Ranks:
    """Prefers the least allocated device."""
    return _shares(table, row, available)


def least_free(table: TypeTable, row: int, share: Share, available: Ints) -> Ranks:
    """Prefers the most allocated device."""
    return [-share for share in _shares(table, row, available)]


def _shares(table: TypeTable, row: int, available: Ints) -> list[float]:
    total = table.total[:, row]
    shares: list[float] = (available / np.maximum(total, 1)).sum(axis=0).tolist()
    return shares


def nearest(
    table: TypeTable,
    row: int,
    ok: Bools,
    count: int,
    shared: bool,
    ranks: Ranks,
    scope: str = "",
    near: Sequence[int] = (),
) -> list[int] | None:
    """Selects `count` of the places that are ok; None if there are too few, or too few within the
    scope. `near` are PCIe switches to prefer, in order."""
    places: list[int] = np.flatnonzero(ok).tolist()
    if len(places) < count:
        return None
    minors = table.minors[row]
    switch: list[int] = table.switch[row].tolist()
    if near:
        return _beside(places, count, near, switch, ranks, minors)
    if not table.mapped[row] or (shared and count > 1):
        places.sort(key=lambda at: (-ranks[at], minors[at]))
        return places[:count]
    numa: list[int] = table.numa[row].tolist()
    used: list[bool] = (table.free[:, row] != table.total[:, row]).any(axis=0).tolist()
    used_switches = {switch[at] for at, yes in enumerate(used) if yes}
    used_numa = {numa[at] for at, yes in enumerate(used) if yes}
    levels: list[tuple[str, Callable[[int], Any]]] = [
        (SWITCH, lambda at: (numa[at], switch[at])),
        (NUMA, lambda at: (numa[at], None)),
        ("", lambda at: None),
    ]
    for level, key in levels:
        groups: dict[Any, list[int]] = {}
        for at in places:
            groups.setdefault(key(at), []).append(at)
        best: tuple[Any, list[int]] | None = None
        for group, there in groups.items():
            if len(there) < count:
                continue
            begun = 0
            if group is not None:
                begun = (group[0] in used_numa) + (group[1] in used_switches)
            order = sorted(there, key=lambda at: (-ranks[at] if shared else 0, minors[at]))
            quality = (begun, ranks[order[0]] if shared else 0, -minors[order[0]])
            if best is None or quality > best[0]:
                best = quality, order[:count]
        if best is not None:
            return best[1]
        if level == scope:
            return None
    return None


def _beside(
    places: list[int],
    count: int,
    near: Sequence[int],
    switch: list[int],
    ranks: Ranks,
    minors: list[int],
) -> list[int]:
    """Selects one place on each of the switches in order, where there is one."""
    places.sort(key=lambda at: (-ranks[at], minors[at]))
    chosen: list[int] = []
    while len(chosen) < count:
        found = [
            next((at for at in places if switch[at] == each and at not in chosen), None)
            for each in near
        ]
        beside = [at for at in found if at is not None]
        if not beside:
            break
        chosen += beside[: count - len(chosen)]
    chosen += [at for at in places if at not in chosen][: count - len(chosen)]
    return chosen


# Virtual functions of network cards: a pod that selects them gets one of each of its cards. Which are
# free is computed from the Device object and the allocations when asked for, which is rare.


class DeviceHolders(Protocol):
    """Which pods have which devices; the device manager."""

    there: dict[int, dict[str, PodRecord]]
    """Pods and reserve pods with an allocation, by row and uid."""

    def has(self, uid: str) -> Allocation:
        """The allocation of a pod or reservation."""

    def hold_of(self, uid: str) -> int | None:
        """The entry index of a reserve pod with devices."""


def spare_function(
    devices: DeviceHolders,
    table: TypeTable,
    row: int,
    minor: int,
    entry: int | None,
    selector: Selector,
) -> Function | None:
    """The virtual function of a card that a pod would get; one reserved for it before others."""
    info = table.infos.get(row, {}).get(minor)
    groups = info.vf_groups if info is not None else ()
    taken: set[Function] = set()
    reserved: set[Function] = set()
    for uid, pod in devices.there.get(row, {}).items():
        own = pod.reservation is not None and entry is not None and devices.hold_of(uid) == entry
        for part in devices.has(uid).get(table.kind, ()):
            if part.minor == minor:
                (reserved if own else taken).update(part.functions)
    left = [
        (function not in reserved, function)
        for group in groups
        if selector.matches(group.labels)
        for function in (Function(each.bus_id, each.minor) for each in group.vfs)
        if function not in taken
    ]
    return min(left)[1] if left else None


def cards_with_functions(
    devices: DeviceHolders, table: TypeTable, rows: Rows, entries: Rows | None, selector: Selector
) -> Bools:
    """The cards, [(row,) place], with a free virtual function."""
    many = np.atleast_1d(rows)
    held = [None] * len(many) if entries is None else np.atleast_1d(entries).tolist()
    found = np.zeros((len(many), table.width), dtype=np.bool_)
    for at, (row, entry) in enumerate(zip(many.tolist(), held, strict=True)):
        for minor, info in table.infos.get(row, {}).items():
            if info.vf_groups:
                spare = spare_function(devices, table, row, minor, entry, selector)
                found[at, table.place(row, minor)] = spare is not None
    return found if np.ndim(rows) else found[0]


def has_functions(table: TypeTable, rows: Rows) -> Bools:
    """The rows with a card that has virtual functions."""
    with_some = [row for row, infos in table.infos.items() if any(i.vf_groups for i in infos.values())]
    found: Bools = np.isin(rows, with_some)
    return found
