"""NodePorts: a host port is given once per node, address and protocol."""

from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.core.view import Cells, View
from holdfast.framework.interface import Filter, Plugin, Reason, Scope

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(Plugin):
    name = "NodePorts"
    wakes_on = Change.NODE_ADDED | Change.POD_LEFT

    def filter(self, cls: PodClass) -> Filter | None:
        if not cls.ports:
            return None
        in_use = self.cluster.nodes.ports

        def passes(view: View) -> Cells:
            free = view.full(True)
            for port in cls.ports:
                for counts in in_use.conflicts(port):
                    free = free & (view.take(counts) == 0)
            return free

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, passes(view) == False)]  # noqa: E712

        return Filter(passes, reasons, Scope.USAGE)
