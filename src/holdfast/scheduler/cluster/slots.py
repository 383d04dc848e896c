"""Slots: resource names interned to the first index of the node table's matrices.

Every quantity that is counted per node has a slot. Besides the resources there are derived sums: the
two sums in kube-scheduler's scores, in which a container without a cpu or memory request counts with a
default (their allocatable is that of the resource); and sums of limits, once a plugin asks for them
(`limit_sums`; the plugin sets their maximum).
"""

import heapq
from collections.abc import Iterable, Iterator

from holdfast.api.quantity import MOST_COUNTED

CPU = 0
MEMORY = 1
EPHEMERAL_STORAGE = 2
PODS = 3
NONZERO_CPU = 4
NONZERO_MEMORY = 5

MOST = MOST_COUNTED
"""The largest allocatable amount of a node, so that sums and scores fit into 64 bits. A larger request
counts as MOST + 1, which no node has."""

Amounts = dict[int, int]
"""Amounts by slot."""
Pairs = tuple[tuple[int, int], ...]
"""Slots and amounts."""

_FIXED = ("cpu", "memory", "ephemeral-storage", "pods", "", "")


def capped(amount: int) -> int:
    """A requested amount, at most MOST + 1."""
    return min(amount, MOST + 1)


class Slots:
    """The slots of resource names. A name keeps its slot until a sweep (`Cluster.release_slots`) finds
    it unused; a pinned slot, such as one the configuration names, is never released."""

    def __init__(self) -> None:
        self._names: list[str] = list(_FIXED)
        self._slot = {name: slot for slot, name in enumerate(_FIXED) if name}
        self._pinned: set[int] = set(range(len(_FIXED)))
        self._free: list[int] = []
        self.loose: dict[int, None] = {}
        """Slots that lost a user since the last sweep."""
        self._derived: dict[tuple[str, str], int] = {}
        self.sums: set[int] = {slot for slot, name in enumerate(_FIXED) if not name}
        """The slots that are not a resource: derived sums and released slots."""

    def __len__(self) -> int:
        return len(self._names)

    def of(self, name: str) -> int:
        """The slot of a name, a new one if it has none."""
        slot = self._slot.get(name)
        if slot is None:
            if self._free:
                slot = heapq.heappop(self._free)
                self._names[slot] = name
                self.sums.discard(slot)
            else:
                slot = len(self._names)
                self._names.append(name)
            self._slot[name] = slot
        return slot

    def pin(self, slot: int) -> None:
        self._pinned.add(slot)

    def left(self, slots: Iterable[int]) -> None:
        """Notes slots that lost a user; they may have others."""
        for slot in slots:
            if slot not in self._pinned:
                self.loose[slot] = None

    def take_loose(self) -> dict[int, None]:
        """The slots in `loose`, which is empty then."""
        loose, self.loose = self.loose, {}
        return loose

    def release(self, slot: int) -> None:
        """Releases an unused slot for the next name."""
        del self._slot[self._names[slot]]
        self._names[slot] = ""
        self.sums.add(slot)
        heapq.heappush(self._free, slot)

    def in_use(self) -> int:
        return len(self._names) - len(self._free)

    def derived(self, sum_of: str, name: str) -> int:
        """The slot of a derived sum for a resource; `sum_of` is its name, such as "limits"."""
        slot = self._derived.get((sum_of, name))
        if slot is None:
            slot = self._derived[sum_of, name] = len(self._names)
            self._names.append("")
            self.sums.add(slot)
            self._pinned.add(slot)
        return slot

    def find(self, name: str) -> int | None:
        return self._slot.get(name)

    def name(self, slot: int) -> str:
        return self._names[slot]

    def resources(self) -> Iterator[tuple[int, str]]:
        """The slots of resources, without derived sums."""
        return ((slot, name) for slot, name in enumerate(self._names) if name)
