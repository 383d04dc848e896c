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

from holdfast.scheduler.cluster.pods import PodRecord

if TYPE_CHECKING:
    from holdfast.scheduler.reservations.reservation_info import ReservationInfo
from typing import NamedTuple

from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import PODS

Matrix = NDArray[np.int64]

_FIRST_CAPACITY = 64


class ReservationRow:
    __slots__ = ("fill", "index", "pod", "reservation", "row")

    def __init__(self, pod: PodRecord, index: int, row: int, fill: ReservationUsage) -> None:
        assert pod.reservation is not None
        self.pod = pod
        """The reserve pod, which stands for those to come."""
        self.reservation: ReservationInfo = pod.reservation
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


class ReservationTable:
    """Columns are holds: what they promise and what is left, by slot. They are written when asked for,
    since single holds are mostly looked at one by one."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots that are no resources of their own."""
        self.fills = Fills(sums)
        self._amounts = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._left = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._outdated: dict[int, ReservationRow] = {}
        """Those whose columns have to be written anew, by their index."""
        self._by_uid: dict[str, ReservationRow] = {}
        self._on_row: dict[int, dict[str, ReservationRow]] = {}
        self._free: list[int] = []
        self._size = 0
        self.waiting: dict[int, dict[str, None]] = {}
        """By row, the uids of those that do not have their room yet, as they came."""

    def __iter__(self) -> Iterator[ReservationRow]:
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
        alike: dict[ReservationUsage, list[int]] = {}
        for index, hold in self._outdated.items():
            alike.setdefault(hold.fill, []).append(index)
        self._outdated.clear()
        for fill, indexes in alike.items():
            for matrix, amounts in ((self._amounts, fill.amounts), (self._left, fill.remaining)):
                column = np.zeros((len(matrix), 1), dtype=np.int64)
                for slot, amount in amounts.items():
                    column[slot] = amount
                matrix[:, indexes] = column

    def put(self, hold: ReservationRow, fill: ReservationUsage) -> None:
        """The hold is used up so far."""
        hold.fill = fill
        self._outdated[hold.index] = hold

    def get(self, uid: str) -> ReservationRow | None:
        return self._by_uid.get(uid)

    def on(self, row: int) -> list[ReservationRow]:
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

    def open(self, pod: PodRecord, row: int, amounts: Amounts) -> ReservationRow:
        assert pod.uid not in self._by_uid, f"{pod!r} already holds room"
        if self._free:
            index = self._free.pop()
        else:
            index, self._size = self._size, self._size + 1
        self._fit(max(amounts, default=0), index)
        hold = ReservationRow(pod, index, row, self.fills.untouched(amounts))
        hold.reservation.hold = hold
        self._by_uid[pod.uid] = hold
        self._on_row.setdefault(row, {})[pod.uid] = hold
        self._outdated[index] = hold
        return hold

    def close(self, hold: ReservationRow) -> None:
        del self._by_uid[hold.pod.uid]
        hold.reservation.hold = None
        there = self._on_row[hold.row]
        del there[hold.pod.uid]
        if not there:
            del self._on_row[hold.row]
        self._outdated.pop(hold.index, None)
        self._free.append(hold.index)

    def renewed(self, hold: ReservationRow, amounts: Amounts) -> ReservationUsage:
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


# How far holds are used up, as states that many holds share.
#
# Thousands of reservations are alike, and so are their owners: one after the other they go the same way
# from untouched to used up. So what a hold promises, what was taken of it and what is left is kept once
# for all holds of which it is true, and never changed; a hold goes from one such state to another. What
# a pod of some class does to a state by coming or going is worked out once, too.


Amounts = dict[int, int]
Pairs = tuple[tuple[int, int], ...]
"""Slots and amounts."""

_KEPT = 4096


class ReservationUsage:
    """Two are the same only if they are one; equal ones may be there twice, though mostly are not."""

    __slots__ = ("amounts", "named", "remaining", "taken")

    def __init__(self, amounts: Amounts, taken: Amounts, named: Pairs) -> None:
        self.amounts = amounts
        """What is promised, by slot."""
        self.taken = taken
        """What pods that draw on it ask for, of the slots it promises; not capped."""
        self.remaining = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in amounts.items()}
        """What is left, which the hold itself claims."""
        self.named = named
        """What is promised, less the pods and what is summed up besides resources."""


class Step(NamedTuple):
    """A pod that draws on a hold comes to its row, or leaves it."""

    fill: ReservationUsage
    """What the hold is like then."""
    claims: Pairs
    """What is claimed of the row by then, more or less than before, by pod and hold together. Mostly
    little: what a pod asks for is claimed already, by the hold."""


class Fills:
    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots that are no resources of their own."""
        self._sums = sums
        self._known: dict[tuple[Pairs, Pairs], ReservationUsage] = {}
        self._steps: dict[tuple[ReservationUsage, int, int], Step] = {}

    def untouched(self, amounts: Amounts) -> ReservationUsage:
        return self._of(amounts, {})

    def after(self, fill: ReservationUsage, cls: PodClass, sign: int) -> ReservationUsage:
        """A pod of the class draws on it, or does so no more."""
        asked, taken = dict(cls.usage), {}
        for slot in fill.amounts:
            amount = fill.taken.get(slot, 0) + sign * asked.get(slot, 0)
            if amount:
                taken[slot] = amount
        return self._of(fill.amounts, taken)

    def step(self, fill: ReservationUsage, cls: PodClass, sign: int) -> Step:
        """The same with a pod that comes to the row, or leaves it."""
        key = (fill, cls.id, sign)
        step = self._steps.get(key)
        if step is None:
            after = self.after(fill, cls, sign)
            claims = {slot: sign * amount for slot, amount in cls.usage}
            for slot, left in after.remaining.items():
                claims[slot] = claims.get(slot, 0) + left - fill.remaining[slot]
            if len(self._steps) >= _KEPT:
                self._steps.clear()
            pairs = tuple((slot, amount) for slot, amount in claims.items() if amount)
            step = self._steps[key] = Step(after, pairs)
        return step

    def forget_steps(self) -> None:
        """Pods of a class may claim something else by now."""
        self._steps.clear()

    def _of(self, amounts: Amounts, taken: Amounts) -> ReservationUsage:
        key = tuple(amounts.items()), tuple(taken.items())
        fill = self._known.get(key)
        if fill is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            named = tuple(
                [(slot, n) for slot, n in amounts.items() if slot != PODS and slot not in self._sums]
            )
            fill = self._known[key] = ReservationUsage(amounts, taken, named)
        return fill
