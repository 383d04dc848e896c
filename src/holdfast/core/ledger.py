"""Who claims how much of which node. All arithmetic on capacity is here.

For every node and resource

    claimed = requests of the pods there + what reservations there still hold
    free    = allocatable - claimed

A change is made inside a transaction or stands at once. Transactions nest; undoing one restores
every number exactly, by doing the opposite of each step in reverse. Rows touched are written to the
log either way, since caches may have read them meanwhile.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from holdfast.core.holds import Amounts, Hold, HoldTable
from holdfast.core.nodes import NO_PODS, NodeTable
from holdfast.core.pods import PodRecord
from holdfast.core.rowlog import RowLog

Listener = Callable[[PodRecord, int, int], None]


class Ledger:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._undo: list[Callable[[], None]] = []
        self._depth = 0
        self.changed = RowLog()
        """Rows on which something was claimed or released."""
        self.pods: dict[int, dict[str, PodRecord]] = {}
        """The pods on each row, by uid."""
        self.holds = HoldTable()
        """What is promised to pods still to come."""
        self.listeners: list[Listener] = []
        """Told (pod, row, +1 or -1) of every pod that comes to or leaves a row."""
        self.on_drawn: Callable[[PodRecord, int], None] | None = None
        """Told (pod, +1 or -1) of a pod on its row that came to draw on a hold, or ceased to."""
        self.on_emptied: Callable[[int], None] | None = None
        """Told of a row nobody claims anything of any more, once that is certain."""
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

    def hold(self, pod: PodRecord, row: int, amounts: Amounts) -> None:
        """A reserve pod sets room aside. Pods on the row that draw on it have taken theirs already."""
        hold = self.holds.open(pod, row, amounts)
        pod.row = row
        for other in self.pods.get(row, {}).values():
            if other.draws_on == pod.uid:
                self._count_taken(hold, other, 1)
        self._claim_left(hold, {})
        self._present(pod, row, 1)
        if self._depth:
            self._undo.append(lambda: self.release(pod))

    def release(self, pod: PodRecord) -> None:
        """What a reserve pod still holds is free again."""
        hold = self.holds.get(pod.uid)
        assert hold is not None, f"{pod!r} holds no room"
        row, amounts = hold.row, hold.amounts
        left = {slot: hold.left(slot) for slot in amounts}
        hold.amounts = {}
        self._claim_left(hold, left)
        self.holds.close(hold)
        self._present(pod, row, -1)
        pod.row = -1
        if self._depth:
            self._undo.append(lambda: self.hold(pod, row, amounts))
        self._left(row)

    def resize(self, pod: PodRecord, amounts: Amounts) -> None:
        """A reserve pod holds these amounts from now on."""
        hold = self.holds.get(pod.uid)
        assert hold is not None, f"{pod!r} holds no room"
        before = hold.amounts
        left = {slot: hold.left(slot) for slot in before}
        self.holds.promise(hold, amounts)
        hold.taken.clear()
        for other in self.pods.get(hold.row, {}).values():
            if other.draws_on == pod.uid:
                self._count_taken(hold, other, 1)
        self._claim_left(hold, left)
        if self._depth:
            self._undo.append(lambda: self.resize(pod, before))

    def draw(self, pod: PodRecord, uid: str) -> None:
        """The pod takes the room of that reservation; of none if the uid is empty."""
        before, row = pod.draws_on, pod.row
        if before == uid:
            return
        if row < 0:
            pod.draws_on = uid
            return
        if before:
            self._take(pod, row, -1)
            self._tell_drawn(pod, -1)
        pod.draws_on = uid
        if uid:
            self._take(pod, row, 1)
            self._tell_drawn(pod, 1)
        self.changed.add(row)
        if self._depth:
            self._undo.append(lambda: self.draw(pod, before))

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
        return row not in self.pods and not self.holds.any_on(row)

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

    @contextmanager
    def peek(self) -> Iterator[None]:
        """What is done inside is undone at the end, and caches never hear of it; so none of them may be
        brought up to date inside."""
        mark = self.changed.end
        with self.transaction():
            yield
        self.changed.rewind(mark)

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
            claimed = self._table.claimed
            for slot, amount in cls.usage:
                claimed[slot, row] += amount
        else:
            assert on_row is not None
            del on_row[pod.uid]
            if not on_row:
                del self.pods[row]
            if cls.priority == self._table.lowest.item(row):
                self._table.lowest[row] = min(
                    (p.cls.priority for p in on_row.values()), default=NO_PODS
                )
            claimed = self._table.claimed
            for slot, amount in cls.usage:
                claimed[slot, row] -= amount
        if cls.permanent:
            for slot, amount in cls.usage:
                self._table.permanent[slot, row] += sign * amount
        if pod.draws_on:
            self._take(pod, row, sign)
        self._present(pod, row, sign)

    def _present(self, pod: PodRecord, row: int, sign: int) -> None:
        """The pod, or the reserve pod, is there for all who look at more than amounts."""
        cls = pod.cls
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

    def _tell_drawn(self, pod: PodRecord, sign: int) -> None:
        if self.on_drawn is not None:
            self.on_drawn(pod, sign)

    def _take(self, pod: PodRecord, row: int, sign: int) -> None:
        hold = self.holds.get(pod.draws_on)
        if hold is None or hold.row != row:
            return
        left = {slot: hold.left(slot) for slot in hold.amounts}
        self._count_taken(hold, pod, sign)
        self._claim_left(hold, left)

    def _count_taken(self, hold: Hold, pod: PodRecord, sign: int) -> None:
        for slot, amount in pod.cls.usage:
            if slot in hold.amounts:
                hold.taken[slot] = hold.taken.get(slot, 0) + sign * amount

    def _claim_left(self, hold: Hold, before: Amounts) -> None:
        """Claims what a hold has left, in place of what it had left before."""
        table, left = self._table, self.holds.left
        for slot in {**before, **hold.amounts}:
            now = hold.left(slot)
            more = now - before.get(slot, 0)
            if more:
                table.claimed[slot, hold.row] += more
                table.held[slot, hold.row] += more
            left[slot, hold.index] = now
        self.changed.add(hold.row)


class Transaction:
    __slots__ = ("committed",)

    def __init__(self) -> None:
        self.committed = False

    def commit(self) -> None:
        self.committed = True
