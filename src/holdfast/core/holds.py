"""Room that is spoken for though no pod is there yet, as a table.

A hold promises amounts of a row. Pods that draw on it take their share, and what they have taken counts
as theirs: the hold itself claims only what is left. It may be drawn on beyond what it promised (the
rest then comes from the node), but what is left never goes below zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.core.pods import PodRecord
from holdfast.core.slots import PODS

if TYPE_CHECKING:
    from holdfast.core.promises.promise import Promise

Amounts = dict[int, int]
Matrix = NDArray[np.int64]

_FIRST_CAPACITY = 64


class Hold:
    __slots__ = ("amounts", "index", "kind", "named", "pod", "promise", "remaining", "row", "taken")

    def __init__(self, pod: PodRecord, index: int, row: int, amounts: Amounts) -> None:
        assert pod.promise is not None
        self.pod = pod
        """The reserve pod, which stands for those to come."""
        self.promise: Promise = pod.promise
        """The reservation it is the hold of."""
        self.index = index
        self.row = row
        self.amounts = amounts
        """What was promised, by slot; not to be written to."""
        self.named: tuple[tuple[int, int], ...] = ()
        """The same, less the pods and what is summed up besides resources."""
        self.kind = 0
        """A number all holds have that promise something of the same slots."""
        self.taken: Amounts = {}
        """What pods that draw on it ask for, of the slots it promises; not capped."""
        self.remaining: Amounts = {}
        """What is left, which the hold itself claims."""

    def left(self, slot: int) -> int:
        return self.remaining.get(slot, 0)


class HoldTable:
    """Columns are holds: what they promise and what is left, by slot."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots that are no resources of their own."""
        self._sums = sums
        self.amounts = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._left = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._outdated: dict[int, Hold] = {}
        """Those whose column of what is left has to be written anew, by their index."""
        self._by_uid: dict[str, Hold] = {}
        self._on_row: dict[int, dict[str, Hold]] = {}
        self._free: list[int] = []
        self._kinds: dict[frozenset[int], int] = {}
        self._last: Hold | None = None
        self._size = 0
        self.waiting: dict[int, set[str]] = {}
        """By row, the uids of those that do not have their room yet."""

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    @property
    def left(self) -> Matrix:
        """Written when asked for: single holds are mostly looked at one by one."""
        if self._outdated:
            left = self._left
            for index, hold in self._outdated.items():
                left[:, index] = 0
                for slot, amount in hold.remaining.items():
                    left[slot, index] = amount
            self._outdated.clear()
        return self._left

    def drawn(self, hold: Hold) -> None:
        """What is left of it changed."""
        self._outdated[hold.index] = hold

    def get(self, uid: str) -> Hold | None:
        return self._by_uid.get(uid)

    def on(self, row: int) -> list[Hold]:
        return list(self._on_row.get(row, {}).values())

    def awaited(self, row: int) -> Amounts:
        """What those still claim that wait for their room on the row, by slot. It may be taken already
        by pods that have yet to end."""
        found: Amounts = {}
        for uid in self.waiting.get(row, ()):
            hold = self._by_uid.get(uid)
            for slot, left in hold.remaining.items() if hold is not None else ():
                found[slot] = found.get(slot, 0) + left
        return found

    def any_on(self, row: int) -> bool:
        return row in self._on_row

    def open(self, pod: PodRecord, row: int, amounts: Amounts) -> Hold:
        assert pod.uid not in self._by_uid, f"{pod!r} already holds room"
        if self._free:
            index = self._free.pop()
        else:
            index, self._size = self._size, self._size + 1
        self._fit(max(amounts, default=0), index)
        hold = Hold(pod, index, row, amounts)
        hold.promise.hold = hold
        self._sort(hold)
        self._by_uid[pod.uid] = hold
        self._on_row.setdefault(row, {})[pod.uid] = hold
        for slot, amount in amounts.items():
            self.amounts[slot, index] = amount
        return hold

    def close(self, hold: Hold) -> None:
        del self._by_uid[hold.pod.uid]
        hold.promise.hold = None
        there = self._on_row[hold.row]
        del there[hold.pod.uid]
        if not there:
            del self._on_row[hold.row]
        self.amounts[:, hold.index] = 0
        self._left[:, hold.index] = 0
        self._outdated.pop(hold.index, None)
        self._free.append(hold.index)

    def promise(self, hold: Hold, amounts: Amounts) -> None:
        """The hold promises these amounts from now on."""
        hold.amounts = amounts
        self._sort(hold)
        self._fit(max(amounts, default=0), hold.index)
        self.amounts[:, hold.index] = 0
        for slot, amount in amounts.items():
            self.amounts[slot, hold.index] = amount

    def _sort(self, hold: Hold) -> None:
        amounts, sums = hold.amounts, self._sums
        last = self._last
        if last is not None and last.amounts is amounts:  # thousands in a row promise the same
            hold.kind, hold.named = last.kind, last.named
            return
        hold.kind = self._kinds.setdefault(frozenset(amounts), len(self._kinds))
        hold.named = tuple(
            [(slot, n) for slot, n in amounts.items() if slot != PODS and slot not in sums]
        )
        self._last = hold

    def _fit(self, slot: int, index: int) -> None:
        slots, capacity = self._left.shape
        while slot >= slots:
            slots *= 2
        while index >= capacity:
            capacity *= 2
        if (slots, capacity) != self._left.shape:
            self.amounts, self._left = (
                _grown(self.amounts, slots, capacity),
                _grown(self._left, slots, capacity),
            )


def _grown(before: Matrix, slots: int, capacity: int) -> Matrix:
    after = np.zeros((slots, capacity), dtype=np.int64)
    after[: before.shape[0], : before.shape[1]] = before
    return after
