from __future__ import annotations

from holdfast.api.affinity import Taint
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState
from reference.taint_toleration import is_tolerated


class NodeUnschedulable(ReferencePlugin):
    name = "NodeUnschedulable"

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
        if not node.spec.unschedulable or is_tolerated(cordon, pod.spec.tolerations):
            return None
        return Unfit(("node(s) were unschedulable",), False)
