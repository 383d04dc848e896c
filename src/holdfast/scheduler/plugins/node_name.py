"""NodeName: a pod with a node name fits only that node."""

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import Filter, Plugin, Reason, Scope

REASON = "node(s) didn't match the requested node name"
REASON_RESERVING = "node(s) didn't match the nodeName specified by reservation"


class NodeName(Plugin):
    name = "NodeName"
    wakes_on = Change.NODE_ADDED

    def filter(self, cls: PodClass) -> Filter | None:
        wanted = cls.wants_node
        if not wanted:
            return None
        nodes = self.handle.nodes
        text = REASON if cls.owner_spec_id < 0 else REASON_RESERVING

        def passes(view: View) -> Cells:
            row = nodes.row(wanted)
            return view.rows == (-1 if row is None else row)

        def reasons(view: View) -> list[Reason]:
            return [Reason(text, view.negate(passes(view)), resolvable=False)]

        return Filter(passes, reasons, Scope.NODE)
