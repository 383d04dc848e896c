"""Which nodes have NUMA nodes that suit a pod, over many rows at once; and what is said where not.

A policy is kept to by a set of NUMA nodes that together have room for all the pod asks for, none of
them without any of it. `SingleNUMANode` takes sets of one only, `Restricted` any, `BestEffort` all
there are if need be. What is said of nodes where there would be such a set, but not one that may be
used, lists the sets there are for each resource: `cpu prefer [01 10] among [01 10 11]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cpus.counts import Bools, Ints
from holdfast.core.cpus.topology import BEST_EFFORT, SINGLE
from holdfast.core.cpus.wants import POLICIES

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


class Devices(NamedTuple):
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
    devices: list[Devices]


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


def _or_nowhere(devices: Devices, enough: Bools) -> Bools:
    """Where a row has too few devices in all, that is for others to say."""
    nowhere: Bools = (devices.there.sum(axis=-1) < devices.wanted)[:, None]
    return enough | nowhere


def _enough(zones: Zones, devices: list[Devices], among: Bools) -> Bools:
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
    zones: Zones, devices: list[Devices], where: Bools, fewest: bool, joint: str
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
