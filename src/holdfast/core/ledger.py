"""Who claims how much of which node. All arithmetic on capacity is here.

For every node and resource

    claimed = requests of the pods there + what reservations there still hold
    free    = allocatable - claimed

A change is made inside a transaction or stands at once. Transactions nest; undoing one restores
every number exactly, by doing the opposite of each step in reverse. Rows touched are written to the
log either way, since caches may have read them meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from holdfast.core.classes import PodClass
from holdfast.core.nodes import NO_PODS, NodeTable
from holdfast.core.pods import PodRecord
from holdfast.core.rowlog import RowLog

Amounts = dict[int, int]
Listener = Callable[[PodRecord, int, int], None]


class Hold:
    """Room on a row that is spoken for though no pod is there yet."""

    __slots__ = ("amounts", "row")

    def __init__(self, row: int, amounts: Amounts) -> None:
        self.row = row
        self.amounts = amounts


class Ledger:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._undo: list[Callable[[], None]] = []
        self._depth = 0
        self.changed = RowLog()
        """Rows on which something was claimed or released."""
        self.pods: dict[int, dict[str, PodRecord]] = {}
        """The pods on each row, by uid."""
        self.holds: dict[str, Hold] = {}
        """What is held, by the uid of whoever holds it."""
        self.listeners: list[Listener] = []
        """Told (pod, row, +1 or -1) of every pod that comes to or leaves a row."""
        self.on_emptied: Callable[[int], None] | None = None
        """Told of a row nobody claims anything of any more, once that is certain."""
        self._holds_on: Counter[int] = Counter()
        self._emptied: list[int] = []

    def place(self, pod: PodRecord, row: int) -> None:
        """The pod claims its requests of the row."""
        self._move(pod, row, 1)
        pod.row = row
        if self._depth:
            self._undo.append(lambda: self.remove(pod))

    def remove(self, pod: PodRecord) -> None:
        """The pod gives up what it claimed."""
        row = pod.row
        self._move(pod, row, -1)
        pod.row = -1
        if self._depth:
            self._undo.append(lambda: self.place(pod, row))
        self._left(row)

    def hold(self, uid: str, row: int, amounts: Amounts) -> None:
        """Room is set aside; a hold of that uid must not exist yet."""
        assert uid not in self.holds, f"{uid} already holds room"
        self.holds[uid] = Hold(row, dict(amounts))
        self._holds_on[row] += 1
        self._claim_held(row, amounts, 1)
        if self._depth:
            self._undo.append(lambda: self.release(uid))

    def release(self, uid: str) -> None:
        """Room set aside is free again."""
        hold = self.holds.pop(uid)
        self._holds_on[hold.row] -= 1
        if not self._holds_on[hold.row]:
            del self._holds_on[hold.row]
        self._claim_held(hold.row, hold.amounts, -1)
        self._left(hold.row)
        if self._depth:
            self._undo.append(lambda: self.hold(uid, hold.row, hold.amounts))

    def free(self, row: int) -> NDArray[np.int64]:
        """What is left of each slot's resource on a row; negative where it is oversold."""
        return self._table.allocatable[:, row] - self._table.claimed[:, row]

    def to_remove(
        self,
        row: int,
        needs: list[tuple[int, int]],
        pods: list[PodRecord],
        besides: list[PodRecord],
    ) -> tuple[list[PodRecord], list[int]]:
        """Which of these pods would have to leave the row for so much of some slots to be free, were
        those `besides` there too; the first are spared first. And the slots of which there would not
        be enough if all of them left."""
        table = self._table
        spare: dict[int, int] = {}
        for slot, amount in needs:
            spare[slot] = table.allocatable.item(slot, row) - table.claimed.item(slot, row) - amount
        for sign, group in ((1, pods), (-1, besides)):
            for pod in group:
                for slot, amount in pod.cls.usage:
                    if slot in spare:
                        spare[slot] += sign * amount
        lacking = [slot for slot, left in spare.items() if left < 0]
        if lacking:
            return pods, lacking
        removed = []
        for pod in pods:
            claims = [(slot, amount) for slot, amount in pod.cls.usage if slot in spare]
            if all(spare[slot] >= amount for slot, amount in claims):
                for slot, amount in claims:
                    spare[slot] -= amount
            else:
                removed.append(pod)
        return removed, []

    def is_empty(self, row: int) -> bool:
        """Whether nobody claims anything of the row."""
        return row not in self.pods and row not in self._holds_on

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """What is done inside stands only if `commit()` is called before the end."""
        transaction = Transaction()
        mark = len(self._undo)
        self._depth += 1
        try:
            yield transaction
        finally:
            if transaction.committed:
                self._depth -= 1
                if not self._depth:
                    self._undo.clear()
            else:
                steps = self._undo[mark:]
                del self._undo[mark:]
                depth, self._depth = self._depth, 0
                for step in reversed(steps):
                    step()
                self._depth = depth - 1
            self._tell_emptied()

    def _left(self, row: int) -> None:
        if row not in self.pods:
            self._emptied.append(row)
            self._tell_emptied()

    def _tell_emptied(self) -> None:
        """Only what stands is told: a transaction may put back what it took."""
        if self._depth or not self._emptied:
            return
        rows, self._emptied = self._emptied, []
        for row in dict.fromkeys(rows):
            if self.on_emptied is not None and self.is_empty(row):
                self.on_emptied(row)

    def _move(self, pod: PodRecord, row: int, sign: int) -> None:
        cls = pod.cls
        on_row = self.pods.get(row)
        if sign > 0:
            if on_row is None:
                on_row = self.pods[row] = {}
            assert pod.uid not in on_row, f"{pod!r} is already on row {row}"
            on_row[pod.uid] = pod
            if cls.priority < self._table.lowest.item(row):
                self._table.lowest[row] = cls.priority
            column = self._table.claimed[:, row]
            np.add(column, self._usage(cls), column)
        else:
            assert on_row is not None
            del on_row[pod.uid]
            if not on_row:
                del self.pods[row]
            if cls.priority == self._table.lowest.item(row):
                self._table.lowest[row] = min(
                    (p.cls.priority for p in on_row.values()), default=NO_PODS
                )
            column = self._table.claimed[:, row]
            np.subtract(column, self._usage(cls), column)
        count = cls.placed.get(row, 0) + sign
        if count:
            cls.placed[row] = count
        else:
            del cls.placed[row]
        for port in cls.ports:
            self._table.ports.add(row, port, sign)
        for listen in self.listeners:
            listen(pod, row, sign)
        self.changed.add(row)

    def _usage(self, cls: PodClass) -> NDArray[np.int64]:
        slots = len(self._table.claimed)
        if len(cls.usage_column) != slots:
            cls.usage_column = np.zeros(slots, dtype=np.int64)
            for slot, amount in cls.usage:
                cls.usage_column[slot] = amount
        return cls.usage_column

    def _claim_held(self, row: int, amounts: Amounts, sign: int) -> None:
        for slot, amount in amounts.items():
            self._table.claimed[slot, row] += sign * amount
            self._table.held[slot, row] += sign * amount
        self.changed.add(row)


class Transaction:
    __slots__ = ("committed",)

    def __init__(self) -> None:
        self.committed = False

    def commit(self) -> None:
        self.committed = True
