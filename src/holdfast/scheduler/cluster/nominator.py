"""The nominator: pending pods with a nominated node, by node, as in kube-scheduler.

Their requests are added to the node when other pods are filtered: `framework.nominated_pods`. Which
pods have to leave them capacity, between queues: `Queues.defers_to`.
"""

from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.records import PodRecord


class Nominator(dict[str, dict[str, PodRecord]]):
    """Pods by the name of their nominated node, and then by uid. A dictionary, because it is looked up
    for every pod that is scheduled."""

    def __init__(self, nodes: NodeTable, epoch: Epoch) -> None:
        self._nodes = nodes
        self._epoch = epoch

    def set(self, pod: PodRecord, node: str) -> None:
        """Sets the pod's nominated node; an empty name clears it."""
        if pod.nominated:
            there = self[pod.nominated]
            del there[pod.uid]
            if not there:
                del self[pod.nominated]
        for name in (pod.nominated, node):
            row = self._nodes.row(name)
            if row is not None:
                self._epoch.usage.add(row)
        pod.nominated = node
        if node:
            self.setdefault(node, {})[pod.uid] = pod
