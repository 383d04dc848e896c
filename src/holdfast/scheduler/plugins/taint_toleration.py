"""TaintToleration: filters nodes with taints that a pod does not tolerate, and prefers nodes with fewer
untolerated PreferNoSchedule taints.

A class's tolerations are evaluated once per distinct set of taints, so a node costs one table look-up.
"""

from holdfast.api.affinity import Toleration
from holdfast.api.selectors import HARD_EFFECTS, find_untolerated, tolerated
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import TaintSet
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    ByMaximum,
    Filter,
    Plugin,
    Reason,
    Scope,
    Score,
    Settled,
)

REASON = "node(s) had untolerated taint(s)"
_SOFT = "PreferNoSchedule"


class TaintToleration(Plugin):
    name = "TaintToleration"
    wakes_on = Change.NODE_ADDED | Change.NODE_TAINTS

    def filter(self, cls: PodClass) -> Filter:
        def is_tolerated(taints: TaintSet) -> bool:
            return find_untolerated(taints, cls.tolerations, HARD_EFFECTS) is None

        tolerated_on = self.handle.nodes.by_taints(is_tolerated)

        def passes(view: View) -> Cells:
            return view.take(tolerated_on) == 1

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, view.negate(passes(view)), resolvable=False)]

        return Filter(passes, reasons, Scope.NODE)

    def score(self, cls: PodClass) -> Score:
        nodes = self.handle.nodes
        version = Settled(lambda: _SOFT in nodes.taint_effects)
        if _SOFT not in nodes.taint_effects:
            return Score.same(MAX_SCORE, version)
        tolerations = [t for t in cls.tolerations if t.effect in ("", _SOFT)]
        intolerable = nodes.by_taints(lambda taints: disliked(taints, tolerations))
        return Score(lambda view: view.take(intolerable), Scope.NODE, ByMaximum(reverse=True), version)


def disliked(taints: TaintSet, tolerations: list[Toleration]) -> int:
    """The number of PreferNoSchedule taints that are not tolerated."""
    return sum(1 for t in taints if t.effect == _SOFT and not tolerated(t, tolerations))
