"""What queues that have more than they deserve could be asked to give back, and where.

    look_ahead   those on their way out are gone, as far as the ledger tells inside its transaction
    coming       what those will have for whom room is being made

Where the room of those that may go, and what is free, is too little for a pod, nobody needs to try.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.core.cluster import Cluster
from holdfast.core.jobs.queues import QueueRecord
from holdfast.core.pods import Phase, PodRecord
from holdfast.core.slots import PODS
from holdfast.framework.column import Column

_NOBODY = np.iinfo(np.int64).max

Rows = NDArray[np.intp]


class Giving:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues = cluster.jobs.queues
        self._givers = {record.name for record in self._queues if self._could_give(record)}
        self._coming: dict[tuple[str, int], int] = {}
        self._room = np.zeros((0, 0), dtype=np.int64)
        self._lowest = np.zeros(0, dtype=np.int64)

    def __bool__(self) -> bool:
        return bool(self._givers)

    def look_ahead(self) -> None:
        """Inside a transaction: what is under way is taken as done."""
        cluster, nodes = self._cluster, self._cluster.nodes
        pods = self._queues.placed()
        for pod in pods:
            if pod.row >= 0 and _is_going(pod):
                cluster.ledger.remove(pod)
        self._room = np.zeros((len(nodes.slots), nodes.size), dtype=np.int64)
        self._lowest = np.full(nodes.size, _NOBODY)
        for pod in pods:
            if pod.row >= 0 and self.may_go(pod):
                for slot, amount in pod.cls.amounts.items():
                    self._room[slot, pod.row] += amount
                self._lowest[pod.row] = min(self._lowest[pod.row], pod.cls.priority)
        for node, there in cluster.nominations.items():
            for pod in there.values():
                if pod.phase is Phase.PENDING:
                    self.expect(pod, nodes.row(node))

    def may_go(self, pod: PodRecord) -> bool:
        """Whether the pod may be asked to, by a queue that is owed something."""
        return (
            self._queues.of(pod) in self._givers
            and not pod.cls.spared
            and not pod.cls.permanent
            and not _is_going(pod)
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

    def expect(self, pod: PodRecord, row: int | None) -> None:
        """The pod will have a place there."""
        if row is not None:
            for slot, amount in pod.cls.amounts.items():
                self._room[slot, row] -= amount
        for record in self._queues.path(self._queues.of(pod)):
            for slot, amount in pod.cls.amounts.items():
                key = record.name, slot
                self._coming[key] = self._coming.get(key, 0) + amount

    def coming(self, record: QueueRecord, slot: int) -> int:
        """What pods of the queue will have for whom room is being made."""
        return self._coming.get((record.name, slot), 0)

    def takes(self, victim: PodRecord) -> None:
        """The victim is going to go."""
        row = victim.row
        if row < 0:
            return
        for slot, amount in victim.cls.amounts.items():
            self._room[slot, row] -= amount
        ledger = self._cluster.ledger
        ledger.remove(victim)
        rest = (pod.cls.priority for pod in ledger.pods.get(row, {}).values() if self.may_go(pod))
        self._lowest[row] = min(rest, default=_NOBODY)

    def _could_give(self, record: QueueRecord) -> bool:
        return record.reclaimable and any(
            slot < len(record.share) and has > record.share[slot]
            for slot, has in record.allocated.items()
            if slot != PODS
        )


def _is_going(pod: PodRecord) -> bool:
    return pod.disrupted or pod.cls.terminating
