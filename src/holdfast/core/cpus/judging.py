"""Which nodes have the CPUs and the NUMA nodes a pod wants, over many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.core.cpus.counts import Bools, Counts, Ints
from holdfast.core.cpus.topology import BEST_EFFORT, FULL_CORES, SINGLE, SPREAD
from holdfast.core.cpus.wants import NOT_WHOLE, POLICIES, Want
from holdfast.core.nodes import NodeTable
from holdfast.core.slots import CPU

if TYPE_CHECKING:
    from holdfast.core.cpus.cpus import Cpus

POLICY_CONFLICT = "node(s) NUMA Topology policy not match"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
NOT_ALIGNED = "node(s) requested cpus not multiple cpus per core"
BIND_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
TOO_FEW_CPUS = "not enough cpus available to satisfy request"
TOO_FEW_AMPLIFIED = "Insufficient amplified cpu"
NO_ZONES = "node(s) missing NUMA resources"
UNSATISFIED = "Unsatisfied NUMA {}"
UNALIGNED = "Unaligned NUMA Hint cause {}"
INSUFFICIENT = "Insufficient NUMA {}"

_FULL, _SPREAD = 1, 2
_BIND_CODES = {"FullPCPUsOnly": _FULL, "SpreadByPCPUs": _SPREAD}
_POLICY_CODES = {policy: code for code, policy in enumerate(POLICIES)}
_BEST_EFFORT, _SINGLE = _POLICY_CODES[BEST_EFFORT], _POLICY_CODES[SINGLE]

Rows = NDArray[np.intp]
ByNuma = Callable[[Rows, Rows | None, int], list[tuple[int, Ints]]]
"""From rows, holds and the number of NUMA nodes: of each type of device how many are wanted, and how
many there are on each NUMA node."""


class Lack(NamedTuple):
    text: str
    rows: Bools
    hopeless: bool
    """Whether nothing anybody gives up could help."""


class Judging:
    def __init__(self, cpus: Cpus, nodes: NodeTable) -> None:
        self._cpus = cpus
        self._nodes = nodes

    def matters(self, want: Want) -> bool:
        """Whether there is anything to check for such pods at all."""
        if want.bound or want.numa:
            return True
        labels = self._nodes.labels
        keys = (names.NODE_CPU_BIND_POLICY, names.NODE_NUMA_TOPOLOGY_POLICY)
        return self._cpus.demanding or any(labels.column(key).values for key in keys)

    def lacks(
        self, want: Want, rows: Rows, holds: Rows | None, devices: ByNuma | None = None
    ) -> list[Lack]:
        """Why rows will not do; each row is named at most once, by what comes first. `devices` tells
        which NUMA nodes have the devices the pods want as well."""
        cpus, found, open_ = self._cpus, list[Lack](), np.ones(len(rows), dtype=np.bool_)

        def out(text: str, where: Bools, hopeless: bool) -> None:
            nonlocal open_
            where = where & open_
            if where.any():
                found.append(Lack(text, where, hopeless))
                open_ = open_ & ~where

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
        if cpus.active:
            out(TOO_FEW_AMPLIFIED, self._amplified(want, rows, bound), False)
        out(NO_TOPOLOGY, bound & ~valid, True)
        if not cpus.active:
            out(NO_ZONES, policy > 0, True)
            return found
        required = {FULL_CORES: _FULL, SPREAD: _SPREAD}.get(want.required, 0)
        if required:
            out(BIND_CONFLICT, bound & (node_bind > 0) & (node_bind != required), True)
        manner = np.full(len(rows), required) if required else node_bind
        out(NOT_ALIGNED, bound & (manner == _FULL) & (want.cpus % cpus.per_core[rows] != 0), True)
        counts, at = (cpus.counts, rows) if holds is None else (cpus.drawn, self._reach(holds))
        usable = np.where(
            (manner == _FULL)[:, None],
            counts.whole[at],
            np.where((manner == _SPREAD)[:, None], counts.cores[at], counts.free[at]),
        )
        out(TOO_FEW_CPUS, bound & (usable.sum(axis=-1) < want.cpus) & (policy == 0), False)
        if policy.any():
            also = devices(rows, holds, counts.width) if devices is not None else []
            self._by_numa(want, policy, bound, usable, counts, at, also, out)
        return found

    def _reach(self, holds: Rows) -> Rows:
        counts = self._cpus.drawn
        counts.fit(len(self._cpus.resources), int(holds.max()) + 1, self._cpus.counts.width)
        return holds

    def _by_numa(
        self,
        want: Want,
        policy: NDArray[np.int64],
        bound: Bools,
        usable: Ints,
        counts: Counts,
        at: Rows,
        devices: list[tuple[int, Ints]],
        out: Any,
    ) -> None:
        listed = counts.listed[at]
        out(NO_ZONES, (policy > 0) & ~listed.any(axis=-1), True)
        slots, resources = self._nodes.slots, self._cpus.resources
        asked = {slots.name(slot): value for slot, value in want.requests}
        each = listed.copy()
        """NUMA nodes that have enough of everything."""
        empty = np.zeros_like(listed)
        short: dict[str, Bools] = {}
        rooms: dict[str, Ints] = {}
        counted: dict[str, Bools] = {}
        for name, value in asked.items():
            if name not in resources:
                continue
            place = resources.index(name)
            offers, room = counts.offers[place, at], counts.room[place, at]
            if name == names.CPU:
                room = np.where(bound[:, None], np.minimum(room, 1000 * usable), room)
            rooms[name], counted[name] = room, offers
            each &= ~offers | (room >= value)
            empty |= offers & (room <= 0)
        for wanted, there in devices:
            each &= there >= wanted
        shy = bool(want.exclusive)
        alone = each & ~counts.several[at] if shy else each
        together = listed & ~empty & ~counts.single[at] if shy else listed & ~empty
        enough = together.sum(axis=-1) > 1
        enough_at_all = each.any(axis=-1)
        spread = (listed & ~empty).sum(axis=-1) > 1
        for name, value in asked.items():
            if name in rooms:
                has = counted[name].any(axis=-1)
                enough &= ~has | ((rooms[name] * together).sum(axis=-1) >= value)
                spread &= ~has | ((rooms[name] * (listed & ~empty)).sum(axis=-1) >= value)
                total = (np.maximum(rooms[name], 0) * listed).sum(axis=-1)
                short[name] = has & (total < value)
        for wanted, there in devices:
            enough &= (there * together).sum(axis=-1) >= wanted
        for name, lacking in short.items():
            out(INSUFFICIENT.format(name), (policy == _BEST_EFFORT) & lacking, False)
        strict = policy > _BEST_EFFORT
        passes = alone.any(axis=-1) | (enough & (policy != _SINGLE))
        nothing = strict & ~passes & ~(enough_at_all | spread)
        for name in sorted(rooms):
            out(UNSATISFIED.format(name), nothing & short[name], False)
        for name in sorted(rooms):
            out(UNSATISFIED.format(name), nothing & counted[name].any(axis=-1), False)
        self._unaligned(strict & ~passes, each, rooms, out)

    def _unaligned(self, where: Bools, each: Bools, rooms: dict[str, Ints], out: Any) -> None:
        """There would be enough, but not the way it has to be."""
        texts: dict[str, Bools] = {}
        for i in np.flatnonzero(where).tolist():
            masks = [f"{1 << numa:02b}" for numa in np.flatnonzero(each[i]).tolist()]
            if not masks:
                masks = [f"{(1 << each.shape[1]) - 1:02b}"]
            among = " ".join(masks)
            said = ",".join(f"{name} prefer [{among}] among [{among}]" for name in sorted(rooms))
            texts.setdefault(UNALIGNED.format(said), np.zeros_like(where))[i] = True
        for text, rows in texts.items():
            out(text, rows, False)

    def _amplified(self, want: Want, rows: Rows, bound: Bools) -> Bools:
        """Where a node claims more CPUs than it has, those that are somebody's own count for more."""
        ratio, nodes = self._cpus.ratio[rows], self._nodes
        if not want.milli or not (ratio > 1).any():
            return np.zeros(len(rows), dtype=np.bool_)
        own = 1000 * self._cpus.own[rows]
        claimed = nodes.claimed[CPU, rows]
        more = np.where(claimed >= own, np.ceil(own * ratio).astype(np.int64) - own, 0)
        wanted = np.where(bound, np.ceil(want.milli * ratio).astype(np.int64), want.milli)
        lacking: Bools = (ratio > 1) & (wanted > nodes.allocatable[CPU, rows] - claimed - more)
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
        column = self._nodes.labels.column(key)
        if not column.values:
            return np.zeros(len(rows), dtype=np.int64)
        table = np.array([*(meaning.get(value, 0) for value in column.values), 0], dtype=np.int64)
        codes = column.codes[rows]
        return table[np.where(codes < 0, len(column.values), codes)]
