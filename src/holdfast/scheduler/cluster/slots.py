"""Resource names interned to the first index of the node table's matrices.

A quantity that is counted per node is a slot, whether a node offers it or it is only derived:
next to every resource stand the two sums kube-scheduler's scores are made of, in which a
container that asks for no cpu or memory counts with a small default. Of those a node offers as much as
of the resource itself. Sums of limits are slots too, once somebody asks for them to be counted; how
much of those a node offers is for him to say.
"""

import heapq
from collections.abc import Iterable, Iterator

CPU = 0
MEMORY = 1
EPHEMERAL_STORAGE = 2
PODS = 3
NONZERO_CPU = 4
NONZERO_MEMORY = 5

MOST = 2**55
"""No node counts as offering more than this, so that sums and scores stay within 64 bits; who asks for
more asks for one more than this, and finds it nowhere."""

_FIXED = ("cpu", "memory", "ephemeral-storage", "pods", "", "")


def capped(amount: int) -> int:
    """What is asked for, as it is counted."""
    return min(amount, MOST + 1)


class Slots:
    """Hands out slots. A name keeps its slot until a sweep finds nobody who uses it, and for good if it
    is pinned, as those are that a configuration names."""

    def __init__(self) -> None:
        self._names: list[str] = list(_FIXED)
        self._slot = {name: slot for slot, name in enumerate(_FIXED) if name}
        self._pinned: set[int] = set(range(len(_FIXED)))
        self._free: list[int] = []
        self.loose: dict[int, None] = {}
        """Slots that somebody ceased to use since the last sweep."""
        self._derived: dict[tuple[str, str], int] = {}
        self.sums: set[int] = {slot for slot, name in enumerate(_FIXED) if not name}
        """The slots that are no resource of their own, or none any more."""

    def __len__(self) -> int:
        return len(self._names)

    def of(self, name: str) -> int:
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
        """Somebody uses these no more; others may."""
        for slot in slots:
            if slot not in self._pinned:
                self.loose[slot] = None

    def release(self, slot: int) -> None:
        """Nobody uses the slot: the next name may have it."""
        del self._slot[self._names[slot]]
        self._names[slot] = ""
        self.sums.add(slot)
        heapq.heappush(self._free, slot)

    def in_use(self) -> int:
        return len(self._names) - len(self._free)

    def derived(self, sum_of: str, name: str) -> int:
        """The slot of something else that is summed up for a resource."""
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
        """Slots of real resources, derived sums left out."""
        return ((slot, name) for slot, name in enumerate(self._names) if name)
