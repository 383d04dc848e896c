from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState


class NodeName(ReferencePlugin):
    name = "NodeName"

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        if pod.spec.node_name in ("", node.metadata.name):
            return None
        return Unfit(("node(s) didn't match the requested node name",), False)
