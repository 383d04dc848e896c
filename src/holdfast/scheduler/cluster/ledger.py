"""The ledger: which pods and reservations claim how much of which node.

All arithmetic on node capacity is here. For every node and resource

    claimed = requests of the node's pods + unallocated amounts of the node's reservations
    free    = allocatable - claimed

A pod that is allocated from a reservation claims its requests, and the reservation claims that much
less (`reservation_table`).

A change made outside a transaction is final. Transactions nest; rolling one back restores every number
exactly, by undoing its steps in reverse order. The rows it touched stay in `Epoch.usage` either way,
because caches may have read them in between; `Ledger.peek` is the exception.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_table import NO_PODS, Held, NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.reservation_table import ReservationTable
from holdfast.scheduler.cluster.reservation_usage import ReservationUsage
from holdfast.scheduler.cluster.slots import Amounts

Listener = Callable[[PodRecord, int, int], None]


class Ledger:
    """Claims of pods and reservations on the rows of a node table."""

    def __init__(
        self,
        table: NodeTable,
        usage: RowLog,
        allowed: Callable[[int, int], tuple[str, int]] = lambda slot, row: ("", 0),
        on_emptied: Callable[[int], None] | None = None,
    ) -> None:
        """For a slot that is not a resource (a sum of limits), `allowed` returns its name, and its
        maximum on a row; the name is empty if the slot has no maximum. `on_emptied` is called with a
        row that has no pods and no reservations any more, outside transactions."""
        self._table = table
        self._undo: list[Callable[[], None]] = []
        self._depth = 0
        self.transactions = 0
        """How many outermost transactions were begun so far."""
        self.undoing = False
        """Whether a transaction is being rolled back now."""
        self._usage_log = usage
        self.pods: dict[int, dict[str, PodRecord]] = {}
        """The pods on each row, by uid."""
        self.reservations = ReservationTable(table.slots.sums)
        """The reservations that are on a row, with their reserved and remaining amounts."""
        if table.held_on is None:
            table.held_on = self._held_on
        self.listeners: list[Listener] = []
        """Called with (pod, row, +1 or -1) when a pod or reserve pod is added to or removed from a
        row."""
        self.allocation_listeners: list[Callable[[PodRecord, int], None]] = []
        """Called with (pod, +1 or -1) when a pod that stays on its row is allocated from a reservation,
        or is no longer."""
        self._on_emptied = on_emptied
        self._allowed = allowed
        self._emptied: list[int] = []

    def _held_on(self, row: int) -> list[Held]:
        return [
            Held(entry.remaining, self._held_in_the_end(entry)) for entry in self.reservations.on(row)
        ]

    def _held_in_the_end(self, entry: ReservationEntry) -> Amounts:
        """What a reservation will claim once all pods allocated from it have ended, except daemon
        pods."""
        taken = self.taken_permanently(entry)
        if taken is entry.taken:
            return entry.remaining
        return {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in entry.amounts.items()}

    def taken_permanently(self, entry: ReservationEntry) -> Amounts:
        """The part of a reservation's allocated amounts that does not return to it when pods end: that
        of daemon pods, and everything if the reservation is allocate-once. Not to be written to."""
        if entry.reservation.once or not entry.taken:
            return entry.taken
        taken: Amounts = {}
        for pod in self.pods.get(entry.row, {}).values():
            if pod.reservation_uid == entry.pod.uid and pod.cls.is_daemon:
                for slot, amount in pod.cls.usage:
                    if slot in entry.amounts:
                        taken[slot] = taken.get(slot, 0) + amount
        return taken

    def place(self, pod: PodRecord, row: int) -> None:
        """Adds the pod to the row, where it claims its requests."""
        self._move(pod, row, 1)
        pod.row = row
        if self._depth:
            self._undo.append(lambda: self.remove(pod))

    def remove(self, pod: PodRecord) -> None:
        """Removes the pod from its row and releases its claim."""
        row = pod.row
        self._move(pod, row, -1)
        pod.row = -1
        if self._depth:
            self._undo.append(lambda: self.place(pod, row))
        self._left(row)

    def reserve(self, pod: PodRecord, row: int, amounts: Amounts) -> None:
        """Adds a reserve pod to the row, where it reserves these amounts. Pods that are on the row
        already and are allocated from it are counted as such."""
        entry = self.reservations.open(pod, row, amounts)
        pod.row = row
        if pod.cls.priority < self._table.lowest_held.item(row):
            self._table.lowest_held[row] = pod.cls.priority
        self._claim_left(entry, {}, self._usage_by_pods(entry, entry.usage))
        self._present(pod, row, 1)
        if self._depth:
            self._undo.append(lambda: self.release(pod))

    def release(self, pod: PodRecord) -> None:
        """Removes a reserve pod from its row and releases its remaining amounts."""
        entry = self.reservations.get(pod.uid)
        assert entry is not None, f"{pod!r} holds no capacity"
        table, row, amounts = self._table, entry.row, entry.amounts
        for slot, left in entry.remaining.items():
            if left:
                table.claimed[slot, row] -= left
        table.held_outdated[row] = None
        self.reservations.close(entry)
        if pod.cls.priority == table.lowest_held.item(row):
            others = [each.pod.cls.priority for each in self.reservations.on(row)]
            table.lowest_held[row] = min(others) if others else NO_PODS
        self._present(pod, row, -1)
        pod.row = -1
        if self._depth:
            self._undo.append(lambda: self.reserve(pod, row, amounts))
        self._left(row)

    def resize(self, pod: PodRecord, amounts: Amounts) -> None:
        """Changes the reserved amounts of a reserve pod."""
        entry = self.reservations.get(pod.uid)
        assert entry is not None, f"{pod!r} holds no capacity"
        before = entry.amounts
        usage = self._usage_by_pods(entry, self.reservations.renewed(entry, amounts))
        self._claim_left(entry, entry.remaining, usage)
        if self._depth:
            self._undo.append(lambda: self.resize(pod, before))

    def excess(self, row: int) -> dict[int, int]:
        """By slot, by how much the row is over-claimed because of its waiting reservations."""
        table, found = self._table, {}
        for slot, awaited in self.reservations.awaited(row).items():
            name, offered = table.slots.name(slot), table.allocatable.item(slot, row)
            if not name:
                name, offered = self._allowed(slot, row)
            over = table.claimed.item(slot, row) - offered
            if name and over > 0:
                found[slot] = min(over, awaited)
        return found

    def defer_waiting(self, row: int) -> None:
        """Shrinks the waiting reservations on the row until it is not over-claimed. Only inside a
        transaction that is rolled back (a dry run)."""
        assert self._depth, "waiting reservations may be shrunk only inside a transaction"
        excess = self.excess(row)
        for uid in self.reservations.waiting.get(row, ()) if excess else ():
            entry = self.reservations.get(uid)
            if entry is None:
                continue
            less = {slot: min(over, entry.left(slot)) for slot, over in excess.items()}
            amounts = {slot: reserved - less.get(slot, 0) for slot, reserved in entry.amounts.items()}
            self.resize(entry.pod, amounts)
            excess = {slot: over - less[slot] for slot, over in excess.items()}

    def allocate_from(self, pod: PodRecord, uid: str) -> None:
        """Allocates the pod from the reservation with this uid, from none if it is empty."""
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
        """The free amount of each slot on a row; negative where the row is over-claimed."""
        return self._table.allocatable[:, row] - self._table.claimed[:, row]

    def of_pods(self, slot: int, row: int) -> int:
        """The part of `claimed` that pods claim, without the remaining amounts of reservations."""
        claimed: int = self._table.claimed.item(slot, row)
        for entry in self.reservations.on(row):
            claimed -= entry.left(slot)
        return claimed

    def spare(
        self,
        row: int,
        needs: Iterable[tuple[int, int, str]],
        without: Iterable[PodRecord],
        besides: Iterable[PodRecord],
    ) -> dict[int, int]:
        """By slot, what is free on a row after an allocation of `needs` (slot, amount, and name), if
        the pods in `without` were gone and those in `besides` were added."""
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
        """The pods that do not fit into the spare amounts. Pods are tried in order, and those that fit
        are kept."""
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
        self, entry: ReservationEntry, allocated_pods: Iterable[PodRecord], slots: Iterable[int]
    ) -> dict[int, int]:
        """By slot, what becomes free if a reservation is removed together with these pods that are
        allocated from it."""
        freed = {slot: entry.left(slot) for slot in slots}
        for pod in allocated_pods:
            for slot, amount in pod.cls.usage:
                if slot in freed:
                    freed[slot] += amount
        return freed

    def count(self, slots: frozenset[int]) -> None:
        """Adds the claims of all pods on new slots, which were just added to the usage of their
        classes."""
        assert not self._depth, "the usage of classes must not change inside a transaction"
        self.reservations.usage_states.forget_steps()
        for row, pods in self.pods.items():
            for pod in pods.values():
                for slot, amount in pod.cls.usage:
                    if slot in slots:
                        self._table.claimed[slot, row] += amount
                        if pod.cls.is_daemon:
                            self._table.daemon_requested[slot, row] += amount
            self._usage_log.add(row)

    def is_empty(self, row: int) -> bool:
        """Whether the row has neither pods nor reservations."""
        return row not in self.pods and not self.reservations.any_on(row)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, so that changes made now may be rolled back."""
        return self._depth > 0

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """Rolls back the changes made inside, unless `commit()` was called."""
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
            self._notify_emptied()

    @contextmanager
    def peek(self) -> Iterator[None]:
        """Rolls back the changes made inside and removes their entries from `Epoch.usage`. No cache may
        be brought up to date inside, or it would keep what was rolled back."""
        mark = self._usage_log.end
        with self.transaction():
            yield
        self._usage_log.rewind(mark)

    def _left(self, row: int) -> None:
        """Notes a row that lost a pod or reservation and may be empty now."""
        if row not in self.pods:
            self._emptied.append(row)
            self._notify_emptied()

    def _notify_emptied(self) -> None:
        """Calls `_on_emptied` for the rows that were emptied, once no transaction is open and none is
        being rolled back: that may fill them again."""
        if self._depth or self.undoing or not self._emptied:
            return
        rows, self._emptied = self._emptied, []
        for row in dict.fromkeys(rows):
            if self._on_emptied is not None and self.is_empty(row):
                self._on_emptied(row)

    def _move(self, pod: PodRecord, row: int, sign: int) -> None:
        """Adds a pod's claim to a row (+1) or subtracts it (-1). What the pod requests of a reservation
        on the row is subtracted from the reservation's claim, or added to it again."""
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
        entry = self.reservations.get(pod.reservation_uid) if pod.reservation_uid else None
        if entry is not None and entry.row == row:
            usage, claims, _ = self.reservations.usage_states.step(entry.usage, cls, sign)
            claimed = table.claimed
            for slot, amount in claims:
                claimed[slot, row] += amount
            table.held_outdated[row] = None
            self.reservations.put(entry, usage)
        else:
            column, claim = table.claimed[:, row], cls.usage_column
            if len(claim) != len(column):
                claim = self._usage(cls)
            if sign > 0:
                column += claim
            else:
                column -= claim
        if cls.is_daemon:
            for slot, amount in cls.usage:
                table.daemon_requested[slot, row] += sign * amount
        self._present(pod, row, sign)

    def _present(self, pod: PodRecord, row: int, sign: int) -> None:
        """Counts a pod or reserve pod on its row in what is not an amount: host ports, pods per class,
        and whatever the listeners keep."""
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
        """The usage of a class as a column of the node table, made again when slots were added."""
        cls.usage_column = np.zeros(len(self._table.claimed), dtype=np.int64)
        for slot, amount in cls.usage:
            cls.usage_column[slot] = amount
        return cls.usage_column

    def _notify_allocated(self, pod: PodRecord, sign: int) -> None:
        for listen in self.allocation_listeners:
            listen(pod, sign)

    def _take(self, pod: PodRecord, row: int, sign: int) -> None:
        """Adds a pod on the row to its reservation's allocated amounts, or subtracts it."""
        entry = self.reservations.get(pod.reservation_uid)
        if entry is not None and entry.row == row:
            usage = self.reservations.usage_states.after(entry.usage, pod.cls, sign)
            self._claim_left(entry, entry.remaining, usage)

    def _usage_by_pods(self, entry: ReservationEntry, untouched: ReservationUsage) -> ReservationUsage:
        """The usage of a reservation by the pods on its row that are allocated from it."""
        usage, uid = untouched, entry.pod.uid
        for pod in self.pods.get(entry.row, {}).values():
            if pod.reservation_uid == uid:
                usage = self.reservations.usage_states.after(usage, pod.cls, 1)
        return usage

    def _claim_left(self, entry: ReservationEntry, before: Amounts, usage: ReservationUsage) -> None:
        """Sets the usage of a reservation, and claims its remaining amounts in place of `before`."""
        table, row, after = self._table, entry.row, usage.remaining
        for slot, left in after.items():
            more = left - before.get(slot, 0)
            if more:
                table.claimed[slot, row] += more
        for slot in before.keys() - after.keys():
            table.claimed[slot, row] -= before[slot]
        table.held_outdated[row] = None
        self.reservations.put(entry, usage)
        self._usage_log.add(row)


def _lowest(pods: Iterable[PodRecord], at_least: int) -> int:
    """The lowest priority of the pods, of which none is below `at_least`."""
    lowest = NO_PODS
    for pod in pods:
        priority = pod.cls.priority
        if priority == at_least:
            return priority
        if priority < lowest:
            lowest = priority
    return lowest


class Transaction:
    """Whether an open transaction is to be kept."""

    __slots__ = ("committed",)

    def __init__(self) -> None:
        self.committed = False

    def commit(self) -> None:
        self.committed = True
