"""TaintToleration: keeps pods off nodes whose taints they do not tolerate, and prefers nodes with
fewer such taints where they are only a preference.

A pod's tolerations are judged once per distinct set of taints, so a node costs one table look-up.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from holdfast.api.affinity import Toleration
from holdfast.api.selectors import HARD_EFFECTS, find_untolerated, tolerated
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import TaintSet, TaintSets
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.cluster_plugin import ClusterPlugin
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    ByMaximum,
    Filter,
    Reason,
    Scope,
    Score,
    Settled,
)

REASON = "node(s) had untolerated taint(s)"
_SOFT = "PreferNoSchedule"


class TaintToleration(ClusterPlugin):
    name = "TaintToleration"
    wakes_on = Change.NODE_ADDED | Change.NODE_TAINTS

    def filter(self, cls: PodClass) -> Filter:
        judged = Judgement(
            self.cluster.nodes.taints,
            lambda taints: find_untolerated(taints, cls.tolerations, HARD_EFFECTS) is None,
        )
        sets = self.cluster.nodes

        def passes(view: View) -> Cells:
            return judged.of(view.take(sets.taint_set)) == 1

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, view.negate(passes(view)), resolvable=False)]

        return Filter(passes, reasons, Scope.NODE)

    def score(self, cls: PodClass) -> Score:
        nodes = self.cluster.nodes

        version = Settled(lambda: nodes.taints.soft)
        if not nodes.taints.soft:
            return Score.same(MAX_SCORE, version)
        tolerations = [t for t in cls.tolerations if t.effect in ("", _SOFT)]
        judged = Judgement(nodes.taints, lambda taints: disliked(taints, tolerations))

        def score(view: View) -> Cells:
            return judged.of(view.take(nodes.taint_set))

        return Score(score, Scope.NODE, ByMaximum(reverse=True), version)


def disliked(taints: TaintSet, tolerations: list[Toleration]) -> int:
    """How many taints say the pod had better not come."""
    return sum(1 for t in taints if t.effect == _SOFT and not tolerated(t, tolerations))


class Judgement:
    """A number per distinct set of taints, worked out when the set is first met."""

    def __init__(self, sets: TaintSets, judge: Callable[[TaintSet], int]) -> None:
        self._sets = sets
        self._judge = judge
        self._reused = sets.reused
        self._table: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def of(self, codes: Cells) -> Cells:
        sets = self._sets
        if self._reused != sets.reused:
            self._reused = sets.reused
            self._table = self._table[:0]
        known = len(self._table)
        if known < len(sets):
            more = [int(self._judge(sets[code])) for code in range(known, len(sets))]
            self._table = np.concatenate([self._table, np.array(more, dtype=np.int64)])
        return self._table[codes]
