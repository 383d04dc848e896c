"""Which nodes have the CPUs and the NUMA nodes a pod wants, over many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.core.cpus.aligning import NO_ZONES, Devices, Zones, judge
from holdfast.core.cpus.counts import Bools, Ints
from holdfast.core.cpus.topology import FULL_CORES, SPREAD
from holdfast.core.cpus.wants import NOT_WHOLE, POLICIES, Want
from holdfast.core.nodes import NodeTable
from holdfast.core.slots import CPU, MOST

if TYPE_CHECKING:
    from holdfast.core.cpus.cpus import Cpus

POLICY_CONFLICT = "node(s) NUMA Topology policy not match"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
NOT_ALIGNED = "node(s) requested cpus not multiple cpus per core"
BIND_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
TOO_FEW_CPUS = "not enough cpus available to satisfy request"
ODD_RATIO = "node(s) invalid CPU amplification ratio"
TOO_FEW_AMPLIFIED = "Insufficient amplified cpu"

_FULL, _SPREAD = 1, 2
_BIND_CODES = {"FullPCPUsOnly": _FULL, "SpreadByPCPUs": _SPREAD}
_POLICY_CODES = {policy: code for code, policy in enumerate(POLICIES)}

Rows = NDArray[np.intp]
ByNuma = Callable[[Rows, Rows | None, int], list[tuple[str, int, Ints]]]
"""From rows, holds and the number of NUMA nodes: of each type of device how many are wanted, and how
many there are on each NUMA node."""


Look = Callable[[str], Any]
"""The counts of this name."""


class Lack(NamedTuple):
    text: str
    rows: Bools
    hopeless: bool
    """Whether nothing anybody gives up could help."""


class Judging:
    def __init__(self, cpus: Cpus, nodes: NodeTable) -> None:
        self._cpus = cpus
        self._nodes = nodes
        self._columns = {
            key: nodes.labels.column(key)
            for key in (names.NODE_CPU_BIND_POLICY, names.NODE_NUMA_TOPOLOGY_POLICY)
        }
        """Kept, since a column that nobody keeps is made anew from all nodes."""

    def matters(self, want: Want) -> bool:
        """Whether there is anything to check for such pods at all."""
        if want.bound or want.numa:
            return True
        return self._cpus.demanding or any(map(self._nodes.labels.has, self._columns))

    def lacks(
        self,
        want: Want,
        rows: Rows,
        holds: Rows | None,
        claimed: Ints,
        devices: ByNuma | None = None,
        explain: bool = True,
        ahead: bool = False,
    ) -> list[Lack]:
        """Why rows will not do, by what comes first. `claimed` is what of cpu is spoken for there;
        `devices` tells which NUMA nodes have the devices the pods want as well. Unless it is to be
        explained, not everything has a text. `ahead`: the pods can wait for others to end."""
        cpus, found, open_ = self._cpus, list[Lack](), np.ones(len(rows), dtype=np.bool_)

        def all_out(texts: dict[str, Bools], hopeless: bool) -> None:
            nonlocal open_
            closed = np.zeros_like(open_)
            for text, rows_out in texts.items():
                where = rows_out & open_
                if where.any():
                    found.append(Lack(text, where, hopeless))
                    closed |= where
            open_ = open_ & ~closed

        def out(text: str, where: Bools, hopeless: bool) -> None:
            all_out({text: where}, hopeless)

        valid = cpus.valid[rows] if cpus.active else np.zeros(len(rows), dtype=np.bool_)
        node_policy = self._numa_codes(rows)
        own_policy = _POLICY_CODES[want.numa]
        if own_policy:
            out(POLICY_CONFLICT, (node_policy != 0) & (node_policy != own_policy), True)
        policy = np.full(len(rows), own_policy) if own_policy else node_policy
        node_bind = self._bind_codes(rows)
        if want.milli % 1000:
            out(NOT_WHOLE, node_bind > 0, True)
        bound = (node_bind > 0) & (want.milli > 0) | want.bound
        if cpus.active and want.milli:
            out(ODD_RATIO, cpus.odd_ratio[rows], True)
        if cpus.active and want.milli and not ahead:
            out(TOO_FEW_AMPLIFIED, self._amplified(want, rows, holds, claimed, bound), False)
        out(NO_TOPOLOGY, bound & ~valid, True)
        if not cpus.active:
            out(NO_ZONES, policy > 0, True)
            return found
        required = {FULL_CORES: _FULL, SPREAD: _SPREAD}.get(want.required, 0)
        if required:
            out(BIND_CONFLICT, bound & (node_bind > 0) & (node_bind != required), True)
        manner = np.full(len(rows), required) if required else node_bind
        out(NOT_ALIGNED, bound & (manner == _FULL) & (want.cpus % cpus.per_core[rows] != 0), True)
        look = self._looking(rows, holds, ahead)
        usable = np.where(
            (manner == _FULL)[:, None],
            look("whole"),
            np.where((manner == _SPREAD)[:, None], look("cores"), look("free")),
        )
        out(TOO_FEW_CPUS, bound & (usable.sum(axis=-1) < want.cpus) & (policy == 0), False)
        if policy.any():
            also = devices(rows, holds, cpus.counts.width) if devices is not None else []
            zones = self._zones(want, bound, usable, look, [Devices(*each) for each in also])
            judge(zones, policy, want.exclusive, explain, all_out)
        return found

    def _looking(self, rows: Rows, holds: Rows | None, ahead: bool) -> Look:
        """Counts of rows, as owners see them where reservations that have something may be drawn on; or
        as they will be, for those who can wait."""
        cpus = self._cpus
        if ahead:
            later = cpus.counts_ahead()
            return lambda name: getattr(later, name)[..., rows, :]
        if holds is None:
            return lambda name: getattr(cpus.counts, name)[..., rows, :]
        cpus.reach(int(holds.max()))
        has = (cpus.held[holds] >= 0)[:, None]

        def look(name: str) -> Any:
            ours, theirs = getattr(cpus.counts, name), getattr(cpus.drawn, name)
            return np.where(has, theirs[..., holds, :], ours[..., rows, :])

        return look

    def _zones(
        self, want: Want, bound: Bools, usable: Ints, look: Look, devices: list[Devices]
    ) -> Zones:
        slots, resources = self._nodes.slots, self._cpus.resources
        listed, all_offers, all_rooms = look("listed"), look("offers"), look("room")
        asked, rooms, counted = dict[str, int](), dict[str, Ints](), dict[str, Bools]()
        for slot, value in want.requests:
            name = slots.name(slot)
            if name not in resources:
                continue
            place = resources.index(name)
            offers, room = all_offers[place], all_rooms[place]
            if name == names.CPU:
                room = np.where(bound[:, None], np.minimum(room, 1000 * usable), room)
            asked[name], rooms[name] = value, np.where(offers, room, 0)
            counted[name] = offers.any(axis=-1)
        return Zones(listed, look("single"), look("several"), asked, rooms, counted, devices)

    def _amplified(
        self, want: Want, rows: Rows, holds: Rows | None, claimed: Ints, bound: Bools
    ) -> Bools:
        """Where a node claims more CPUs than it has, those that are somebody's own count for more."""
        ratio = self._cpus.ratio[rows]
        if not (ratio > 1).any():
            return np.zeros(len(rows), dtype=np.bool_)
        own = 1000 * self._cpus.own[rows]
        if holds is not None:
            self._cpus.reach(int(holds.max()))
            own = own - 1000 * np.maximum(self._cpus.held[holds], 0)
        more = np.where(claimed >= own, np.ceil(own * ratio).astype(np.int64) - own, 0)
        amplified = np.minimum(np.ceil(want.milli * ratio), float(MOST)).astype(np.int64)
        wanted = np.where(bound, amplified, want.milli)
        room = self._nodes.allocatable[CPU, rows] - claimed - more
        lacking: Bools = (ratio > 1) & (wanted > room)
        return lacking

    def _bind_codes(self, rows: Rows) -> NDArray[np.int64]:
        codes = self._codes(names.NODE_CPU_BIND_POLICY, _BIND_CODES, rows)
        if self._cpus.active:
            codes = np.where(self._cpus.full_cores_only[rows], _FULL, codes)
        return codes

    def _numa_codes(self, rows: Rows) -> NDArray[np.int64]:
        codes = self._codes(names.NODE_NUMA_TOPOLOGY_POLICY, _POLICY_CODES, rows)
        if self._cpus.active:
            kubelets = self._cpus.kubelet_policy[rows]
            codes = np.where(codes == 0, kubelets, codes)
        return codes

    def _codes(self, key: str, meaning: dict[str, int], rows: Rows) -> NDArray[np.int64]:
        column = self._columns[key]
        if not column.values:
            return np.zeros(len(rows), dtype=np.int64)
        table = np.array([*(meaning.get(value, 0) for value in column.values), 0], dtype=np.int64)
        codes = column.codes[rows]
        return table[np.where(codes < 0, len(column.values), codes)]
