"""Which nodes have the CPUs and the NUMA nodes a pod wants, over many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api import names
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.slots import CPU, MOST
from holdfast.scheduler.managers.numa.allocation import Bools, Ints
from holdfast.scheduler.managers.numa.node_topology import FULL_CORES, NOT_WHOLE, POLICIES, SPREAD, Want

if TYPE_CHECKING:
    from holdfast.scheduler.managers.numa.cpu_manager import CPUManager
from collections.abc import Mapping
from itertools import combinations

from holdfast.scheduler.managers.numa.node_topology import BEST_EFFORT, SINGLE

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


class NumaLack(NamedTuple):
    text: str
    rows: Bools
    unresolvable: bool
    """Whether nothing anybody gives up could help."""


class NumaFilter:
    def __init__(self, cpus: CPUManager, nodes: NodeTable) -> None:
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
    ) -> list[NumaLack]:
        """Why rows will not do, by what comes first. `claimed` is what of cpu is spoken for there;
        `devices` tells which NUMA nodes have the devices the pods want as well. Unless it is to be
        explained, not everything has a text. `ahead`: the pods can wait for others to end."""
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
            zones = self._zones(want, bound, usable, look, [DeviceHintProvider(*each) for each in also])
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
            ours, theirs = getattr(cpus.counts, name), getattr(cpus.owner_counts, name)
            return np.where(has, theirs[..., holds, :], ours[..., rows, :])

        return look

    def _zones(
        self, want: Want, bound: Bools, usable: Ints, look: Look, devices: list[DeviceHintProvider]
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


# Which nodes have NUMA nodes that suit a pod, over many rows at once; and what is said where not.
#
# A policy is kept to by a set of NUMA nodes that together have room for all the pod asks for, none of
# them without any of it. `SingleNUMANode` takes sets of one only, `Restricted` any, `BestEffort` all
# there are if need be. What is said of nodes where there would be such a set, but not one that may be
# used, lists the sets there are for each resource: `cpu prefer [01 10] among [01 10 11]`.


NO_ZONES = "node(s) missing NUMA resources"
UNSATISFIED = "Unsatisfied NUMA {}"
UNALIGNED = "Unaligned NUMA Hint cause {}"
INSUFFICIENT = "Insufficient NUMA {}"

_BEST_EFFORT, _SINGLE = POLICIES.index(BEST_EFFORT), POLICIES.index(SINGLE)
_SETS_SPELT_OUT = 8
"""With more NUMA nodes than this only sets of one, of two, and of all are told."""
_GROUP = 2

Out = Callable[[dict[str, Bools], bool], None]
"""Takes why rows will not do, by text, and whether nothing anybody gives up could help."""


class DeviceHintProvider(NamedTuple):
    """Of one type: how many are wanted, and how many there are for the pod on each NUMA node."""

    kind: str
    wanted: int
    there: Ints


class Zones(NamedTuple):
    """The NUMA nodes of rows, [row, NUMA node]."""

    listed: Bools
    single: Bools
    several: Bools
    asked: Mapping[str, int]
    """What is asked for of resources that are counted by NUMA node."""
    rooms: Mapping[str, Ints]
    """What is free of them; nothing where a NUMA node has none of it."""
    counted: Mapping[str, Bools]
    """By resource, the rows where it is counted by NUMA node, [row]."""
    devices: list[DeviceHintProvider]


def judge(zones: Zones, policy: NDArray[np.int64], shy: bool, explain: bool, out: Out) -> None:
    """Tells which rows will not do by their policy. `shy`: pods on one NUMA node and pods on several
    keep away from each other."""
    listed = zones.listed
    out({NO_ZONES: (policy > 0) & ~listed.any(axis=-1)}, True)
    each, empty = listed.copy(), np.zeros_like(listed)
    for name, value in zones.asked.items():
        counted, room = zones.counted[name][:, None], zones.rooms[name]
        each &= ~counted | (room >= value)
        empty |= counted & (room <= 0)
    known = [devices for devices in zones.devices if devices.wanted]
    for devices in known:
        each &= _or_nowhere(devices, devices.there >= devices.wanted)
    alone = each & ~zones.several if shy else each
    together = listed & ~empty & ~zones.single if shy else listed & ~empty
    suits = alone.any(axis=-1) | (_enough(zones, known, together) & (policy != _SINGLE))
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
    for code, joint in ((_SINGLE, ","), (0, " & ")):
        where = strict & ~suits & ((policy == _SINGLE) == bool(code))
        if where.any():
            out(_unaligned(zones, known, where, bool(code), joint), False)


def _or_nowhere(devices: DeviceHintProvider, enough: Bools) -> Bools:
    """Where a row has too few devices in all, that is for others to say."""
    nowhere: Bools = (devices.there.sum(axis=-1) < devices.wanted)[:, None]
    return enough | nowhere


def _enough(zones: Zones, devices: list[DeviceHintProvider], among: Bools) -> Bools:
    """Whether several NUMA nodes have room together."""
    enough: Bools = among.sum(axis=-1) > 1
    for name, value in zones.asked.items():
        room = (zones.rooms[name] * among).sum(axis=-1)
        enough = enough & (~zones.counted[name] | (room >= value))
    for each in devices:
        there = (each.there * among).sum(axis=-1) >= each.wanted
        enough = enough & _or_nowhere(each, there[:, None])[:, 0]
    return enough


def _short(zones: Zones, name: str) -> Bools:
    """The rows that have too little of a resource in all."""
    total = (np.maximum(zones.rooms[name], 0) * zones.listed).sum(axis=-1)
    short: Bools = zones.counted[name] & (total < zones.asked[name])
    return short


def _unaligned(
    zones: Zones, devices: list[DeviceHintProvider], where: Bools, fewest: bool, joint: str
) -> dict[str, Bools]:
    """There would be enough, but not the way it has to be. `fewest`: sets of as few NUMA nodes as
    possible are preferred to others."""
    rows = np.flatnonzero(where)
    sets = _sets(zones.listed.shape[1])
    inside = np.stack([zones.listed[rows][:, each].all(axis=-1) for each in sets])
    fits, hints = inside.copy(), dict[str, Bools]()
    for name, value in zones.asked.items():
        counted, room = zones.counted[name][rows], zones.rooms[name][rows]
        fits &= ~counted | np.stack([room[:, each].sum(axis=-1) >= value for each in sets])
    for name in zones.asked:
        room = zones.rooms[name][rows]
        some = np.stack([(room[:, each] > 0).all(axis=-1) for each in sets])
        hints[name] = fits & some & zones.counted[name][rows]
    for kind, wanted, there in devices:
        enough = np.stack([there[rows][:, each].sum(axis=-1) >= wanted for each in sets])
        hints[kind] = inside & enough
    patterns, of_row = np.unique(np.stack(list(hints.values())), axis=2, return_inverse=True)
    texts: dict[str, Bools] = {}
    for number in range(patterns.shape[2]):
        said = [
            _said(name, sets, patterns[at, :, number].tolist(), fewest or name not in zones.asked)
            for at, name in enumerate(hints)
        ]
        text = UNALIGNED.format(joint.join(sorted(filter(None, said))))
        texts.setdefault(text, np.zeros_like(where))[rows[of_row.ravel() == number]] = True
    return texts


def _said(name: str, sets: list[list[int]], there: list[bool], fewest: bool) -> str:
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
    """A set as bits, in pairs."""
    mask = sum(1 << zone for zone in zones)
    shift = next((at for at in range(64 - _GROUP, 0, -_GROUP) if mask > 1 << at), 0)
    return f"{mask:0{shift + _GROUP}b}"
