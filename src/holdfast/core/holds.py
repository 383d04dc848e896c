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

from holdfast.core.fills import Amounts, Fill, Fills, Pairs
from holdfast.core.pods import PodRecord

if TYPE_CHECKING:
    from holdfast.core.promises.promise import Promise

Matrix = NDArray[np.int64]

_FIRST_CAPACITY = 64


class Hold:
    __slots__ = ("fill", "index", "pod", "promise", "row")

    def __init__(self, pod: PodRecord, index: int, row: int, fill: Fill) -> None:
        assert pod.promise is not None
        self.pod = pod
        """The reserve pod, which stands for those to come."""
        self.promise: Promise = pod.promise
        """The reservation it is the hold of."""
        self.index = index
        self.row = row
        self.fill = fill
        """How far it is used up."""

    @property
    def amounts(self) -> Amounts:
        """What was promised, by slot; not to be written to."""
        return self.fill.amounts

    @property
    def named(self) -> Pairs:
        """The same, less the pods and what is summed up besides resources."""
        return self.fill.named

    @property
    def taken(self) -> Amounts:
        """What pods that draw on it ask for, of the slots it promises; not capped."""
        return self.fill.taken

    @property
    def remaining(self) -> Amounts:
        """What is left, which the hold itself claims."""
        return self.fill.remaining

    def left(self, slot: int) -> int:
        return self.fill.remaining.get(slot, 0)


class HoldTable:
    """Columns are holds: what they promise and what is left, by slot. They are written when asked for,
    since single holds are mostly looked at one by one."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots that are no resources of their own."""
        self.fills = Fills(sums)
        self._amounts = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._left = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._outdated: dict[int, Hold] = {}
        """Those whose columns have to be written anew, by their index."""
        self._by_uid: dict[str, Hold] = {}
        self._on_row: dict[int, dict[str, Hold]] = {}
        self._free: list[int] = []
        self._size = 0
        self.waiting: dict[int, dict[str, None]] = {}
        """By row, the uids of those that do not have their room yet, as they came."""

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    @property
    def amounts(self) -> Matrix:
        self._write()
        return self._amounts

    @property
    def left(self) -> Matrix:
        self._write()
        return self._left

    def _write(self) -> None:
        alike: dict[Fill, list[int]] = {}
        for index, hold in self._outdated.items():
            alike.setdefault(hold.fill, []).append(index)
        self._outdated.clear()
        for fill, indexes in alike.items():
            for matrix, amounts in ((self._amounts, fill.amounts), (self._left, fill.remaining)):
                column = np.zeros((len(matrix), 1), dtype=np.int64)
                for slot, amount in amounts.items():
                    column[slot] = amount
                matrix[:, indexes] = column

    def put(self, hold: Hold, fill: Fill) -> None:
        """The hold is used up so far."""
        hold.fill = fill
        self._outdated[hold.index] = hold

    def get(self, uid: str) -> Hold | None:
        return self._by_uid.get(uid)

    def on(self, row: int) -> list[Hold]:
        there = self._on_row.get(row)
        return list(there.values()) if there else []

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
        hold = Hold(pod, index, row, self.fills.untouched(amounts))
        hold.promise.hold = hold
        self._by_uid[pod.uid] = hold
        self._on_row.setdefault(row, {})[pod.uid] = hold
        self._outdated[index] = hold
        return hold

    def close(self, hold: Hold) -> None:
        del self._by_uid[hold.pod.uid]
        hold.promise.hold = None
        there = self._on_row[hold.row]
        del there[hold.pod.uid]
        if not there:
            del self._on_row[hold.row]
        self._outdated.pop(hold.index, None)
        self._free.append(hold.index)

    def renewed(self, hold: Hold, amounts: Amounts) -> Fill:
        """What the hold is like if it promises these amounts, and nobody draws on it."""
        self._fit(max(amounts, default=0), hold.index)
        return self.fills.untouched(amounts)

    def _fit(self, slot: int, index: int) -> None:
        slots, capacity = self._left.shape
        while slot >= slots:
            slots *= 2
        while index >= capacity:
            capacity *= 2
        if (slots, capacity) != self._left.shape:
            self._amounts, self._left = (
                _grown(self._amounts, slots, capacity),
                _grown(self._left, slots, capacity),
            )


def _grown(before: Matrix, slots: int, capacity: int) -> Matrix:
    after = np.zeros((slots, capacity), dtype=np.int64)
    after[: before.shape[0], : before.shape[1]] = before
    return after
