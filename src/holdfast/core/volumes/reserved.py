"""What reservations reserve of the volumes a node can have.

A reservation reserves a place among the volumes of a CSI driver for each volume of its template. Owners
use these places for whatever volumes of that driver they have:

    reserved    the volumes the template names, and one for each of its generic ephemeral volumes
    allocated   volumes of pods that were allocated from it
    remaining   reserved, less those allocated, less one for each other volume allocated

A volume is attached to a node once, so it counts once, whoever uses or reserves it. Where a place is
given to another volume, a volume nobody else counts gives way first: that makes the count go down.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.core.volumes.migration import Migrated

Spare = Mapping[str, frozenset[Migrated]]
"""By the uid of a reservation, the places it has for other volumes of its owners."""


class Reserved(NamedTuple):
    """The volumes of one reservation on a row."""

    uid: str
    volumes: frozenset[Migrated]
    allocated: frozenset[Migrated]


def settle(
    used: Iterable[Migrated], attached: Iterable[Migrated], reservations: Iterable[Reserved]
) -> tuple[set[Migrated], Spare]:
    """The volumes that count on a row, besides those that are attached, and what is left to owners."""
    there = list(reservations)
    here = set(used)
    elsewhere = here.union(attached)
    reserving = Counter(volume for each in there for volume in each.volumes)
    spare: dict[str, frozenset[Migrated]] = {}
    for uid, volumes, allocated in there:
        others = Counter(volume.driver for volume in allocated - volumes)
        order = sorted((v in elsewhere or reserving[v] > 1, v) for v in volumes - allocated)
        left = []
        for is_shared, volume in order:
            if others[volume.driver] > 0:
                others[volume.driver] -= 1
                continue
            here.add(volume)
            if not is_shared:
                left.append(volume)
        if left:
            spare[uid] = frozenset(left)
    return here, spare
