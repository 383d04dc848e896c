"""NodeUnschedulable: a cordoned node is infeasible unless the pod tolerates its taint."""

from typing import Any

import numpy as np

from holdfast.api.affinity import Taint
from holdfast.api.names import TAINT_UNSCHEDULABLE
from holdfast.api.selectors import tolerated
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import Filter, Plugin, Reason, Scope

REASON = "node(s) were unschedulable"
_CORDON = Taint(key=TAINT_UNSCHEDULABLE, effect="NoSchedule")


class NodeUnschedulable(Plugin):
    name = "NodeUnschedulable"
    wakes_on = Change.NODE_ADDED | Change.NODE_TAINTS

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._cordoned = handle.nodes.column(lambda node: node.unschedulable, False, np.bool_)

    def filter(self, cls: PodClass) -> Filter | None:
        if tolerated(_CORDON, cls.tolerations):
            return None
        return Filter(self._passes, self._reasons, Scope.NODE)

    def _passes(self, view: View) -> Cells:
        return view.negate(view.take(self._cordoned))

    def _reasons(self, view: View) -> list[Reason]:
        return [Reason(REASON, view.take(self._cordoned), resolvable=False)]
