"""What came of rows, for those that are like them.

Pods that are alike fill nodes that are alike in the same steps: what is found out about one row is true
of the next one that has as much claimed of as much. Where rows turn out to be all different, it costs
more than it saves to remember them, and is given up.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.cluster.node_table import NodeTable

KEPT = 4096

T = TypeVar("T")


class RowMemo(Generic[T]):
    __slots__ = ("_changed", "_since", "known", "worth_it")

    def __init__(self, changed: RowLog) -> None:
        """`changed` tells how much came of what is remembered."""
        self._changed = changed
        self._since = changed.end
        self.known: dict[Hashable, T] = {}
        self.worth_it = True

    def remember(self, key: Hashable, outcome: T) -> None:
        self.known[key] = outcome
        if len(self.known) < KEPT:
            return
        since, self._since = self._since, self._changed.end
        self.worth_it = self._since - since > 4 * KEPT
        self.known.clear()


def amounts(table: NodeTable, row: int) -> tuple[bytes, bytes]:
    """What is claimed of a row, and what it has."""
    return table.claimed[:, row].tobytes(), table.allocatable[:, row].tobytes()
