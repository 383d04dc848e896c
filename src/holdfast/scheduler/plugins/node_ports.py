"""NodePorts: a host port is given once per node, address and protocol. Ports that are reserved are
free to those they are reserved for."""

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import HostPort, conflict
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.cluster_plugin import ClusterPlugin
from holdfast.scheduler.framework.interface import Filter, Reason, Scope

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(ClusterPlugin):
    name = "NodePorts"
    wakes_on = Change.NODE_ADDED | Change.POD_LEFT

    def filter(self, cls: PodClass) -> Filter | None:
        if not cls.ports:
            return None
        in_use, nodes = self.cluster.nodes.ports, self.cluster.nodes
        reservations = self.cluster.reservations

        def passes(view: View) -> Cells:
            free = view.full(True)
            ours = reservations.reserving_for(cls)
            for port in cls.ports:
                uses: Cells = 0
                for counts in in_use.conflicts(port):
                    uses = uses + view.take(counts)
                for reserving in ours:
                    if any(conflict(port, theirs) for theirs in reserving.ports):
                        uses = uses - view.take(reserved(port, reserving, nodes.capacity))
                free = free & (uses == 0)
            return free

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, view.negate(passes(view)))]

        return Filter(passes, reasons, Scope.USAGE)


def reserved(port: HostPort, reserving: PodClass, capacity: int) -> NDArray[np.int32]:
    """How often reserve pods of a class keep the port on each row."""
    uses = np.zeros(capacity, dtype=np.int32)
    times = sum(conflict(port, theirs) for theirs in reserving.ports)
    for row, count in reserving.placed.items():
        uses[row] = times * count
    return uses
