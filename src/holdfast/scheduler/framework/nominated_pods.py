"""The capacity of nominated pods: other pods are filtered as if these were on their node already.

As in kube-scheduler (`RunFilterPluginsWithNominatedPods`), a pod must fit a node both with the node's
nominated pods added and without them, and the reasons found with them are reported first. Only those
nominated pods are added that the pod has to leave capacity to: pods of the same or higher priority, and
pods of queues from which it may not preempt. If a reservation holds capacity for a nominated pod, that
capacity is counted once, with the reservation. Where only amounts decide, the requests are added by
arithmetic (`lacking_capacity`), else the pods are placed in the ledger (`add_nominated_pods`).

Which pods are nominated to a node is in the nominator (`cluster.nominator`); which of them a pod has to
leave capacity to is `Cluster.nominated_pods_for` (`scheduler.state.cluster`).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from weakref import proxy

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.state.cluster import Cluster


class NominatedPodsCheck:
    """The rejections a class gets on nodes with nominated pods of the same or higher priority; only for
    local columns (`ClassColumn.is_local`). Belongs to the class's diagnosis."""

    def __init__(self, cluster: Cluster, column: ClassColumn) -> None:
        self._cluster = cluster
        self._column: ClassColumn = proxy(column)  # the column owns this check

    def rows(self) -> list[int]:
        if not self._column.is_local:
            return []
        nodes = self._cluster.nodes
        rows = map(nodes.row, self._cluster.nominator)
        return [row for row in rows if row is not None and nodes.alive[row]]

    def rejection(self, row: int) -> NodeRejection | None:
        if not self._column.is_local:
            return None
        cluster = self._cluster
        priority = self._column.cls.priority
        nominated_pods = [p for p in cluster.nominated_pods(row) if p.cls.priority >= priority]
        if not nominated_pods:
            return None
        if only_capacity_matters(cluster, self._column, row, nominated_pods):
            return lacking_capacity(cluster, self._column, row, nominated_pods)
        with add_nominated_pods(cluster, nominated_pods, row, cluster.ledger.peek()):
            rejection = self._column.diagnosis.rejection(row)
        return rejection if rejection.plugin else None


def only_capacity_matters(
    cluster: Cluster, column: ClassColumn, row: int, nominated_pods: list[PodRecord]
) -> bool:
    """Whether the row passes every filter but those on capacity and topology."""
    return (
        column.needs is not None
        and not any(
            cluster.reservations.reservation_for_nominated(nominated, row)
            for nominated in nominated_pods
        )
        and column.passes_node_filters(row)
    )


def lacking_capacity(
    cluster: Cluster, column: ClassColumn, row: int, nominated_pods: list[PodRecord]
) -> NodeRejection | None:
    """The rejection for insufficient capacity with the nominated pods on the row, if there is one."""
    needs = column.needs or ()
    spare = cluster.ledger.spare(row, needs, (), nominated_pods)
    lacking = [need for need in needs if spare[need.slot] < 0]
    if not lacking:
        return None
    allocatable = cluster.nodes.allocatable
    resolvable = all(n.slot == PODS or n.amount <= allocatable.item(n.slot, row) for n in lacking)
    return NodeRejection(column.needs_plugin, tuple(need.text for need in lacking), resolvable)


@contextmanager
def add_nominated_pods(
    cluster: Cluster, pods: list[PodRecord], row: int, undone: AbstractContextManager[object]
) -> Iterator[None]:
    """Adds the requests of nominated pods to the row until the end of the block, when `undone` rolls
    them back. They are allocated from the reservations that they will use there."""
    try:
        with undone:
            for pod in pods:
                pod.reservation_uid = cluster.reservations.reservation_for_nominated(pod, row)
                cluster.ledger.place(pod, row)
            yield
    finally:
        for pod in pods:
            pod.reservation_uid = ""
