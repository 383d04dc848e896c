"""The epoch: versions of the parts of the cluster state, by which caches find what is out of date.

A cache remembers the positions at which it was filled, and compares them when it is read again. A part
is either a counter, or a log of which rows (or reservations) changed, whose `end` is the counter.

| part            | kind  | moves when
| --------------- | ----- | ----------------------------------------------------------------------
| `nodes`         | rows  | a node object is added, changed or removed in a way a plugin can see
| `usage`         | rows  | capacity of a row is claimed or released; a nomination to it, a reservation
|                 |       | on it, or what its CPUs, devices and volumes leave free changes
| `pod_starts`    | rows  | it becomes known when a pod on the row started
| `reservations`  | uids  | a reservation is added, moves, ends, is deleted, or changes in a way that
|                 |       | may matter to its owners
| `owners`        | count | a set of owners that reservations name appears or disappears
| `objects`       | count | a node or another object changes, except pods; a pod class appears or
|                 |       | disappears; a starvation hold moves
| `kinds[kind]`   | count | an object of that kind changes (kinds the scheduler keeps as they are)
| `jobs`          | count | members, members on nodes, or the settings of a job change
| `victims`       | rows  | what limits the choice of victims in a job changes, of which pods are on the
|                 |       | row (`JobVictims.update`)
| `queues`        | count | a Queue changes, or which queue a pod is in
| `run_estimates` | count | how long pods are expected to run changes
| `inputs`        | count | anything changes that can affect a decision, except starvation holds: the
|                 |       | effects of creating one are no reason to create it again

No part moves back, with one exception: `Ledger.peek` rolls its changes back and removes their entries
from `usage`, so nothing may be brought up to date inside it.

Data derived from one part alone, for one reader, keeps its own counter beside it:
`PodCounter` (pods of a selector by domain), `RawObjects`, the interned labels and images of the node
table, the resource managers.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

_FIRST = 64
"""Entries a log has space for at first: there can be thousands of logs, of which few are ever long."""
_KEPT_UIDS = 16384


class RowLog:
    """Which rows changed, in order. A reader keeps a position and reads on from there. The oldest half
    is dropped when the log is full; `since` then returns None to a reader that needs it."""

    __slots__ = ("_base", "_most", "_rows", "end")

    def __init__(self, keep: int = 65536) -> None:
        self._most = 2 * keep
        self._rows: NDArray[np.intp] = np.zeros(min(_FIRST, self._most), dtype=np.intp)
        self._base = 0
        self.end = 0
        """The position after the newest entry."""

    def add(self, row: int) -> None:
        at = self.end - self._base
        if at == len(self._rows):
            if at < self._most:
                self._rows = np.pad(self._rows, (0, min(at, self._most - at)))
            else:
                at //= 2
                self._rows[:at] = self._rows[at:]
                self._base += at
        self._rows[at] = row
        self.end += 1

    def newest(self) -> int:
        """The row added last, of which there must be one."""
        return self._rows.item(self.end - self._base - 1)

    def rewind(self, position: int) -> None:
        """Removes the entries since `position`, which no reader may have read yet."""
        self.end = max(position, self._base)

    def since(self, position: int) -> NDArray[np.intp] | None:
        """Rows changed since `position`, with repeats; None if that is no longer known."""
        if position < self._base:
            return None
        return self._rows[position - self._base : self.end - self._base]


class UidLog:
    """Like `RowLog`, for uids."""

    __slots__ = ("_base", "_uids")

    def __init__(self) -> None:
        self._uids: list[str] = []
        self._base = 0

    @property
    def end(self) -> int:
        """The position after the newest entry."""
        return self._base + len(self._uids)

    def add(self, uid: str) -> None:
        self._uids.append(uid)
        if len(self._uids) > 2 * _KEPT_UIDS:
            self._base += _KEPT_UIDS
            del self._uids[:_KEPT_UIDS]

    def since(self, position: int) -> list[str] | None:
        """Uids added since `position`, with repeats; None if that is no longer known."""
        return None if position < self._base else self._uids[position - self._base :]


class Epoch:
    """The versions of the parts of one cluster's state; the module's docstring lists them."""

    def __init__(self) -> None:
        self.nodes = RowLog()
        self.usage = RowLog()
        self.pod_starts = RowLog(keep=4096)
        self.reservations = UidLog()
        self.owners = 0
        self.objects = 0
        self.kinds: Counter[str] = Counter()
        self.jobs = 0
        self.victims = RowLog(keep=4096)
        self.queues = 0
        self.run_estimates = 0
        self.inputs = 0

    def of_feasibility(self) -> tuple[int, ...]:
        """A version of everything that filter and score results of a class depend on."""
        return self.usage.end, self.nodes.end, self.objects, self.owners
