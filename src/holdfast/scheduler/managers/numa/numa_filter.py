"""The NUMA filter: CPU bind policies, exclusive CPUs and the NUMA policy merge, over many rows at once.

A NUMA policy is satisfied by a set of NUMA nodes that together have all the pod requests, each of them
some of every resource. `SingleNUMANode` allows sets of one NUMA node, `Restricted` any such set;
`BestEffort` falls back to all NUMA nodes. Where sets exist but the policy allows none of them, the
reason lists the hints of each resource: `cpu prefer [01 10] among [01 10 11]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.slots import CPU, MOST
from holdfast.scheduler.managers.numa.allocation import Bools, Counts, Ints
from holdfast.scheduler.managers.numa.node_topology import (
    BEST_EFFORT,
    FULL_CORES,
    NOT_WHOLE,
    POLICIES,
    SINGLE,
    SPREAD,
    Want,
)

POLICY_CONFLICT = "node(s) NUMA Topology policy not match"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
NOT_ALIGNED = "node(s) requested cpus not multiple cpus per core"
BIND_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
TOO_FEW_CPUS = "not enough cpus available to satisfy request"
INVALID_RATIO = "node(s) invalid CPU amplification ratio"
TOO_FEW_AMPLIFIED = "Insufficient amplified cpu"
NO_ZONES = "node(s) missing NUMA resources"
UNSATISFIED = "Unsatisfied NUMA {}"
UNALIGNED = "Unaligned NUMA Hint cause {}"
INSUFFICIENT = "Insufficient NUMA {}"

_FULL, _SPREAD = 1, 2
_BIND_CODES = {"FullPCPUsOnly": _FULL, "SpreadByPCPUs": _SPREAD}
_POLICY_CODES = {policy: code for code, policy in enumerate(POLICIES)}
_BEST_EFFORT, _SINGLE = POLICIES.index(BEST_EFFORT), POLICIES.index(SINGLE)
_SETS_SPELT_OUT = 8
"""With more NUMA nodes than this, hints list only sets of one, of two, and of all NUMA nodes."""
_GROUP = 2
"""Masks in messages are padded to a multiple of this many bits."""

Rows = NDArray[np.intp]
ByNuma = Callable[[Rows, Rows | None, int], list[tuple[str, int, Ints]]]
"""From rows, entries and the number of NUMA nodes: for each type of device, how many are requested and
how many are free on each NUMA node."""

Look = Callable[[str], Any]
"""Returns the array of `Counts` of this name, at the rows in question."""

Out = Callable[[dict[str, Bools], bool], None]
"""Marks rows infeasible, by reason; and whether they are so whatever is preempted."""


class NumaLack(NamedTuple):
    """A reason and the rows it applies to."""

    text: str
    rows: Bools
    unresolvable: bool
    """Whether preemption cannot help."""


class CPUColumns(Protocol):
    """What the filter reads of the CPU manager: arrays by row, and by entry index. `CPUManager`
    documents them."""

    active: bool
    resources: list[str]
    counts: Counts
    owner_counts: Counts
    held: Ints
    valid: Bools
    per_core: Ints
    exclusive_cpus: Ints
    ratio: NDArray[np.float64]
    invalid_ratio: Bools
    full_cores_only: Bools
    kubelet_policy: Ints

    @property
    def has_node_policies(self) -> bool: ...
    def grow_entries(self, hold: int) -> None: ...
    def later_counts(self) -> Counts: ...


class NumaFilter:
    """Filters rows by CPU bind policy, NUMA policy, free CPUs and amounts of NUMA nodes."""

    def __init__(self, cpus: CPUColumns, nodes: NodeTable) -> None:
        self._cpus = cpus
        self._nodes = nodes
        self._columns = {
            key: nodes.labels.column(key)
            for key in (names.NODE_CPU_BIND_POLICY, names.NODE_NUMA_TOPOLOGY_POLICY)
        }
        """Referenced here, since a column without a reference is dropped and has to be built again."""

    def matters(self, want: Want) -> bool:
        """Whether the filter can reject any row for such pods."""
        if want.bound or want.numa:
            return True
        return self._cpus.has_node_policies or any(map(self._nodes.labels.has, self._columns))

    def lacks(
        self,
        want: Want,
        rows: Rows,
        entries: Rows | None,
        claimed: Ints,
        devices: ByNuma | None = None,
        explain: bool = True,
        later: bool = False,
    ) -> list[NumaLack]:
        """Why rows are infeasible; a row is listed under its first reason only. `claimed` is the cpu
        claimed on each row, `devices` counts the free devices by NUMA node. Without `explain` some
        reasons have no text. `later`: evaluates rows as if all pods that can end had ended."""
        cpus, found, open_ = self._cpus, list[NumaLack](), np.ones(len(rows), dtype=np.bool_)

        def all_out(texts: dict[str, Bools], unresolvable: bool) -> None:
            nonlocal open_
            closed = np.zeros_like(open_)
            for text, rows_out in texts.items():
                where = rows_out & open_
                if where.any():
                    found.append(NumaLack(text, where, unresolvable))
                    closed |= where
            open_ = open_ & ~closed

        def out(text: str, where: Bools, unresolvable: bool) -> None:
            all_out({text: where}, unresolvable)

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
            out(INVALID_RATIO, cpus.invalid_ratio[rows], True)
        if cpus.active and want.milli:
            short = self._amplified(want, rows, entries, claimed, bound, later)
            out(TOO_FEW_AMPLIFIED, short, later)
        out(NO_TOPOLOGY, bound & ~valid, True)
        if not cpus.active:
            out(NO_ZONES, policy > 0, True)
            return found
        required = {FULL_CORES: _FULL, SPREAD: _SPREAD}.get(want.required, 0)
        if required:
            out(BIND_CONFLICT, bound & (node_bind > 0) & (node_bind != required), True)
        manner = np.full(len(rows), required) if required else node_bind
        out(NOT_ALIGNED, bound & (manner == _FULL) & (want.cpus % cpus.per_core[rows] != 0), True)
        look = self._looking(rows, entries, later)
        usable = np.where(
            (manner == _FULL)[:, None],
            look("whole"),
            np.where((manner == _SPREAD)[:, None], look("cores"), look("free")),
        )
        out(TOO_FEW_CPUS, bound & (usable.sum(axis=-1) < want.cpus) & (policy == 0), False)
        if policy.any():
            also = devices(rows, entries, cpus.counts.width) if devices is not None else []
            zones = self._zones(want, bound, usable, look, [NumaDevices(*each) for each in also])
            check_policies(zones, policy, want.exclusive, explain, all_out)
        return found

    def _looking(self, rows: Rows, entries: Rows | None, later: bool) -> Look:
        """Counts of the rows: with `later`, once all pods that can end have ended; with `entries`, as
        owners of these reservations see them, where the CPU manager holds something for the
        reservation."""
        cpus = self._cpus
        if later:
            later_free = cpus.later_counts()
            return lambda name: getattr(later_free, name)[..., rows, :]
        if entries is None:
            return lambda name: getattr(cpus.counts, name)[..., rows, :]
        cpus.grow_entries(int(entries.max()))
        has = (cpus.held[entries] >= 0)[:, None]

        def look(name: str) -> Any:
            ours, theirs = getattr(cpus.counts, name), getattr(cpus.owner_counts, name)
            return np.where(has, theirs[..., entries, :], ours[..., rows, :])

        return look

    def _zones(
        self, want: Want, bound: Bools, usable: Ints, look: Look, devices: list[NumaDevices]
    ) -> Zones:
        """The requests of a pod and the NUMA nodes of rows, as far as they are counted by NUMA node."""
        slots, resources = self._nodes.slots, self._cpus.resources
        listed, all_offers, all_free = look("listed"), look("offers"), look("amounts")
        asked, free, counted = dict[str, int](), dict[str, Ints](), dict[str, Bools]()
        for slot, value in want.requests:
            name = slots.name(slot)
            if name not in resources:
                continue
            place = resources.index(name)
            offers, available = all_offers[place], all_free[place]
            if name == names.CPU:
                available = np.where(bound[:, None], np.minimum(available, 1000 * usable), available)
            asked[name], free[name] = value, np.where(offers, available, 0)
            counted[name] = offers.any(axis=-1)
        return Zones(listed, look("single"), look("several"), asked, free, counted, devices)

    def _amplified(
        self, want: Want, rows: Rows, entries: Rows | None, claimed: Ints, bound: Bools, empty: bool
    ) -> Bools:
        """Rows with too little amplified cpu; with `empty`, even if no CPU is in use. An exclusive CPU
        counts as `ratio` CPUs."""
        ratio = self._cpus.ratio[rows]
        if not (ratio > 1).any():
            return np.zeros(len(rows), dtype=np.bool_)
        available = self._nodes.allocatable[CPU, rows]
        own = 1000 * self._cpus.exclusive_cpus[rows]
        if entries is not None:
            self._cpus.grow_entries(int(entries.max()))
            own = own - 1000 * np.maximum(self._cpus.held[entries], 0)
        more = np.where(claimed >= own, np.ceil(own * ratio).astype(np.int64) - own, 0)
        amplified = np.minimum(np.ceil(want.milli * ratio), float(MOST)).astype(np.int64)
        wanted = np.where(bound, amplified, want.milli)
        if not empty:
            available = available - claimed - more
        lacking: Bools = (ratio > 1) & (wanted > available)
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


# NUMA policies


class NumaDevices(NamedTuple):
    """The devices of one type: how many the pod requests, and how many are free on each NUMA node."""

    type: str
    wanted: int
    there: Ints


class Zones(NamedTuple):
    """The NUMA nodes of rows, [row, NUMA node]."""

    listed: Bools
    single: Bools
    """NUMA nodes used by pods that are on one NUMA node only (see `Counts`)."""
    several: Bools
    """NUMA nodes used by pods that are on several."""
    asked: Mapping[str, int]
    """The pod's requests of resources that are counted by NUMA node."""
    free: Mapping[str, Ints]
    """What is free of them; 0 where a NUMA node does not have the resource."""
    counted: Mapping[str, Bools]
    """By resource, the rows where it is counted by NUMA node, [row]."""
    devices: list[NumaDevices]


def check_policies(
    zones: Zones, policy: NDArray[np.int64], exclusive: bool, explain: bool, out: Out
) -> None:
    """Marks the rows that cannot satisfy their NUMA policy. `exclusive` is the exclusive policy of the
    pod: pods on one NUMA node and pods on several do not share NUMA nodes."""
    listed = zones.listed
    out({NO_ZONES: (policy > 0) & ~listed.any(axis=-1)}, True)
    each, empty = listed.copy(), np.zeros_like(listed)
    for name, value in zones.asked.items():
        counted, available = zones.counted[name][:, None], zones.free[name]
        each &= ~counted | (available >= value)
        empty |= counted & (available <= 0)
    known = [devices for devices in zones.devices if devices.wanted]
    for devices in known:
        each &= _or_nowhere(devices, devices.there >= devices.wanted)
    one = each & ~zones.several if exclusive else each
    many = listed & ~empty & ~zones.single if exclusive else listed & ~empty
    suits = one.any(axis=-1) | (_enough(zones, known, many) & (policy != _SINGLE))
    strict = policy > _BEST_EFFORT
    if not explain:
        lacking = np.zeros(len(listed), dtype=np.bool_)
        for name in zones.asked:
            lacking |= _short(zones, name)
        out({"": (strict & ~suits) | ((policy == _BEST_EFFORT) & lacking)}, False)
        return
    short = {name: _short(zones, name) for name in sorted(zones.asked)}
    best_effort = policy == _BEST_EFFORT
    out({INSUFFICIENT.format(name): best_effort & lacks for name, lacks in short.items()}, False)
    nothing = strict & ~suits & ~(each.any(axis=-1) | _enough(zones, [], listed & ~empty))
    out(
        {UNSATISFIED.format(name): nothing & zones.counted[name] for name in sorted(zones.asked)}, False
    )
    unaligned = strict & ~suits
    single_numa_node, restricted = unaligned & (policy == _SINGLE), unaligned & (policy != _SINGLE)
    if single_numa_node.any():
        out(_unaligned(zones, known, single_numa_node, True, ","), False)
    if restricted.any():
        out(_unaligned(zones, known, restricted, False, " & "), False)


def _or_nowhere(devices: NumaDevices, enough: Bools) -> Bools:
    """`enough`, or True where the row as a whole has too few devices: that is the device filter's
    reason."""
    nowhere: Bools = (devices.there.sum(axis=-1) < devices.wanted)[:, None]
    return enough | nowhere


def _enough(zones: Zones, devices: list[NumaDevices], among: Bools) -> Bools:
    """The rows where two or more NUMA nodes of `among` together have what the pod requests."""
    enough: Bools = among.sum(axis=-1) > 1
    for name, value in zones.asked.items():
        available = (zones.free[name] * among).sum(axis=-1)
        enough = enough & (~zones.counted[name] | (available >= value))
    for each in devices:
        there = (each.there * among).sum(axis=-1) >= each.wanted
        enough = enough & _or_nowhere(each, there[:, None])[:, 0]
    return enough


def _short(zones: Zones, name: str) -> Bools:
    """The rows whose NUMA nodes together have too little of a resource."""
    total = (np.maximum(zones.free[name], 0) * zones.listed).sum(axis=-1)
    short: Bools = zones.counted[name] & (total < zones.asked[name])
    return short


def _unaligned(
    zones: Zones, devices: list[NumaDevices], where: Bools, fewest: bool, joint: str
) -> dict[str, Bools]:
    """Reasons of rows where sets of NUMA nodes have enough, but none that the policy allows, by text.
    `fewest`: hints prefer the smallest sets."""
    rows = np.flatnonzero(where)
    sets = _sets(zones.listed.shape[1])
    inside = np.stack([zones.listed[rows][:, each].all(axis=-1) for each in sets])
    fits, hints = inside.copy(), dict[str, Bools]()
    for name, value in zones.asked.items():
        counted, available = zones.counted[name][rows], zones.free[name][rows]
        fits &= ~counted | np.stack([available[:, each].sum(axis=-1) >= value for each in sets])
    for name in zones.asked:
        available = zones.free[name][rows]
        some = np.stack([(available[:, each] > 0).all(axis=-1) for each in sets])
        hints[name] = fits & some & zones.counted[name][rows]
    for type_, wanted, there in devices:
        enough = np.stack([there[rows][:, each].sum(axis=-1) >= wanted for each in sets])
        hints[type_] = inside & enough
    patterns, of_row = np.unique(np.stack(list(hints.values())), axis=2, return_inverse=True)
    texts: dict[str, Bools] = {}
    for number in range(patterns.shape[2]):
        hint_texts = [
            _hint_text(name, sets, patterns[at, :, number].tolist(), fewest or name not in zones.asked)
            for at, name in enumerate(hints)
        ]
        text = UNALIGNED.format(joint.join(sorted(filter(None, hint_texts))))
        texts.setdefault(text, np.zeros_like(where))[rows[of_row.ravel() == number]] = True
    return texts


def _hint_text(name: str, sets: list[list[int]], there: list[bool], fewest: bool) -> str:
    """The hints of one resource: the sets it prefers, and all that have enough of it."""
    among = [each for each, yes in zip(sets, there, strict=True) if yes]
    if not among:
        return ""
    size = min(map(len, among))
    preferred = [each for each in among if len(each) == size or not fewest]
    spelt = [" ".join(map(_mask, each)) for each in (preferred, among)]
    return f"{name} prefer [{spelt[0]}] among [{spelt[1]}]"


def _sets(width: int) -> list[list[int]]:
    sizes = range(1, width + 1) if width <= _SETS_SPELT_OUT else (1, 2, width)
    return [list(each) for size in sizes for each in combinations(range(width), size)]


def _mask(zones: list[int]) -> str:
    """A set of NUMA nodes as a bit mask, padded to pairs of bits."""
    mask = sum(1 << zone for zone in zones)
    shift = next((at for at in range(64 - _GROUP, 0, -_GROUP) if mask > 1 << at), 0)
    return f"{mask:0{shift + _GROUP}b}"
