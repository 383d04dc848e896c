"""Resource names interned to the first index of the node table's matrices.

A quantity that is counted per node is a slot, whether a node offers it or it is only derived:
next to every resource stand the two sums kube-scheduler's scores are made of, in which a
container that asks for no cpu or memory counts with a small default. Of those a node offers as much as
of the resource itself. Sums of limits are slots too, once somebody asks for them to be counted; how
much of those a node offers is for him to say.
"""

from collections.abc import Iterator

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
    """Hands out slots; a name keeps its slot for the life of the process."""

    def __init__(self) -> None:
        self._names: list[str] = list(_FIXED)
        self._slot = {name: slot for slot, name in enumerate(_FIXED) if name}
        self._derived: dict[tuple[str, str], int] = {}
        self.sums: set[int] = {slot for slot, name in enumerate(_FIXED) if not name}
        """The slots that are no resource of their own."""

    def __len__(self) -> int:
        return len(self._names)

    def of(self, name: str) -> int:
        slot = self._slot.get(name)
        if slot is None:
            slot = self._slot[name] = len(self._names)
            self._names.append(name)
        return slot

    def derived(self, sum_of: str, name: str) -> int:
        """The slot of something else that is summed up for a resource."""
        slot = self._derived.get((sum_of, name))
        if slot is None:
            slot = self._derived[sum_of, name] = len(self._names)
            self._names.append("")
            self.sums.add(slot)
        return slot

    def find(self, name: str) -> int | None:
        return self._slot.get(name)

    def name(self, slot: int) -> str:
        return self._names[slot]

    def resources(self) -> Iterator[tuple[int, str]]:
        """Slots of real resources, derived sums left out."""
        return ((slot, name) for slot, name in enumerate(self._names) if name)
