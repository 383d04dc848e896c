"""What queues that have more than they deserve could be asked to give back, and where.

Inside a transaction of the ledger those on their way out are gone: room that comes free by itself need
not be made. Where the room of those that may go, and what is free, is too little for a pod, nobody
needs to try.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.actions.room_in_queue import is_critical
from holdfast.core.cluster import Cluster
from holdfast.core.jobs.queues import Foresight, QueueRecord
from holdfast.core.pods import PodRecord
from holdfast.core.slots import PODS
from holdfast.framework.column import Column

_NOBODY = np.iinfo(np.int64).max

Rows = NDArray[np.intp]


class Giving:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues = cluster.jobs.queues
        self._givers = {record.name for record in self._queues if _could_give(record)}
        nodes = cluster.nodes
        self._room = np.zeros((len(nodes.slots), nodes.size), dtype=np.int64)
        self._lowest = np.full(nodes.size, _NOBODY)
        """The importance of the least important on every row that may go."""
        self.emptying: set[int] = set()
        """The rows some are on their way out of."""

    def __bool__(self) -> bool:
        return bool(self._givers)

    def look_ahead(self, foresight: Foresight) -> None:
        """Inside a transaction, and while that is looked at."""
        for pod in self._queues.placed():
            if pod.row < 0:
                continue
            if is_going(pod):
                foresight.coming(pod)  # it was taken off once
                self._leaves(pod)
            elif self.may_go(pod):
                for slot, amount in pod.cls.amounts.items():
                    self._room[slot, pod.row] += amount
                self._lowest[pod.row] = min(self._lowest[pod.row], pod.cls.priority)

    def may_go(self, pod: PodRecord) -> bool:
        """Whether the pod may be asked to, by a queue that is owed something."""
        return (
            self._queues.of(pod) in self._givers
            and not pod.cls.spared
            and not pod.cls.permanent
            and not is_critical(pod)
            and not is_going(pod)
            and pod.uid not in self._cluster.not_evicted_before
        )

    def rows(self, among: NDArray[np.bool_], pod: PodRecord, column: Column) -> Rows:
        """Those of the rows where there could be room for the pod, where the least important are that
        could go first."""
        nodes = self._cluster.nodes
        among = among & (self._lowest < _NOBODY)
        if not column.owned and pod.uid not in self._cluster.promises.rooms:
            for slot, asked in pod.cls.requests:
                free = nodes.allocatable[slot, : nodes.size] - nodes.claimed[slot, : nodes.size]
                among &= free + self._room[slot] >= asked
        rows: Rows = np.flatnonzero(among)
        return rows[np.argsort(self._lowest[rows], kind="stable")]

    def takes(self, victim: PodRecord) -> None:
        """The victim is going to go."""
        row = victim.row
        if row < 0:
            return
        for slot, amount in victim.cls.amounts.items():
            self._room[slot, row] -= amount
        self._leaves(victim)
        there = self._cluster.ledger.pods.get(row, {}).values()
        self._lowest[row] = min((p.cls.priority for p in there if self.may_go(p)), default=_NOBODY)

    def expects(self, pod: PodRecord, row: int) -> None:
        """The pod will have a place on the row."""
        for slot, amount in pod.cls.amounts.items():
            self._room[slot, row] -= amount

    def _leaves(self, pod: PodRecord) -> None:
        self.emptying.add(pod.row)
        self._cluster.ledger.remove(pod)


def is_going(pod: PodRecord) -> bool:
    """Whether it was asked to go, or is on its way out."""
    return pod.disrupted or pod.cls.terminating


def _could_give(record: QueueRecord) -> bool:
    return record.reclaimable and any(
        slot < len(record.share) and has > record.share[slot]
        for slot, has in record.allocated.items()
        if slot != PODS
    )
