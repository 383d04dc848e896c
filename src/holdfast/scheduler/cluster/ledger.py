"""Who claims how much of which node. All arithmetic on capacity is here.

For every node and resource

    claimed = requests of the pods there + what reservations there still hold
    free    = allocatable - claimed

A change is made inside a transaction or stands at once. Transactions nest; undoing one restores
every number exactly, by doing the opposite of each step in reverse. Rows touched are written to the
log either way, since caches may have read them meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_table import NO_PODS, Held, NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.reservation_table import (
    Amounts,
    ReservationRow,
    ReservationTable,
    ReservationUsage,
)

Listener = Callable[[PodRecord, int, int], None]


class Ledger:
    def __init__(self, table: NodeTable, usage: RowLog) -> None:
        self._table = table
        self._undo: list[Callable[[], None]] = []
        self._depth = 0
        self.transactions = 0
        """How many outermost transactions there have been."""
        self.undoing = False
        """Whether a transaction is being undone just now."""
        self._usage_log = usage
        self.pods: dict[int, dict[str, PodRecord]] = {}
        """The pods on each row, by uid."""
        self.holds = ReservationTable(table.slots.sums)
        """What is promised to pods still to come."""
        if table.held_on is None:
            table.held_on = self._held_on
        self.listeners: list[Listener] = []
        """Told (pod, row, +1 or -1) of every pod that comes to or leaves a row."""
        self.on_allocated: Callable[[PodRecord, int], None] | None = None
        """Told (pod, +1 or -1) of a pod on its row that came to draw on a hold, or ceased to."""
        self.on_emptied: Callable[[int], None] | None = None
        """Told of a row nobody claims anything of any more, once that is certain."""
        self.allowed: Callable[[int, int], tuple[str, int]] = lambda slot, row: ("", 0)
        """What a slot sums up that is no resource, and how much that may be on a row."""
        self._emptied: list[int] = []

    def _held_on(self, row: int) -> list[Held]:
        return [Held(hold.remaining, self._held_in_the_end(hold)) for hold in self.holds.on(row)]

    def _held_in_the_end(self, hold: ReservationRow) -> Amounts:
        """What a hold claims when the pods have ended that do not stay as long as the node."""
        taken = self.taken_for_good(hold)
        if taken is hold.taken:
            return hold.remaining
        return {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in hold.amounts.items()}

    def taken_for_good(self, hold: ReservationRow) -> Amounts:
        """What pods that draw on a hold ask for of the slots it promises, but for what it has again
        when they end; not to be written to. A reservation that is used once has nothing again."""
        if hold.reservation.once or not hold.taken:
            return hold.taken
        taken: Amounts = {}
        for pod in self.pods.get(hold.row, {}).values():
            if pod.reservation_uid == hold.pod.uid and pod.cls.is_daemon:
                for slot, amount in pod.cls.usage:
                    if slot in hold.amounts:
                        taken[slot] = taken.get(slot, 0) + amount
        return taken

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
        if pod.cls.priority < self._table.lowest_held.item(row):
            self._table.lowest_held[row] = pod.cls.priority
        self._claim_left(hold, {}, self._usage_by_pods(hold, hold.fill))
        self._present(pod, row, 1)
        if self._depth:
            self._undo.append(lambda: self.release(pod))

    def release(self, pod: PodRecord) -> None:
        """What a reserve pod still holds is free again."""
        hold = self.holds.get(pod.uid)
        assert hold is not None, f"{pod!r} holds no room"
        table, row, amounts = self._table, hold.row, hold.amounts
        for slot, left in hold.remaining.items():
            if left:
                table.claimed[slot, row] -= left
        table.held_outdated[row] = None
        self.holds.close(hold)
        if pod.cls.priority == table.lowest_held.item(row):
            others = [each.pod.cls.priority for each in self.holds.on(row)]
            table.lowest_held[row] = min(others) if others else NO_PODS
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
        fill = self._usage_by_pods(hold, self.holds.renewed(hold, amounts))
        self._claim_left(hold, hold.remaining, fill)
        if self._depth:
            self._undo.append(lambda: self.resize(pod, before))

    def excess(self, row: int) -> dict[int, int]:
        """By slot, how much more is claimed of a row than it has because some wait for it there."""
        table, found = self._table, {}
        for slot, awaited in self.holds.awaited(row).items():
            name, offered = table.slots.name(slot), table.allocatable.item(slot, row)
            if not name:
                name, offered = self.allowed(slot, row)
            over = table.claimed.item(slot, row) - offered
            if name and over > 0:
                found[slot] = min(over, awaited)
        return found

    def defer_waiting(self, row: int) -> None:
        """Those that wait on the row claim no more of it than it has; for a trial only."""
        assert self._depth, "what somebody waits for must not be forgotten"
        excess = self.excess(row)
        for uid in self.holds.waiting.get(row, ()) if excess else ():
            hold = self.holds.get(uid)
            if hold is None:
                continue
            less = {slot: min(over, hold.left(slot)) for slot, over in excess.items()}
            amounts = {slot: reserved - less.get(slot, 0) for slot, reserved in hold.amounts.items()}
            self.resize(hold.pod, amounts)
            excess = {slot: over - less[slot] for slot, over in excess.items()}

    def allocate_from(self, pod: PodRecord, uid: str) -> None:
        """The pod takes the room of that reservation; of none if the uid is empty."""
        before, row = pod.reservation_uid, pod.row
        if before == uid:
            return
        if row < 0:
            pod.reservation_uid = uid
            return
        if before:
            self._take(pod, row, -1)
            self._notify_allocated(pod, -1)
        pod.reservation_uid = uid
        if uid:
            self._take(pod, row, 1)
            self._notify_allocated(pod, 1)
        self._usage_log.add(row)
        if self._depth:
            self._undo.append(lambda: self.allocate_from(pod, before))

    def free(self, row: int) -> NDArray[np.int64]:
        """What is left of each slot's resource on a row; negative where it is oversold."""
        return self._table.allocatable[:, row] - self._table.claimed[:, row]

    def of_pods(self, slot: int, row: int) -> int:
        """What pods claim of a row, without what reservations hold."""
        claimed: int = self._table.claimed.item(slot, row)
        for hold in self.holds.on(row):
            claimed -= hold.left(slot)
        return claimed

    def spare(
        self,
        row: int,
        needs: Iterable[tuple[int, int, str]],
        without: Iterable[PodRecord],
        besides: Iterable[PodRecord],
    ) -> dict[int, int]:
        """By slot, what is left of a row once somebody took what he needs of it (slot, amount, and
        what for), were some pods not there and those `besides` there too."""
        allocatable, claimed = self._table.allocatable, self._table.claimed
        left = {}
        for slot, amount, _ in needs:
            left[slot] = allocatable.item(slot, row) - claimed.item(slot, row) - amount
        for pod in without:
            for slot, amount in pod.cls.usage:
                if slot in left:
                    left[slot] += amount
        for pod in besides:
            for slot, amount in pod.cls.usage:
                if slot in left:
                    left[slot] -= amount
        return left

    def to_remove(self, spare: dict[int, int], pods: list[PodRecord]) -> list[PodRecord]:
        """Which of these pods are too many where so much is to spare; the first are kept first."""
        left = dict(spare)
        removed = []
        for pod in pods:
            claims = [(slot, amount) for slot, amount in pod.cls.usage if slot in left]
            if all(left[slot] >= amount for slot, amount in claims):
                for slot, amount in claims:
                    left[slot] -= amount
            else:
                removed.append(pod)
        return removed

    def freed(
        self, hold: ReservationRow, allocated_pods: Iterable[PodRecord], slots: Iterable[int]
    ) -> dict[int, int]:
        """By slot, what there is more of if a hold is gone, and pods that draw on it with it."""
        freed = {slot: hold.left(slot) for slot in slots}
        for pod in allocated_pods:
            for slot, amount in pod.cls.usage:
                if slot in freed:
                    freed[slot] += amount
        return freed

    def count(self, slots: frozenset[int]) -> None:
        """Pods claim something of these slots too from now on, as their classes say by now."""
        assert not self._depth, "what pods claim must not change under a transaction"
        self.holds.fills.forget_steps()
        for row, pods in self.pods.items():
            for pod in pods.values():
                for slot, amount in pod.cls.usage:
                    if slot in slots:
                        self._table.claimed[slot, row] += amount
                        if pod.cls.is_daemon:
                            self._table.daemon_requested[slot, row] += amount
            self._usage_log.add(row)

    def is_empty(self, row: int) -> bool:
        """Whether nobody claims anything of the row."""
        return row not in self.pods and not self.holds.any_on(row)

    @property
    def in_transaction(self) -> bool:
        """Whether what is done now may be undone."""
        return self._depth > 0

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """What is done inside stands only if `commit()` is called before the end."""
        transaction = Transaction()
        mark = len(self._undo)
        if not self._depth:
            self.transactions += 1
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
                depth, self._depth, self.undoing = self._depth, 0, True
                for step in reversed(steps):
                    step()
                self._depth, self.undoing = depth - 1, False
            self._tell_emptied()

    @contextmanager
    def peek(self) -> Iterator[None]:
        """What is done inside is undone at the end, and caches never hear of it; so none of them may be
        brought up to date inside."""
        mark = self._usage_log.end
        with self.transaction():
            yield
        self._usage_log.rewind(mark)

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
        cls, table = pod.cls, self._table
        on_row = self.pods.get(row)
        if sign > 0:
            if on_row is None:
                on_row = self.pods[row] = {}
            assert pod.uid not in on_row, f"{pod!r} is already on row {row}"
            on_row[pod.uid] = pod
            if cls.priority < table.lowest.item(row):
                table.lowest[row] = cls.priority
        else:
            assert on_row is not None
            del on_row[pod.uid]
            if not on_row:
                del self.pods[row]
            if cls.priority == table.lowest.item(row):
                table.lowest[row] = _lowest(on_row.values(), cls.priority)
        hold = self.holds.get(pod.reservation_uid) if pod.reservation_uid else None
        if hold is not None and hold.row == row:
            fill, claims = self.holds.fills.step(hold.fill, cls, sign)
            claimed = table.claimed
            for slot, amount in claims:
                claimed[slot, row] += amount
            table.held_outdated[row] = None
            self.holds.put(hold, fill)
        else:
            column, usage = table.claimed[:, row], cls.usage_column
            if len(usage) != len(column):
                usage = self._usage(cls)
            if sign > 0:
                column += usage
            else:
                column -= usage
        if cls.is_daemon:
            for slot, amount in cls.usage:
                table.daemon_requested[slot, row] += sign * amount
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
        self._usage_log.add(row)

    def _usage(self, cls: PodClass) -> NDArray[np.int64]:
        """What pods of the class claim of every slot there is by now."""
        cls.usage_column = np.zeros(len(self._table.claimed), dtype=np.int64)
        for slot, amount in cls.usage:
            cls.usage_column[slot] = amount
        return cls.usage_column

    def _notify_allocated(self, pod: PodRecord, sign: int) -> None:
        if self.on_allocated is not None:
            self.on_allocated(pod, sign)

    def _take(self, pod: PodRecord, row: int, sign: int) -> None:
        """A pod on the row draws on its reservation, or does so no more."""
        hold = self.holds.get(pod.reservation_uid)
        if hold is not None and hold.row == row:
            fill = self.holds.fills.after(hold.fill, pod.cls, sign)
            self._claim_left(hold, hold.remaining, fill)

    def _usage_by_pods(self, hold: ReservationRow, untouched: ReservationUsage) -> ReservationUsage:
        """What a hold is like given the pods on its row that draw on it."""
        fill, uid = untouched, hold.pod.uid
        for pod in self.pods.get(hold.row, {}).values():
            if pod.reservation_uid == uid:
                fill = self.holds.fills.after(fill, pod.cls, 1)
        return fill

    def _claim_left(self, hold: ReservationRow, before: Amounts, fill: ReservationUsage) -> None:
        """Claims what a hold has left by now, in place of what it had left before."""
        table, row, after = self._table, hold.row, fill.remaining
        for slot, left in after.items():
            more = left - before.get(slot, 0)
            if more:
                table.claimed[slot, row] += more
        for slot in before.keys() - after.keys():
            table.claimed[slot, row] -= before[slot]
        table.held_outdated[row] = None
        self.holds.put(hold, fill)
        self._usage_log.add(row)


def _lowest(pods: Iterable[PodRecord], at_least: int) -> int:
    """The lowest priority among them, if none can be below that."""
    lowest = NO_PODS
    for pod in pods:
        priority = pod.cls.priority
        if priority == at_least:
            return priority
        if priority < lowest:
            lowest = priority
    return lowest


class Transaction:
    __slots__ = ("committed",)

    def __init__(self) -> None:
        self.committed = False

    def commit(self) -> None:
        self.committed = True
