"""The reservation table: reserved, allocated and remaining amounts of the reservations on nodes.

A reservation reserves amounts of a row. The requests of a pod that is allocated from it are the pod's
claim, and the reservation itself claims only what remains. Owners may request more than is reserved
(the rest comes from the node's free capacity), but the remaining amount never goes below zero.
"""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.reservation_usage import ReservationUsage, UsageStates
from holdfast.scheduler.cluster.slots import Amounts

Matrix = NDArray[np.int64]

_FIRST_CAPACITY = 64


class ReservationTable:
    """The reservations on all rows. The matrices `amounts` (reserved) and `left` (remaining) have a
    line per slot and a column per reservation; they are brought up to date when they are read, since
    most readers look at single reservations."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots of derived sums, which are not resources."""
        self.usage_states = UsageStates(sums)
        self._amounts = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._left = np.zeros((8, _FIRST_CAPACITY), dtype=np.int64)
        self._outdated: dict[int, ReservationEntry] = {}
        """Reservations whose columns are out of date, by index."""
        self._by_uid: dict[str, ReservationEntry] = {}
        self._on_row: dict[int, dict[str, ReservationEntry]] = {}
        self._free: list[int] = []
        self._size = 0
        self.waiting: dict[int, dict[str, None]] = {}
        """By row, the uids of waiting reservations (phase Waiting), in the order they were placed."""

    def __iter__(self) -> Iterator[ReservationEntry]:
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
        for index, entry in self._outdated.items():
            alike.setdefault(entry.usage, []).append(index)
        self._outdated.clear()
        for usage, indexes in alike.items():
            for matrix, amounts in ((self._amounts, usage.amounts), (self._left, usage.remaining)):
                column = np.zeros((len(matrix), 1), dtype=np.int64)
                for slot, amount in amounts.items():
                    column[slot] = amount
                matrix[:, indexes] = column

    def put(self, entry: ReservationEntry, usage: ReservationUsage) -> None:
        """Sets the usage of a reservation."""
        entry.usage = usage
        self._outdated[entry.index] = entry

    def get(self, uid: str) -> ReservationEntry | None:
        return self._by_uid.get(uid)

    def on(self, row: int) -> list[ReservationEntry]:
        there = self._on_row.get(row)
        return list(there.values()) if there else []

    def awaited(self, row: int) -> Amounts:
        """What the waiting reservations on the row claim, by slot. Pods that have yet to end may still
        use it."""
        found: Amounts = {}
        for uid in self.waiting.get(row, ()):
            entry = self._by_uid.get(uid)
            for slot, left in entry.remaining.items() if entry is not None else ():
                found[slot] = found.get(slot, 0) + left
        return found

    def any_on(self, row: int) -> bool:
        return row in self._on_row

    def open(self, pod: PodRecord, row: int, amounts: Amounts) -> ReservationEntry:
        """Adds a reservation to a row, unused."""
        assert pod.uid not in self._by_uid, f"{pod!r} already holds capacity"
        if self._free:
            index = self._free.pop()
        else:
            index, self._size = self._size, self._size + 1
        self._fit(max(amounts, default=0), index)
        entry = ReservationEntry(pod, index, row, self.usage_states.untouched(amounts))
        entry.reservation.entry = entry
        self._by_uid[pod.uid] = entry
        self._on_row.setdefault(row, {})[pod.uid] = entry
        self._outdated[index] = entry
        return entry

    def close(self, entry: ReservationEntry) -> None:
        """Removes a reservation from its row."""
        del self._by_uid[entry.pod.uid]
        entry.reservation.entry = None
        there = self._on_row[entry.row]
        del there[entry.pod.uid]
        if not there:
            del self._on_row[entry.row]
        self._outdated.pop(entry.index, None)
        self._free.append(entry.index)

    def renewed(self, entry: ReservationEntry, amounts: Amounts) -> ReservationUsage:
        """The usage of the reservation if it reserved these amounts and no pod were allocated from
        it."""
        self._fit(max(amounts, default=0), entry.index)
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
