"""Virtual functions of network cards: a pod that selects them gets one of each card it is given.

Which there are says the Device, who has which is written on pods and reservations; both are looked at
when somebody asks, which few do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.api.label_selectors import Selector
from holdfast.core.devices.allocation import Function
from holdfast.core.devices.table import Bools, Rows, TypeTable

if TYPE_CHECKING:
    from holdfast.core.devices.devices import Devices


def spare_function(
    devices: Devices, table: TypeTable, row: int, minor: int, hold: int | None, selector: Selector
) -> Function | None:
    """The function of a card a pod would get, one that is reserved for it before others."""
    info = table.infos.get(row, {}).get(minor)
    groups = info.vf_groups if info is not None else ()
    taken: set[Function] = set()
    reserved: set[Function] = set()
    for uid, pod in devices.there.get(row, {}).items():
        own = pod.promise is not None and hold is not None and devices.hold_of(uid) == hold
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
    devices: Devices, table: TypeTable, rows: Rows, holds: Rows | None, selector: Selector
) -> Bools:
    """The cards, [(row,) place], with a function left."""
    many = np.atleast_1d(rows)
    drawn = [None] * len(many) if holds is None else np.atleast_1d(holds).tolist()
    found = np.zeros((len(many), table.width), dtype=np.bool_)
    for at, (row, hold) in enumerate(zip(many.tolist(), drawn, strict=True)):
        for minor, info in table.infos.get(row, {}).items():
            if info.vf_groups:
                spare = spare_function(devices, table, row, minor, hold, selector)
                found[at, table.place(row, minor)] = spare is not None
    return found if np.ndim(rows) else found[0]


def has_functions(table: TypeTable, rows: Rows) -> Bools:
    """The rows with a card that has functions at all."""
    with_some = [row for row, infos in table.infos.items() if any(i.vf_groups for i in infos.values())]
    found: Bools = np.isin(rows, with_some)
    return found
