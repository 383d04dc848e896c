"""NodePorts: a host port is allocated once per node, address and protocol.

Ports of a reservation are free for an owner that could be allocated from it, and closed to all others:
`holdfast.scheduler.reservations.reserved_ports`.
"""

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import Filter, Plugin, Reason, Scope, everywhere

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(Plugin):
    name = "NodePorts"
    wakes_on = Change.NODE_ADDED | Change.POD_LEFT

    def filter(self, cls: PodClass) -> Filter | None:
        if not cls.ports:
            return None
        taken = self.handle.taken_ports(cls)  # less what is reserved for the class: ReservedPorts

        def passes(view: View) -> Cells:
            return view.take(taken) == 0

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, view.negate(passes(view)))]

        return Filter(passes, reasons, Scope.USAGE, lasting=everywhere)
