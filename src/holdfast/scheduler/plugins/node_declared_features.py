"""NodeDeclaredFeatures: a pod that needs a feature of the kubelet fits only nodes that declare it."""

from typing import Any

import numpy as np

from holdfast.scheduler.cluster.class_key import FEATURES
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NodeInfo
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import Filter, Plugin, Reason, Scope

REASON = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures(Plugin):
    name = "NodeDeclaredFeatures"
    wakes_on = Change.NODE_ADDED | Change.NODE_OTHER

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._declared = handle.nodes.column(_declared, 0, np.int64)

    def filter(self, cls: PodClass) -> Filter | None:
        if not cls.features:
            return None
        required = _bits(cls.features)

        def passes(view: View) -> Cells:
            return (view.take(self._declared) & required) == required

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, view.negate(passes(view)), resolvable=False)]

        return Filter(passes, reasons, Scope.NODE)


def _declared(node: NodeInfo) -> int:
    return _bits(node.features)


def _bits(features: frozenset[str] | list[str]) -> int:
    """One bit for each known feature; a node may declare others, which no pod requires."""
    return sum(1 << position for position, name in enumerate(FEATURES) if name in features)
