"""The reservation table: reserved, allocated and remaining amounts of the reservations on nodes.

A reservation reserves amounts of a row. The requests of a pod that is allocated from it are the pod's
claim, and the reservation itself claims only what remains. Owners may request more than is reserved
(the rest comes from the node's free capacity), but the remaining amount never goes below zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.slots import PODS

if TYPE_CHECKING:
    from holdfast.scheduler.reservations.reservation_info import ReservationInfo

Matrix = NDArray[np.int64]

_FIRST_CAPACITY = 64


class ReservationRow:
    """A reservation on a row of the node table."""

    __slots__ = ("index", "pod", "reservation", "row", "usage")

    def __init__(self, pod: PodRecord, index: int, row: int, usage: ReservationUsage) -> None:
        assert pod.reservation is not None
        self.pod = pod
        """The reserve pod."""
        self.reservation: ReservationInfo = pod.reservation
        self.index = index
        """Its column in the reservation table."""
        self.row = row
        self.usage = usage
        """Its reserved, allocated and remaining amounts."""

    @property
    def amounts(self) -> Amounts:
        """The reserved amounts, by slot; not to be written to."""
        return self.usage.amounts

    @property
    def named(self) -> Pairs:
        """The reserved amounts of resources: without the slot of pods and without derived sums."""
        return self.usage.named

    @property
    def taken(self) -> Amounts:
        """The requests of the pods allocated from it, for the slots it reserves; not capped."""
        return self.usage.taken

    @property
    def remaining(self) -> Amounts:
        """The reserved amounts that are not allocated, which the reservation itself claims."""
        return self.usage.remaining

    def left(self, slot: int) -> int:
        return self.usage.remaining.get(slot, 0)


class ReservationTable:
    """The reservations on all rows. The matrices `amounts` (reserved) and `left` (remaining) have a
    line per slot and a column per reservation; they are brought up to date when they are read, since
    most readers look at single reservations."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots of derived sums, which are not resources."""
        self.usage_states = UsageStates(sums)
        self._amounts = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._left = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._outdated: dict[int, ReservationRow] = {}
        """Reservations whose columns are out of date, by index."""
        self._by_uid: dict[str, ReservationRow] = {}
        self._on_row: dict[int, dict[str, ReservationRow]] = {}
        self._free: list[int] = []
        self._size = 0
        self.waiting: dict[int, dict[str, None]] = {}
        """By row, the uids of waiting reservations (phase Waiting), in the order they were placed."""

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
            alike.setdefault(hold.usage, []).append(index)
        self._outdated.clear()
        for usage, indexes in alike.items():
            for matrix, amounts in ((self._amounts, usage.amounts), (self._left, usage.remaining)):
                column = np.zeros((len(matrix), 1), dtype=np.int64)
                for slot, amount in amounts.items():
                    column[slot] = amount
                matrix[:, indexes] = column

    def put(self, hold: ReservationRow, usage: ReservationUsage) -> None:
        """Sets the usage of a reservation."""
        hold.usage = usage
        self._outdated[hold.index] = hold

    def get(self, uid: str) -> ReservationRow | None:
        return self._by_uid.get(uid)

    def on(self, row: int) -> list[ReservationRow]:
        there = self._on_row.get(row)
        return list(there.values()) if there else []

    def awaited(self, row: int) -> Amounts:
        """What the waiting reservations on the row claim, by slot. Pods that have yet to end may still
        use it."""
        found: Amounts = {}
        for uid in self.waiting.get(row, ()):
            hold = self._by_uid.get(uid)
            for slot, left in hold.remaining.items() if hold is not None else ():
                found[slot] = found.get(slot, 0) + left
        return found

    def any_on(self, row: int) -> bool:
        return row in self._on_row

    def open(self, pod: PodRecord, row: int, amounts: Amounts) -> ReservationRow:
        """Adds a reservation to a row, unused."""
        assert pod.uid not in self._by_uid, f"{pod!r} already holds capacity"
        if self._free:
            index = self._free.pop()
        else:
            index, self._size = self._size, self._size + 1
        self._fit(max(amounts, default=0), index)
        hold = ReservationRow(pod, index, row, self.usage_states.untouched(amounts))
        hold.reservation.hold = hold
        self._by_uid[pod.uid] = hold
        self._on_row.setdefault(row, {})[pod.uid] = hold
        self._outdated[index] = hold
        return hold

    def close(self, hold: ReservationRow) -> None:
        """Removes a reservation from its row."""
        del self._by_uid[hold.pod.uid]
        hold.reservation.hold = None
        there = self._on_row[hold.row]
        del there[hold.pod.uid]
        if not there:
            del self._on_row[hold.row]
        self._outdated.pop(hold.index, None)
        self._free.append(hold.index)

    def renewed(self, hold: ReservationRow, amounts: Amounts) -> ReservationUsage:
        """The usage of the reservation if it reserved these amounts and no pod were allocated from
        it."""
        self._fit(max(amounts, default=0), hold.index)
        return self.usage_states.untouched(amounts)

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


# The usage of reservations, as immutable states that many reservations share.
#
# Thousands of reservations are alike, and so are their owners: each goes through the same states from
# unused to used up. So a state (reserved, allocated and remaining amounts) is one immutable object for
# all reservations that are in it, and a reservation moves from one state to the next. The state that
# follows when a pod of a class is added or removed is memoized.


Amounts = dict[int, int]
Pairs = tuple[tuple[int, int], ...]
"""Slots and amounts."""

_KEPT = 4096


class ReservationUsage:
    """A state of a reservation's usage. Compared by identity; two objects with equal amounts are rare
    and do no harm."""

    __slots__ = ("amounts", "named", "remaining", "taken")

    def __init__(self, amounts: Amounts, taken: Amounts, named: Pairs) -> None:
        self.amounts = amounts
        """The reserved amounts, by slot."""
        self.taken = taken
        """The requests of the pods allocated from it, for the slots it reserves; not capped."""
        self.remaining = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in amounts.items()}
        """The reserved amounts that are not allocated, which the reservation itself claims."""
        self.named = named
        """The reserved amounts of resources: without the slot of pods and without derived sums."""


class Step(NamedTuple):
    """What happens when a pod that is allocated from a reservation is added to its row, or removed."""

    usage: ReservationUsage
    """The reservation's usage after it."""
    claims: Pairs
    """By how much the claims on the row change, of pod and reservation together. Mostly little: the
    reservation already claims what the pod requests."""


class UsageStates:
    """The states of usage in use, and the memoized steps between them. Both memos are bounded."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots of derived sums, which are not resources."""
        self._sums = sums
        self._known: dict[tuple[Pairs, Pairs], ReservationUsage] = {}
        self._steps: dict[tuple[ReservationUsage, int, int], Step] = {}

    def untouched(self, amounts: Amounts) -> ReservationUsage:
        """The usage of a reservation from which no pod is allocated."""
        return self._of(amounts, {})

    def after(self, usage: ReservationUsage, cls: PodClass, sign: int) -> ReservationUsage:
        """The usage when a pod of the class is allocated from the reservation too (+1), or one less
        is (-1)."""
        asked, taken = dict(cls.usage), {}
        for slot in usage.amounts:
            amount = usage.taken.get(slot, 0) + sign * asked.get(slot, 0)
            if amount:
                taken[slot] = amount
        return self._of(usage.amounts, taken)

    def step(self, usage: ReservationUsage, cls: PodClass, sign: int) -> Step:
        """The same for a pod that is added to the row (+1) or removed from it (-1), with the change of
        claims."""
        key = (usage, cls.id, sign)
        step = self._steps.get(key)
        if step is None:
            after = self.after(usage, cls, sign)
            claims = {slot: sign * amount for slot, amount in cls.usage}
            for slot, left in after.remaining.items():
                claims[slot] = claims.get(slot, 0) + left - usage.remaining[slot]
            if len(self._steps) >= _KEPT:
                self._steps.clear()
            pairs = tuple((slot, amount) for slot, amount in claims.items() if amount)
            step = self._steps[key] = Step(after, pairs)
        return step

    def forget_steps(self) -> None:
        """Forgets memoized steps, because the usage of classes has changed."""
        self._steps.clear()

    def _of(self, amounts: Amounts, taken: Amounts) -> ReservationUsage:
        key = tuple(amounts.items()), tuple(taken.items())
        usage = self._known.get(key)
        if usage is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            named = tuple(
                [(slot, n) for slot, n in amounts.items() if slot != PODS and slot not in self._sums]
            )
            usage = self._known[key] = ReservationUsage(amounts, taken, named)
        return usage
